"""Resizing by matrices against torchvision and Pillow, on floats, for boxes of every kind."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from vitrail.data.transforms.resample import resize_batch, resize_bytes_batch, resize_weights

MODES = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
CLOSE = 255e-3
interpolations = st.sampled_from(sorted(MODES))


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    """Bytes without any smoothness, the hardest to resize alike."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def by_torchvision(image: torch.Tensor, box, size, interpolation: str, antialias: bool) -> torch.Tensor:
    top, left, height, width = box
    part = image[:, top : top + height, left : left + width].float()
    return functional.resize(part, list(size), interpolation=MODES[interpolation], antialias=antialias)


@st.composite
def images_with_boxes(draw):
    height, width = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    boxes = []
    for _ in range(draw(st.integers(1, 4))):
        tall, wide = draw(st.integers(1, height)), draw(st.integers(1, width))
        boxes.append([draw(st.integers(0, height - tall)), draw(st.integers(0, width - wide)), tall, wide])
    return height, width, boxes


def by_pillow(image: torch.Tensor, box, size, interpolation: str) -> torch.Tensor:
    """Always with the low-pass filter, in Pillow's mode of floats."""
    top, left, height, width = box
    parts = [
        Image.fromarray(channel.float().numpy()).crop((left, top, left + width, top + height)) for channel in image
    ]
    resized = [np.asarray(part.resize((size[1], size[0]), FILTERS[interpolation])) for part in parts]
    return torch.from_numpy(np.stack(resized))


# Two pixels at least: torch 2.15 repeats the first row when it filters down to a single column.
@settings(max_examples=100)
@given(
    images=images_with_boxes(),
    size=st.tuples(st.integers(2, 40), st.integers(2, 40)),
    interpolation=interpolations,
    antialias=st.booleans(),
)
@example(images=(1, 1, [[0, 0, 1, 1]]), size=(5, 3), interpolation="bicubic", antialias=False)
def test_every_box_is_resized_as_torchvision_resizes_it(images, size, interpolation, antialias) -> None:
    height, width, boxes = images
    pixels = noise(len(boxes), 3, height, width)
    resized = resize_batch(pixels, torch.tensor(boxes), size, interpolation, antialias)
    assert resized.dtype == torch.float32
    assert resized.shape == (len(boxes), 3, *size)
    for image, box, found in zip(pixels, boxes, resized, strict=True):
        expected = by_torchvision(image, box, size, interpolation, antialias)
        assert (found - expected).abs().max() < CLOSE


@settings(max_examples=100)
@given(
    images=images_with_boxes(),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    interpolation=interpolations,
)
@example(images=(2, 60, [[0, 0, 2, 60], [1, 59, 1, 1]]), size=(1, 1), interpolation="bicubic")
@example(images=(2, 1, [[0, 0, 2, 1]]), size=(3, 1), interpolation="bicubic")
def test_with_antialias_every_box_is_resized_as_pillow_resizes_it(images, size, interpolation) -> None:
    height, width, boxes = images
    pixels = noise(len(boxes), 2, height, width)
    resized = resize_batch(pixels, torch.tensor(boxes), size, interpolation, True)
    for image, box, found in zip(pixels, boxes, resized, strict=True):
        assert (found - by_pillow(image, box, size, interpolation)).abs().max() < CLOSE


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", sorted(MODES))
def test_a_photo_to_the_input_size(interpolation, antialias) -> None:
    image = noise(3, 500, 375)
    box = [17, 40, 411, 300]
    resized = resize_batch(image[None], torch.tensor([box]), (224, 224), interpolation, antialias)
    assert (resized[0] - by_torchvision(image, box, (224, 224), interpolation, antialias)).abs().max() < CLOSE


@given(
    start=st.integers(0, 500),
    length=st.integers(1, 800),
    beyond=st.integers(0, 20),
    outputs=st.integers(1, 64),
    interpolation=interpolations,
    antialias=st.booleans(),
)
def test_weights_sum_to_one_and_see_nothing_outside_the_box(
    start, length, beyond, outputs, interpolation, antialias
) -> None:
    inputs = start + length + beyond
    weights = resize_weights(torch.tensor([start]), torch.tensor([length]), inputs, outputs, interpolation, antialias)
    assert weights.shape == (1, outputs, inputs)
    assert (weights.sum(-1) - 1).abs().max() < 1e-4
    assert not weights[..., :start].any()
    assert not weights[..., start + length :].any()
    if interpolation == "bilinear":
        assert weights.min() >= 0


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", sorted(MODES))
def test_the_same_size_changes_nothing(interpolation, antialias) -> None:
    images = noise(2, 1, 9, 13)
    boxes = torch.tensor([[0, 0, 9, 13]] * 2)
    assert torch.equal(resize_bytes_batch(images, boxes, (9, 13), interpolation, antialias), images)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", sorted(MODES))
def test_what_lies_outside_a_box_has_no_say(interpolation, antialias) -> None:
    """The GPU decoder leaves arbitrary bytes around each box."""
    images, other = noise(1, 3, 40, 50), noise(1, 3, 40, 50, seed=1)
    other[..., 5:25, 11:42] = images[..., 5:25, 11:42]
    box = torch.tensor([[5, 11, 20, 31]])
    first, second = (resize_batch(pixels, box, (16, 16), interpolation, antialias) for pixels in (images, other))
    assert torch.equal(first, second)


def test_an_image_does_not_depend_on_its_neighbours() -> None:
    images = noise(5, 3, 30, 30)
    boxes = torch.tensor([[0, 0, 30, 30], [3, 4, 9, 20], [0, 10, 30, 1], [29, 29, 1, 1], [10, 0, 8, 8]])
    together = resize_batch(images, boxes, (12, 10), "bilinear", False)
    for row in range(5):
        alone = resize_batch(images[row : row + 1], boxes[row : row + 1], (12, 10), "bilinear", False)
        assert (alone[0] - together[row]).abs().max() < 1e-3


@settings(max_examples=200)
@given(
    images=images_with_boxes(),
    size=st.tuples(st.integers(2, 40), st.integers(2, 40)),
    interpolation=interpolations,
    antialias=st.booleans(),
)
def test_bytes_are_resized_as_torchvision_resizes_them(images, size, interpolation, antialias) -> None:
    height, width, boxes = images
    pixels = noise(len(boxes), 3, height, width)
    found = resize_bytes_batch(pixels, torch.tensor(boxes), size, interpolation, antialias)
    for image, box, mine in zip(pixels, boxes, found, strict=True):
        top, left, tall, wide = box
        part = image[:, top : top + tall, left : left + wide]
        theirs = functional.resize(part, list(size), interpolation=MODES[interpolation], antialias=antialias)
        assert (mine.int() - theirs.int()).abs().max() <= (2 if interpolation == "bicubic" else 1)
