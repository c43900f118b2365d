"""Occlusion: how much less sure the network is when a part of the image is covered (Zeiler and Fergus, 2014)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from vitrail.config.checks import positive
from vitrail.errors import UsageError
from vitrail.inspection.looking import finite, images_at_a_time, in_parts, looking, probabilities
from vitrail.models import Classifier, VisionTransformer

Box = tuple[int, int, int, int]

# More covers side by side than this show nothing more, and take long.
_MOST_SIDE_BY_SIDE = 14
# One forward pass needs less than what keeps the tokens of all layers.
_COVERED_AT_A_TIME = 64


@dataclass(frozen=True)
class Covers:
    """Where an image is covered, row by row."""

    rows: int
    columns: int
    cell: tuple[int, int]
    """Height and width in pixels of the part that each cover stands for."""
    boxes: tuple[Box, ...]
    """Each cover as (top, left, bottom, right) in pixels; they overlap, and end where the image does."""


def occlusion(
    model: nn.Module,
    images: Tensor,
    classes: Tensor | None = None,
    *,
    window: int = 3,
    advance: Callable[[int], None] | None = None,
) -> Tensor:
    """`p(class | image) - p(class | image with a cover here)`: (batch, rows, columns), one cover per place.

    A cover is a square of `window` patches, filled with 0, the mean colour of normalised images. There is one around
    every patch, or around every k x k patches of a large grid, then of one more patch where it would be off centre.
    `classes` are those that are asked about, by default the first guess for each image. `advance` is told how many
    covered images are done.
    """
    if not isinstance(model, Classifier) or not model.config.num_classes:
        raise UsageError("the network has no head", wanted="one with classes, to see what it would answer")
    if classes is not None and (
        classes.shape != (len(images),) or not 0 <= int(classes.min()) <= int(classes.max()) < model.config.num_classes
    ):
        raise UsageError(
            f"the classes have the shape {tuple(classes.shape)}",
            wanted=f"{len(images)} numbers from 0 to {model.config.num_classes - 1}, one per image",
        )
    there = covers(model, window)
    at_a_time = min(_COVERED_AT_A_TIME, images_at_a_time(model))
    found, done = [], 0
    with looking(model):
        for part in in_parts(model, images):
            whole = probabilities(model, model(part))
            asked = whole.argmax(dim=-1) if classes is None else classes[done : done + len(part)].to(whole.device)
            done += len(part)
            for image, number, sure in zip(part, asked, whole, strict=True):
                left = []
                for few in _in_turns(there.boxes, at_a_time):
                    left.append(probabilities(model, model(_covered(image, few)))[:, number])
                    if advance:
                        advance(len(few))
                found.append((sure[number] - torch.cat(left)).view(there.rows, there.columns).cpu())
    return finite(torch.stack(found), "the output")


def covers(model: Classifier, window: int = 3) -> Covers:
    """The covers of a network's images: one per patch, or per k x k patches of a large grid, and around it."""
    positive("window", window)
    (grid_h, grid_w), (patch_h, patch_w) = model.config.grid, cell_of(model)
    height, width = model.config.image_size
    step = -(-max(grid_h, grid_w) // _MOST_SIDE_BY_SIDE)
    # What a cover has beyond its own patches lies around them, as much before as behind.
    around = -(-max(0, window - step) // 2)
    boxes = [
        (
            max(0, row - around) * patch_h,
            max(0, column - around) * patch_w,
            min(height, (row + step + around) * patch_h),
            min(width, (column + step + around) * patch_w),
        )
        for row in range(0, grid_h, step)
        for column in range(0, grid_w, step)
    ]
    return Covers(-(-grid_h // step), -(-grid_w // step), (step * patch_h, step * patch_w), tuple(boxes))


def cell_of(model: Classifier) -> tuple[int, int]:
    """Pixels of the image that one cell of the grid stands for."""
    if isinstance(model, VisionTransformer):
        return model.config.pixels_per_patch
    (height, width), (rows, columns) = model.config.image_size, model.config.grid
    return -(-height // rows), -(-width // columns)


def _in_turns(boxes: Sequence[Box], size: int) -> Iterator[list[Box]]:
    left = iter(boxes)
    while few := list(islice(left, size)):
        yield few


def _covered(image: Tensor, boxes: list[Box]) -> Tensor:
    copies = image.repeat(len(boxes), 1, 1, 1)
    for copy, (top, left, bottom, right) in zip(copies, boxes, strict=True):
        copy[:, top:bottom, left:right] = 0.0
    return copies
