"""Random erasing (Zhong et al. 2017): a rectangle of some images becomes zero, the mean of what is normalised."""

import numpy as np
import torch
from torch import Tensor

from vitrail.runtime.counter import uniforms
from vitrail.runtime.purposes import Purpose

_AREA = (0.02, 1 / 3)
_ASPECT = (0.3, 1 / 0.3)
_DRAWS = 5


def draw_rectangles(seed: int, epochs: np.ndarray, ids: np.ndarray, share: float, size: tuple[int, int]) -> np.ndarray:
    """Top, left, height and width of what is erased from each image, as integers (images, 4); zeros erase nothing."""
    draws = uniforms(seed, Purpose.ERASING, epochs, ids, _DRAWS)
    area = (_AREA[0] + (_AREA[1] - _AREA[0]) * draws[:, 1]) * size[0] * size[1]
    aspect = np.exp(np.log(_ASPECT[0]) + (np.log(_ASPECT[1]) - np.log(_ASPECT[0])) * draws[:, 2])
    sides = np.stack([np.sqrt(area * aspect), np.sqrt(area / aspect)], axis=1)
    sides = np.minimum(np.rint(sides), size).astype(np.int64)
    corner = np.floor(draws[:, 3:] * (np.asarray(size) - sides + 1)).astype(np.int64)
    return np.concatenate([corner, sides], axis=1) * (draws[:, :1] < share)


def erase(images: Tensor, rectangles: np.ndarray) -> Tensor:
    """Zero a rectangle of each image (batch, channels, height, width), in place."""
    top, left, height, width = torch.from_numpy(rectangles).to(images.device, non_blocking=True)[:, :, None].unbind(1)
    y = torch.arange(images.shape[-2], device=images.device)
    x = torch.arange(images.shape[-1], device=images.device)
    rows, columns = (y >= top) & (y < top + height), (x >= left) & (x < left + width)
    return images.masked_fill_(rows[:, None, :, None] & columns[:, None, None, :], 0.0)
