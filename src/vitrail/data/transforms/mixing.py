"""Mixing the images of a batch with each other: mixup and CutMix, and the shares that the targets get."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.config import AugmentConfig
from vitrail.data.purposes import Purpose
from vitrail.runtime.counter import uniforms


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

    which, share, y, x = (float(value) for value in uniforms(seed, Purpose.MIXING, 0, step, 4))
    cut = augment.cutmix > 0 and (augment.mixup == 0 or which < 0.5)
    power = augment.cutmix if cut else augment.mixup
    keep = float(betaincinv(power, power, share))
    return Mix(keep, (y, x)) if cut else Mix(max(keep, 1 - keep))


def mix_images(images: Tensor, targets: Tensor, mix: Mix, num_classes: int) -> tuple[Tensor, Tensor]:
    """Mix float images with their neighbours in the batch; targets become shares of classes (batch, classes)."""
    if targets.ndim == 1:
        targets = torch.nn.functional.one_hot(targets, num_classes).float()
    other = images.roll(1, 0)
    if mix.centre is None:
        keep = mix.keep
        images = torch.lerp(other, images, keep)
    else:
        top, bottom, left, right = _box(mix, images.shape[-2], images.shape[-1])
        images = images.clone()
        images[..., top:bottom, left:right] = other[..., top:bottom, left:right]
        # The box is cut off at the border, so the share is counted in pixels.
        keep = 1 - (bottom - top) * (right - left) / (images.shape[-2] * images.shape[-1])
    return images, torch.lerp(targets.roll(1, 0), targets, keep)


def _box(mix: Mix, height: int, width: int) -> tuple[int, int, int, int]:
    assert mix.centre is not None
    side = (1 - mix.keep) ** 0.5
    half_height, half_width = int(height * side) // 2, int(width * side) // 2
    y, x = int(mix.centre[0] * height), int(mix.centre[1] * width)
    return (
        max(y - half_height, 0),
        min(y + half_height, height),
        max(x - half_width, 0),
        min(x + half_width, width),
    )
