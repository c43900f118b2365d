"""Mixing the images of a batch with each other: mixup and CutMix, and the shares that the targets get."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.config import AugmentConfig
from vitrail.runtime.counter import uniforms
from vitrail.runtime.purposes import Purpose


@dataclass(frozen=True)
class Mix:
    """How a batch is mixed with itself rolled by one: a share kept, and for CutMix the centre of the box."""

    keep: float
    centre: tuple[float, float] | None = None


def draw_mix(augment: AugmentConfig, seed: int, step: int) -> Mix | None:
    """One mix per step; for mixup as big_vision draws it: a ~ Beta(p, p), and the larger of a and 1 - a is kept."""
    if not augment.is_mixing:
        return None
    from scipy.special import betaincinv

    which, share, y, x, whether = (float(value) for value in uniforms(seed, Purpose.MIXING, 0, step, 5))
    if whether >= augment.mixing:
        # Kept as it is, with targets in shares all the same: every batch has one form.
        return Mix(1.0)
    cut = augment.cutmix > 0 and (augment.mixup == 0 or which < 0.5)
    power = augment.cutmix if cut else augment.mixup
    keep = float(betaincinv(power, power, share))
    return Mix(keep, (y, x)) if cut else Mix(max(keep, 1 - keep))


def mix_images(images: Tensor, targets: Tensor, mix: Mix, num_classes: int) -> tuple[Tensor, Tensor]:
    """Mix float images with their neighbours in the batch; targets become shares of classes (batch, classes)."""
    mixed, shares = mix_steps(images[None], targets[None], [mix], num_classes)
    return mixed[0], shares[0]


def mix_steps(images: Tensor, targets: Tensor, mixes: list[Mix], num_classes: int) -> tuple[Tensor, Tensor]:
    """The same for the batches of several steps at once, (steps, batch, ...): each with itself, by its own mix."""
    height, width = images.shape[-2:]
    if targets.ndim == 2:
        targets = (targets[..., None] == torch.arange(num_classes, device=targets.device)).float()
    boxes = np.array([_box(mix, height, width) for mix in mixes])
    # A box is cut off at the border, so its share is counted in pixels. Mixup has none; CutMix keeps what is outside.
    outside = 1 - (boxes[:, 1] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 2]) / (height * width)
    keep = np.array([mix.keep if mix.centre is None else 1.0 for mix in mixes])
    other = images.roll(1, 1)
    mixed = torch.lerp(other, images, _on(keep, images, 5))
    if any(mix.centre is not None for mix in mixes):
        mixed = torch.where(_inside(boxes, images), other, mixed)
    return mixed, torch.lerp(targets.roll(1, 1), targets, _on(keep * outside, images, 3))


def _inside(boxes: np.ndarray, images: Tensor) -> Tensor:
    """Which pixels are in the box of each step: bool (steps, 1, 1, height, width)."""
    top, bottom, left, right = torch.from_numpy(boxes).to(images.device, non_blocking=True)[:, :, None].unbind(1)
    y, x = (torch.arange(side, device=images.device) for side in images.shape[-2:])
    rows, columns = (y >= top) & (y < bottom), (x >= left) & (x < right)
    return (rows[:, :, None] & columns[:, None, :])[:, None, None]


def _on(values: np.ndarray, images: Tensor, dimensions: int) -> Tensor:
    found = torch.from_numpy(values.astype(np.float32)).to(images.device, non_blocking=True)
    return found.view(-1, *[1] * (dimensions - 1))


def _box(mix: Mix, height: int, width: int) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of what is cut out; nothing for mixup."""
    if mix.centre is None:
        return 0, 0, 0, 0
    side = (1 - mix.keep) ** 0.5
    half_height, half_width = int(height * side) // 2, int(width * side) // 2
    y, x = int(mix.centre[0] * height), int(mix.centre[1] * width)
    return (
        max(y - half_height, 0),
        min(y + half_height, height),
        max(x - half_width, 0),
        min(x + half_width, width),
    )
