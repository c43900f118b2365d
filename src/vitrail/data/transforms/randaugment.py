"""RandAugment (Cubuk et al. 2019) with the sixteen operations of the TensorFlow code that AugReg and big_vision ran.

Whatever the operation, an image is moved by an affine map, sent through a table of 256 grey levels per channel, blended
with a grey or a blurred copy of itself, or gets a hole. So a batch in which every image has its own operation is a
handful of batched steps, the same on any device.

Of the original's details that ports lose: an operation that is picked is always applied (the code draws a probability
and drops it); magnitudes go beyond 10 by the same lines; contrast blends with pixels / 256 (196 at 224 px), which the
code takes for the mean; geometry takes the nearest pixel and fills with grey 128. Translations and holes are 100 and 40
pixels at magnitude 10 there, and for 224 px here; at another size they are the same share of the side, because 100
pixels would leave nothing of an image of 32.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from vitrail.runtime.counter import uniforms
from vitrail.runtime.purposes import Purpose

OPERATIONS = (
    *("autocontrast", "equalize", "invert", "rotate", "posterize", "solarize", "color", "contrast"),
    *("brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y", "cutout", "solarize_add"),
)
_MOVES = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
_FIXED_TABLES = ("invert", "posterize", "solarize", "contrast", "brightness", "solarize_add")
_GREY = (0.2989, 0.587, 0.114)
_FILL = 128
_SIDE = 224
_CUTOUT = 40 / _SIDE
_TRANSLATE = 100.0 / _SIDE
_DRAWS = 4


@dataclass(frozen=True)
class Layer:
    """One operation for each image: its number in OPERATIONS, the sign of its magnitude, and where a hole would be."""

    operation: np.ndarray
    sign: np.ndarray
    centre: np.ndarray


def draw_layers(seed: int, epochs: np.ndarray, ids: np.ndarray, layers: int) -> list[Layer]:
    """What happens to each image of a batch: a function of (seed, epoch, id) alone."""
    draws = uniforms(seed, Purpose.RANDAUGMENT, epochs, ids, layers * _DRAWS).reshape(len(ids), layers, _DRAWS)
    return [
        Layer(
            operation=np.floor(draws[:, layer, 0] * len(OPERATIONS)).astype(np.int64),
            sign=np.where(draws[:, layer, 1] < 0.5, 1.0, -1.0),
            centre=draws[:, layer, 2:],
        )
        for layer in range(layers)
    ]


def randaugment(images: Tensor, layers: list[Layer], magnitude: float) -> Tensor:
    """Apply the layers one after the other, in place, to uint8 images (batch, channels, height, width)."""
    for layer in layers:
        for names, apply in _FAMILIES:
            chosen = np.flatnonzero(np.isin(layer.operation, [OPERATIONS.index(name) for name in names]))
            if len(chosen):
                part = Layer(layer.operation[chosen], layer.sign[chosen], layer.centre[chosen])
                where = _on(chosen, images)
                images[where] = apply(images[where], part, magnitude / 10)
    return images


def _move(images: Tensor, layer: Layer, level: float) -> Tensor:
    """Output pixel (x, y) is the input pixel nearest to (a x + b y + c, d x + e y + f), or grey."""
    batch, channels, height, width = images.shape
    maps = _affine_maps(level, height, width)[layer.operation, (layer.sign < 0).astype(np.int64)]
    a, b, c, d, e, f = _on(maps, images)[:, :, None, None].unbind(1)
    y, x = torch.meshgrid(
        torch.arange(height, device=images.device), torch.arange(width, device=images.device), indexing="ij"
    )
    source_x, source_y = a * x + b * y + c, d * x + e * y + f
    inside = (source_x > -0.5) & (source_x < width - 0.5) & (source_y > -0.5) & (source_y < height - 0.5)
    column = (source_x + 0.5).floor().long().clamp(0, width - 1)
    place = (source_y + 0.5).floor().long().clamp(0, height - 1) * width + column
    moved = images.flatten(2).gather(2, place.flatten(1)[:, None].expand(batch, channels, -1))
    return torch.where(inside[:, None], moved.view_as(images), _FILL).to(torch.uint8)


@lru_cache(maxsize=8)
def _affine_maps(level: float, height: int, width: int) -> np.ndarray:
    """The map of every operation at the plain and at the negated magnitude: float32 (operations, 2, 6)."""
    still = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    maps = np.tile(np.array(still, dtype=np.float32), (len(OPERATIONS), 2, 1))
    for number, operation in enumerate(OPERATIONS):
        if operation in _MOVES:
            maps[number] = [_affine(operation, sign * level, height, width) for sign in (1, -1)]
    return maps


def _affine(operation: str, level: float, height: int, width: int) -> tuple[float, ...]:
    if operation == "rotate":
        angle = math.radians(30.0 * level)
        sine, cosine = math.sin(angle), math.cos(angle)
        # About the centre of the image.
        x = ((width - 1) - (cosine * (width - 1) - sine * (height - 1))) / 2
        y = ((height - 1) - (sine * (width - 1) + cosine * (height - 1))) / 2
        return cosine, -sine, x, sine, cosine, y
    shear = 0.3 * level
    across, down = (_TRANSLATE * level * side for side in (width, height))
    return {
        "shear_x": (1.0, shear, 0.0, 0.0, 1.0, 0.0),
        "shear_y": (1.0, 0.0, 0.0, shear, 1.0, 0.0),
        "translate_x": (1.0, 0.0, across, 0.0, 1.0, 0.0),
        "translate_y": (1.0, 0.0, 0.0, 0.0, 1.0, down),
    }[operation]


def _fixed_tables(images: Tensor, layer: Layer, level: float) -> Tensor:
    tables = _on(_grey_tables(level, images.shape[-2] * images.shape[-1]), images)
    return _look_up(images, tables[_on(layer.operation, images)][:, None])


@lru_cache(maxsize=8)
def _grey_tables(level: float, pixels: int) -> np.ndarray:
    """The table of every operation that has one, as bytes (operations, 256)."""
    tables = np.zeros((len(OPERATIONS), 256), dtype=np.uint8)
    for operation in _FIXED_TABLES:
        tables[OPERATIONS.index(operation)] = _table(operation, level, pixels)
    return tables


def _table(operation: str, level: float, pixels: int) -> np.ndarray:
    """What becomes of each grey level."""
    grey = np.arange(256)
    if operation == "invert":
        return 255 - grey
    if operation == "posterize":
        shift = min(max(8 - int(level * 4), 0), 7)
        return grey >> shift << shift
    if operation == "solarize":
        # The original compares bytes with this number, which wraps: at magnitude 10 and 20 all is inverted.
        return np.where(grey < int(level * 256) % 256, grey, 255 - grey)
    if operation == "solarize_add":
        return np.where(grey < 128, np.clip(grey + int(level * 110), 0, 255), grey)
    behind = 0 if operation == "brightness" else int(min(pixels / 256, 255))
    # In single precision, as the original: what is cut off to a whole number depends on it.
    return np.clip(behind + np.float32(_strength(level)) * (grey - behind).astype(np.float32), 0, 255)


def _autocontrast(images: Tensor, _layer: Layer, _level: float) -> Tensor:
    """Stretch each channel to 0 ... 255."""
    flat = images.flatten(2)
    low, high = flat.amin(2, keepdim=True).float(), flat.amax(2, keepdim=True).float()
    grey = torch.arange(256, device=images.device).float()
    scale = 255.0 / (high - low)
    stretched = (grey * scale + -low * scale).clamp(0, 255)
    return _look_up(images, torch.where(high > low, stretched, grey).to(torch.uint8))


def _equalize(images: Tensor, _layer: Layer, _level: float) -> Tensor:
    """Flatten the histogram of each channel, in whole numbers as Pillow does."""
    batch, channels = images.shape[:2]
    flat = images.flatten(2).long()
    histogram = torch.zeros(batch, channels, 256, dtype=torch.int64, device=images.device)
    histogram.scatter_add_(2, flat, torch.ones_like(flat))
    last = histogram.gather(2, flat.amax(2, keepdim=True))
    step = (histogram.sum(2, keepdim=True) - last) // 255
    table = (histogram.cumsum(2) + step // 2) // step.clamp(min=1)
    table = torch.nn.functional.pad(table[..., :-1], (1, 0)).clamp(0, 255)
    grey = torch.arange(256, device=images.device)
    return _look_up(images, torch.where(step == 0, grey, table).to(torch.uint8))


def _color(images: Tensor, _layer: Layer, level: float) -> Tensor:
    """Away from grey, or towards it; an image of one channel is grey already."""
    if images.shape[1] != 3:
        return images
    weights = torch.tensor(_GREY, device=images.device).view(1, 3, 1, 1)
    grey = ((images * weights).sum(1, keepdim=True) * (255.5 / 255)).floor()
    return _blend(grey, images, level)


def _sharpness(images: Tensor, _layer: Layer, level: float) -> Tensor:
    """Away from a blurred copy, or towards it; the border stays."""
    if min(images.shape[-2:]) < 3:
        return images
    kernel = torch.ones(1, 1, 3, 3, device=images.device)
    kernel[..., 1, 1] = 5
    channels = images.flatten(0, 1).unsqueeze(1).float()
    inner = (torch.nn.functional.conv2d(channels, kernel) / 13).floor().clamp(0, 255)
    blurred = images.float()
    blurred[..., 1:-1, 1:-1] = inner.view(*images.shape[:2], *inner.shape[-2:])
    return _blend(blurred, images, level)


def _cutout(images: Tensor, layer: Layer, level: float) -> Tensor:
    """A grey square around a random pixel."""
    height, width = images.shape[-2:]
    reach_y, reach_x = (int(round(level * _CUTOUT * side, 6)) for side in (height, width))
    centre = _on(np.floor(layer.centre * np.array([height, width])).astype(np.int64), images)
    y, x = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    rows = (y >= centre[:, :1] - reach_y) & (y < centre[:, :1] + reach_y)
    columns = (x >= centre[:, 1:] - reach_x) & (x < centre[:, 1:] + reach_x)
    hole = rows[:, None, :, None] & columns[:, None, None, :]
    return torch.where(hole, _FILL, images).to(torch.uint8)


def _blend(behind: Tensor, images: Tensor, level: float) -> Tensor:
    mixed = behind + _strength(level) * (images - behind)
    return mixed.clamp(0, 255).to(torch.uint8)


def _strength(level: float) -> float:
    return level * 1.8 + 0.1


def _look_up(images: Tensor, table: Tensor) -> Tensor:
    """Send each channel through its table (batch, channels or 1, 256)."""
    batch, channels = images.shape[:2]
    return table.expand(batch, channels, 256).gather(2, images.flatten(2).long()).view_as(images)


def _on(values: np.ndarray, images: Tensor) -> Tensor:
    return torch.from_numpy(values).to(images.device, non_blocking=True)


_FAMILIES = (
    (_MOVES, _move),
    (_FIXED_TABLES, _fixed_tables),
    (("autocontrast",), _autocontrast),
    (("equalize",), _equalize),
    (("color",), _color),
    (("sharpness",), _sharpness),
    (("cutout",), _cutout),
)
