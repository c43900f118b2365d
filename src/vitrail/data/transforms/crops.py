"""The geometry of training for a whole batch on one device: what `fit_for_training` does for a single image."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from vitrail.config import AugmentConfig
from vitrail.data.transforms.boxes import random_offsets
from vitrail.data.transforms.fit import Size, crop_room


def fit_batch(
    resize: Callable[[Size], Tensor], size: Size, augment: AugmentConfig, seed: int, epochs: np.ndarray, ids: np.ndarray
) -> Tensor:
    """Resize a batch, and where the augmentation says so take a random crop of more than was wanted."""
    if augment.crop not in ("resize", "pad"):
        return resize(size)
    resized = resize((augment.resize, augment.resize) if augment.crop == "resize" else size)
    if augment.crop == "pad":
        resized = torch.nn.functional.pad(resized, [augment.pad] * 4)
    return crop_at(resized, random_offsets(seed, epochs, ids, crop_room(augment, size)), size)


def crop_at(images: Tensor, corners: np.ndarray, size: Size) -> Tensor:
    """A crop of one size from each image (batch, channels, height, width), at its own corner (batch, 2)."""
    corner = torch.from_numpy(corners).to(images.device, non_blocking=True)
    rows = corner[:, 0, None] + torch.arange(size[0], device=images.device)
    columns = corner[:, 1, None] + torch.arange(size[1], device=images.device)
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    return images[batch, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
