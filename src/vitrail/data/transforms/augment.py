"""What is done to a whole batch at once, on any device, once its images have one size."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from vitrail.config import AugmentConfig, Preprocessing
from vitrail.data.transforms.erasing import draw_rectangles, erase
from vitrail.data.transforms.randaugment import draw_layers, randaugment
from vitrail.runtime.counter import uniforms
from vitrail.runtime.purposes import Purpose


def augment_bytes(images: Tensor, epochs: np.ndarray, ids: np.ndarray, seed: int, augment: AugmentConfig) -> Tensor:
    """Flip and RandAugment bytes (batch, channels, height, width) in place: a function of (seed, epoch, id) each."""
    if augment.flip:
        mirrored = torch.from_numpy(np.flatnonzero(uniforms(seed, Purpose.FLIP, epochs, ids, 1)[:, 0] < 0.5))
        mirrored = mirrored.to(images.device, non_blocking=True)
        images[mirrored] = images[mirrored].flip(-1)
    if augment.randaugment_layers:
        layers = draw_layers(seed, epochs, ids, augment.randaugment_layers)
        images = randaugment(images, layers, augment.randaugment_magnitude)
    return images


def normalise(
    images: Tensor, preprocessing: Preprocessing, empty: Callable[[torch.Size], Tensor] | None = None
) -> Tensor:
    """(pixels / 255 - mean) / std in float32; a grey image takes the mean over the channels' values.

    `empty` gives the memory for the result, where fresh memory is too slow.
    """
    channels = images.shape[1]
    mean, std = torch.tensor(preprocessing.mean), torch.tensor(preprocessing.std)
    if channels == 1 and len(mean) > 1:
        mean, std = mean.mean(0, keepdim=True), std.mean(0, keepdim=True)
    scale = (1 / (255 * std)).view(-1, 1, 1).to(images.device, non_blocking=True)
    shift = (-mean / std).view(-1, 1, 1).to(images.device, non_blocking=True)
    result = images.to(torch.float32, copy=True) if empty is None else empty(images.shape).copy_(images)
    return result.mul_(scale).add_(shift)


def erase_some(images: Tensor, epochs: np.ndarray, ids: np.ndarray, seed: int, augment: AugmentConfig) -> Tensor:
    """Random erasing of normalised images."""
    if not augment.erasing:
        return images
    size = images.shape[-2], images.shape[-1]
    return erase(images, draw_rectangles(seed, epochs, ids, augment.erasing, size))
