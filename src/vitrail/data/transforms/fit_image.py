"""Fitting one image to the input size as the weights were made for, and its numbers: evaluation, prediction, serving.

Pillow and numpy alone, so that an exported network answers without torch.
"""

import numpy as np
from PIL import Image

from vitrail.config import Preprocessing

Size = tuple[int, int]

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
# Of the cubic that TensorFlow and torch take where nothing is filtered.
_SHARPNESS = -0.75


def fit_image(image: Image.Image, size: Size, preprocessing: Preprocessing) -> np.ndarray:
    """Resize and crop: (height, width, channels), values 0 to 255.

    With antialias Pillow resizes, in bytes; without it the result is that of TensorFlow's plain resize, in float and
    not rounded.
    """
    height, width = _resized_size(image.height, image.width, size, preprocessing)
    if preprocessing.antialias or (height, width) == (image.height, image.width):
        if (height, width) != (image.height, image.width):
            image = image.resize((width, height), _FILTERS[preprocessing.interpolation])
        resized = _array(image)
    else:
        resized = _resize_plainly(_array(image).astype(np.float32), (height, width), preprocessing.interpolation)
    top, left = round((height - size[0]) / 2), round((width - size[1]) / 2)
    fitted = resized[top : top + size[0], left : left + size[1]]
    # One dtype per preprocessing, whatever the size of the image.
    return fitted if preprocessing.antialias else fitted.astype(np.float32, copy=False)


def normalised(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """`(pixels / 255 - mean) / std` of (height, width, channels) as float32 (channels, height, width).

    A grey image takes the mean over the channels' values.
    """
    mean, std = (np.array(values, dtype=np.float32) for values in (preprocessing.mean, preprocessing.std))
    if pixels.shape[2] == 1 and len(mean) > 1:
        mean, std = mean.mean(keepdims=True), std.mean(keepdims=True)
    scale, shift = 1 / (np.float32(255) * std), -mean / std
    channels = np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32)
    channels *= scale[:, None, None]
    channels += shift[:, None, None]
    return channels


def _resized_size(height: int, width: int, size: Size, preprocessing: Preprocessing) -> Size:
    """The size before the centre crop: that of the input, enlarged by it, or the aspect kept and that just covered."""
    wanted = (preprocessing.resized(size[0]), preprocessing.resized(size[1]))
    if preprocessing.crop is None or preprocessing.squash:
        return wanted
    if wanted[0] * width <= wanted[1] * height:
        return int(wanted[1] * height / width), wanted[1]
    return wanted[0], int(wanted[0] * width / height)


def _resize_plainly(pixels: np.ndarray, size: Size, interpolation: str) -> np.ndarray:
    """Resample rows, then columns, each output pixel from the two or four nearest, however much smaller it gets."""
    for axis in (0, 1):
        places, shares = _taps(pixels.shape[axis], size[axis], interpolation)
        shape = (-1, 1, 1) if axis == 0 else (1, -1, 1)
        pixels = sum(
            np.take(pixels, place, axis=axis) * share.reshape(shape)
            for place, share in zip(places, shares, strict=True)
        )  # type: ignore[assignment]
    return pixels


def _taps(old: int, new: int, interpolation: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For each output pixel the input pixels it is made of, and their shares; pixel centres lie at halves."""
    centre = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * np.float32(old / new) - np.float32(0.5)
    if interpolation == "bilinear":
        centre = np.maximum(centre, np.float32(0))
    first = np.floor(centre)
    part = centre - first
    if interpolation == "bilinear":
        offsets, shares = (0, 1), [1 - part, part]
    else:
        offsets, shares = (-1, 0, 1, 2), [_cubic(part + 1), _cubic(part), _cubic(1 - part), _cubic(2 - part)]
    return [np.clip(first.astype(np.int64) + offset, 0, old - 1) for offset in offsets], shares


def _cubic(distance: np.ndarray) -> np.ndarray:
    """The share of a pixel so far away, up to 2."""
    a, x = np.float32(_SHARPNESS), distance
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, far).astype(np.float32)


def _array(image: Image.Image) -> np.ndarray:
    array = np.array(image)
    return array[:, :, None] if array.ndim == 2 else array
