"""Which part of each image becomes the input: boxes in pixels of the upright image, drawn for many images at once."""

from dataclasses import dataclass

import numpy as np

from vitrail.config import AugmentConfig
from vitrail.runtime.counter import uniforms
from vitrail.runtime.purposes import Purpose

# TensorFlow's defaults, which the original's pipelines leave as they are.
_ASPECTS = (0.75, 1.33)
_ATTEMPTS = 16
_DRAWS = 4


@dataclass(frozen=True)
class Boxes:
    """A box per image, as integer arrays (images,)."""

    top: np.ndarray
    left: np.ndarray
    height: np.ndarray
    width: np.ndarray

    def __getitem__(self, index: int) -> tuple[int, int, int, int]:
        return int(self.top[index]), int(self.left[index]), int(self.height[index]), int(self.width[index])


def whole_boxes(heights: np.ndarray, widths: np.ndarray) -> Boxes:
    """All of every image."""
    return Boxes(np.zeros_like(heights), np.zeros_like(widths), heights, widths)


def training_boxes(
    augment: AugmentConfig, seed: int, epochs: np.ndarray, ids: np.ndarray, heights: np.ndarray, widths: np.ndarray
) -> Boxes:
    """The part of each image that training sees in this epoch, before it is resized."""
    heights, widths = np.asarray(heights, dtype=np.int64), np.asarray(widths, dtype=np.int64)
    if augment.crop != "inception":
        return whole_boxes(heights, widths)
    draws = uniforms(seed, Purpose.CROP, epochs, ids, _ATTEMPTS * _DRAWS).reshape(*ids.shape, _ATTEMPTS, _DRAWS)
    return inception_boxes(heights, widths, draws, augment.min_area)


def inception_boxes(heights: np.ndarray, widths: np.ndarray, draws: np.ndarray, min_area: float) -> Boxes:
    """The original's "inception crop": TensorFlow's sample_distorted_bounding_box, as the input pipelines call it.

    The aspect is uniform in [0.75, 1.33], the height uniform among those whose area is between `min_area` and 1 of the
    image, the place uniform. (torchvision's RandomResizedCrop draws area and log-aspect instead: another distribution.)
    `draws`: (images, attempts, 4) in [0, 1); the first attempt that fits is taken, else the whole image.
    """
    full_height, full_width = heights[:, None], widths[:, None]
    aspect = _ASPECTS[0] + (_ASPECTS[1] - _ASPECTS[0]) * draws[..., 0]
    area = (full_height * full_width).astype(np.float64)
    smallest = np.rint(np.sqrt(min_area * area / aspect)).astype(np.int64)
    largest = np.rint(np.sqrt(area / aspect)).astype(np.int64)
    too_wide = np.rint(largest * aspect) > full_width
    largest = np.where(too_wide, np.floor((full_width + 0.5 - 1e-7) / aspect).astype(np.int64), largest)
    largest = np.where(np.rint(largest * aspect) > full_width, largest - 1, largest)
    largest = np.minimum(largest, full_height)
    smallest = np.minimum(smallest, largest)
    height = smallest + np.floor(draws[..., 1] * (largest - smallest + 1)).astype(np.int64)
    # Rounding may leave the area a row short.
    height = np.where(height * np.rint(height * aspect) < min_area * area, height + 1, height)
    width = np.rint(height * aspect).astype(np.int64)
    fits = (height <= full_height) & (width <= full_width) & (height * width >= min_area * area)
    top = np.floor(draws[..., 2] * np.maximum(full_height - height, 1)).astype(np.int64)
    left = np.floor(draws[..., 3] * np.maximum(full_width - width, 1)).astype(np.int64)
    first = np.argmax(fits, axis=1)[:, None]
    found = np.take_along_axis(fits, first, 1)[:, 0]

    def chosen(values: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
        return np.where(found, np.take_along_axis(values, first, 1)[:, 0], otherwise)

    zeros = np.zeros_like(heights)
    return Boxes(chosen(top, zeros), chosen(left, zeros), chosen(height, heights), chosen(width, widths))


def random_offsets(seed: int, epochs: np.ndarray, ids: np.ndarray, room: tuple[int, int]) -> np.ndarray:
    """Top-left corners of random crops that leave `room` = (rows, columns) to move: integers (images, 2)."""
    draws = uniforms(seed, Purpose.CROP, epochs, ids, 2)
    return np.floor(draws * (np.asarray(room) + 1)).astype(np.int64)
