"""Resizing as two matrix products: out = rows @ image @ columns, one pair of matrices per image.

Each output pixel is a weighted mean of input pixels along each axis. Written as matrices, boxes of different sizes are
resized in one batch on any device, with or without the low-pass filter of `antialias`.
"""

import torch
from torch import Tensor

from vitrail.config.preprocessing import Interpolation

_REACH = {"bilinear": 1.0, "bicubic": 2.0}


def resize_weights(
    start: Tensor, length: Tensor, inputs: int, outputs: int, interpolation: Interpolation, antialias: bool
) -> Tensor:
    """Weights (images, outputs, inputs) that resize [start, start + length) of each row of pixels to `outputs` pixels.

    Pixels are points at their centres, as in TensorFlow, Pillow and torch without corner alignment; those outside the
    box are not seen.
    """
    start, length = start[:, None, None].float(), length[:, None, None].float()
    scale = length / outputs
    centre = start + (torch.arange(outputs, device=start.device)[None, :, None] + 0.5) * scale
    place = torch.arange(inputs, device=start.device)[None, None, :] + 0.5
    if antialias:
        stretch = scale.clamp(min=1.0)
        inside = (place > start) & (place < start + length)
        weights = _kernel((place - centre) / stretch, interpolation) * inside
        return weights / weights.sum(-1, keepdim=True)
    # Without the filter a weight that would fall outside the box goes to its nearest pixel, as if the edge went on.
    reach = int(_REACH[interpolation])
    low = (centre - 0.5).floor()
    weights = torch.zeros(len(start), outputs, inputs, device=start.device)
    for step in range(1 - reach, 1 + reach):
        tap = low + step
        value = _kernel(tap + 0.5 - centre, interpolation, sharp=True)
        index = torch.minimum(torch.maximum(tap, start), start + length - 1).long()
        weights.scatter_add_(-1, index, value)
    return weights


def resize_batch(
    images: Tensor, boxes: Tensor, size: tuple[int, int], interpolation: Interpolation, antialias: bool
) -> Tensor:
    """Cut a box (top, left, height, width) out of each image (batch, channels, h, w) and resize it: not rounded."""
    columns, rows = _both_weights(images, boxes, size, interpolation, antialias)
    return (rows @ (images.to(rows.dtype) @ columns)).float()


def resize_bytes_batch(
    images: Tensor, boxes: Tensor, size: tuple[int, int], interpolation: Interpolation, antialias: bool
) -> Tensor:
    """The same in bytes; what bicubic weights carry beyond black and white is cut off after each product."""
    columns, rows = _both_weights(images, boxes, size, interpolation, antialias)
    narrow = images.to(rows.dtype) @ columns
    if interpolation == "bicubic":
        # As torchvision and Pillow do, whose bytes cannot hold it.
        narrow = narrow.round_().clamp_(0, 255)
    return (rows @ narrow).round_().clamp_(0, 255).to(torch.uint8)


def _both_weights(
    images: Tensor, boxes: Tensor, size: tuple[int, int], interpolation: Interpolation, antialias: bool
) -> tuple[Tensor, Tensor]:
    """What the images are multiplied with from the right and from the left."""
    top, left, height, width = boxes.unbind(1)
    rows = resize_weights(top, height, images.shape[-2], size[0], interpolation, antialias)
    columns = resize_weights(left, width, images.shape[-1], size[1], interpolation, antialias)
    # Half precision keeps eleven bits: bytes are exact in it, and the weights are right to a tenth of a grey level.
    kind = torch.float16 if images.is_cuda else torch.float32
    return columns.to(kind).transpose(-1, -2).unsqueeze(1), rows.to(kind).unsqueeze(1)


def _kernel(distance: Tensor, interpolation: Interpolation, sharp: bool = False) -> Tensor:
    """The triangle, or Keys' cubic: a = -1/2 with the low-pass filter (as Pillow), -3/4 without (as torch)."""
    distance = distance.abs()
    if interpolation == "bilinear":
        return (1 - distance).clamp(min=0)
    a = -0.75 if sharp else -0.5
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return torch.where(distance < 1, near, torch.where(distance < 2, far, torch.zeros_like(far)))
