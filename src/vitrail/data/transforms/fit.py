"""Fitting one image to the input size: the evaluation resize of the weights, and the geometry of training."""

import math

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from vitrail.config import AugmentConfig, Preprocessing
from vitrail.errors import UsageError

Size = tuple[int, int]
Box = tuple[int, int, int, int]

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_MODES = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}


def fit_for_evaluation(image: Image.Image, size: Size, preprocessing: Preprocessing) -> Tensor:
    """Resize and crop as the weights were made for: (channels, height, width), values 0 to 255.

    With antialias Pillow resizes, in bytes; without it the result is that of TensorFlow's plain bilinear resize, in
    float and not rounded.
    """
    height, width = _resized_size(image.height, image.width, size, preprocessing.crop)
    if preprocessing.antialias or (height, width) == (image.height, image.width):
        if (height, width) != (image.height, image.width):
            image = image.resize((width, height), _FILTERS[preprocessing.interpolation])
        resized = _tensor(image)
    else:
        pixels = _tensor(image).float()[None]
        mode = preprocessing.interpolation
        resized = interpolate(pixels, (height, width), mode=mode, align_corners=False, antialias=False)[0]
    top, left = round((height - size[0]) / 2), round((width - size[1]) / 2)
    fitted = resized[:, top : top + size[0], left : left + size[1]]
    # One dtype per preprocessing, whatever the size of the image.
    return fitted if preprocessing.antialias else fitted.float()


def fit_for_training(
    pixels: Tensor, box: Box, size: Size, offset: Size, augment: AugmentConfig, preprocessing: Preprocessing
) -> Tensor:
    """Cut and resize bytes (channels, height, width) for training; `offset` is where a random crop begins."""
    top, left, height, width = box
    part = pixels[:, top : top + height, left : left + width]
    if augment.crop == "resize":
        square = resize_bytes(part, (augment.resize, augment.resize), preprocessing)
        return square[:, offset[0] : offset[0] + size[0], offset[1] : offset[1] + size[1]]
    fitted = resize_bytes(part, size, preprocessing)
    if augment.crop == "pad":
        padded = functional.pad(fitted, [augment.pad])
        return padded[:, offset[0] : offset[0] + size[0], offset[1] : offset[1] + size[1]]
    return fitted


def crop_room(augment: AugmentConfig, size: Size) -> Size:
    """How far a random crop can move, in rows and columns."""
    if augment.crop == "pad":
        return 2 * augment.pad, 2 * augment.pad
    if augment.crop != "resize":
        return 0, 0
    if augment.resize < max(size):
        raise UsageError(f"resize is {augment.resize}", wanted=f"at least the input's {max(size)} pixels")
    return augment.resize - size[0], augment.resize - size[1]


def resize_bytes(pixels: Tensor, size: Size, preprocessing: Preprocessing) -> Tensor:
    """Resize bytes (channels, height, width) with torchvision."""
    if tuple(pixels.shape[-2:]) == size:
        return pixels
    mode = _MODES[preprocessing.interpolation]
    return functional.resize(pixels, list(size), interpolation=mode, antialias=preprocessing.antialias)


def _resized_size(height: int, width: int, size: Size, crop: float | None) -> Size:
    """The size before the centre crop: the input size itself, or the aspect kept and size / crop just covered."""
    if crop is None:
        return size
    wanted = tuple(math.floor(side / crop) for side in size)
    if wanted[0] * width <= wanted[1] * height:
        return int(wanted[1] * height / width), wanted[1]
    return wanted[0], int(wanted[0] * width / height)


def _tensor(image: Image.Image) -> Tensor:
    array = np.array(image)
    return torch.from_numpy(array[:, :, None] if array.ndim == 2 else array).permute(2, 0, 1)
