"""JPEGs decoded, cut and resized on the GPU, many at a time."""

import numpy as np
import torch
from torch import Tensor

from vitrail.config import Preprocessing
from vitrail.data.decoding.fast_decode import jpeg_backend
from vitrail.data.transforms.resample import resize_bytes_batch
from vitrail.errors import DataError, setting

# Boxes of one group share a canvas as large as the largest of them; groups keep a panorama from inflating the rest.
_CANVAS_BYTES = 2**28


def decode_on_gpu(jpegs: list[Tensor], where: list[str], device: torch.device) -> list[Tensor]:
    """Decode JPEGs into tensors (3, height, width) on the GPU; one that it cannot decode is named."""
    try:
        return jpeg_backend().on_gpu(jpegs, device)
    except RuntimeError as error:
        for jpeg, place in zip(jpegs, where, strict=True):
            _decode_alone(jpeg, place, device)
        raise error


def _decode_alone(jpeg: Tensor, where: str, device: torch.device) -> None:
    try:
        jpeg_backend().on_gpu([jpeg], device)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0][:120]
        raise DataError(
            f"the GPU could not decode the JPEG ({reason})",
            where=where,
            fix="`vitrail data check` tells whether the file is bad; "
            f"{setting('data.decoder', 'pillow')} decodes on the CPU.",
        ) from None


def cut_and_resize(
    images: list[Tensor], boxes: np.ndarray, size: tuple[int, int], preprocessing: Preprocessing
) -> Tensor:
    """Resize a box of each image to one size: bytes (images, 3, height, width)."""
    made = torch.empty(len(images), 3, *size, dtype=torch.uint8, device=images[0].device)
    for group in _groups(boxes):
        height, width = boxes[group, 2].max(), boxes[group, 3].max()
        # What lies outside a box has weight zero, so the canvas need not be cleared.
        canvas = torch.empty(len(group), 3, int(height), int(width), dtype=torch.uint8, device=made.device)
        corners, sides = boxes[group, :2].tolist(), boxes[group, 2:].tolist()
        torch._foreach_copy_(  # type: ignore[attr-defined]
            [canvas[row, :, :height, :width] for row, (height, width) in enumerate(sides)],
            [
                images[index][:, top : top + height, left : left + width]
                for index, (top, left), (height, width) in zip(group.tolist(), corners, sides, strict=True)
            ],
        )
        inside = np.concatenate([np.zeros((len(group), 2), dtype=np.int64), boxes[group, 2:]], axis=1)
        places = torch.from_numpy(inside).to(made.device, non_blocking=True)
        resized = resize_bytes_batch(canvas, places, size, preprocessing.interpolation, preprocessing.antialias)
        made[torch.from_numpy(group).to(made.device, non_blocking=True)] = resized
    return made


def _groups(boxes: np.ndarray) -> list[np.ndarray]:
    """Indices of boxes of like size, so that no canvas is larger than _CANVAS_BYTES (or a single image)."""
    order = np.argsort(boxes[:, 2] * boxes[:, 3], kind="stable")
    groups, start = [], 0
    for end in range(1, len(order) + 1):
        inside = boxes[order[start:end]]
        canvas = 3 * (end - start) * int(inside[:, 2].max()) * int(inside[:, 3].max())
        if canvas > _CANVAS_BYTES and end - start > 1:
            groups.append(order[start : end - 1])
            start = end - 1
    groups.append(order[start:])
    return groups
