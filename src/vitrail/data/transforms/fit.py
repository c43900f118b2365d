"""Fitting one image to the input size: the evaluation resize of the weights, and the geometry of training."""

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from vitrail.config import AugmentConfig, Preprocessing
from vitrail.data.transforms.fit_image import Size, fit_image
from vitrail.errors import UsageError

Box = tuple[int, int, int, int]

_MODES = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}


def fit_for_evaluation(image: Image.Image, size: Size, preprocessing: Preprocessing) -> Tensor:
    """Resize and crop as the weights were made for: (channels, height, width), values 0 to 255."""
    return torch.from_numpy(fit_image(image, size, preprocessing)).permute(2, 0, 1)


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
