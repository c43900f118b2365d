"""Crops against a reference that takes one image and one attempt at a time, as TensorFlow's kernel does."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from vitrail.config import AugmentConfig
from vitrail.data.transforms.boxes import inception_boxes, random_offsets, training_boxes, whole_boxes

Box = tuple[int, int, int, int]

SIZES = [
    (1, 1),
    (1, 7),
    (7, 1),
    (2, 3),
    (5, 5),
    (1, 100),
    (100, 1),
    (333, 500),
    (500, 375),
    (224, 224),
    (40_000, 60_001),
]
sides = st.one_of(st.integers(1, 12), st.integers(1, 3000), st.integers(1, 2**20))
draws = st.floats(0, 1, exclude_max=True)


def reference_attempt(height: int, width: int, min_area: float, draw: list[float]) -> Box | None:
    """One try of TensorFlow's `GenerateRandomCrop`, a scalar at a time; Python rounds halves to even, as lrint."""
    aspect = 0.75 + (1.33 - 0.75) * draw[0]
    smallest_area, largest_area = min_area * (height * width), float(height * width)
    tall = round(math.sqrt(smallest_area / aspect))
    tallest = round(math.sqrt(largest_area / aspect))
    if round(tallest * aspect) > width:
        tallest = int((width + 0.5 - 1e-7) / aspect)
        if round(tallest * aspect) > width:
            tallest -= 1
    tallest = min(tallest, height)
    tall = tallest if tall >= tallest else tall + int(draw[1] * (tallest - tall + 1))
    wide = round(tall * aspect)
    if tall * wide < smallest_area:
        tall += 1
        wide = round(tall * aspect)
    if tall * wide > largest_area:
        tall -= 1
        wide = round(tall * aspect)
    if not smallest_area <= tall * wide <= largest_area or not 0 < wide <= width or not 0 < tall <= height:
        return None
    top = int(draw[2] * (height - tall)) if tall < height else 0
    left = int(draw[3] * (width - wide)) if wide < width else 0
    return top, left, tall, wide


def reference(height: int, width: int, min_area: float, attempts: list[list[float]]) -> Box:
    tries = (reference_attempt(height, width, min_area, draw) for draw in attempts)
    return next((box for box in tries if box is not None), (0, 0, height, width))


def boxes_of(sizes: list[tuple[int, int]], drawn: np.ndarray, min_area: float = 0.05) -> list[Box]:
    heights, widths = np.array(sizes, dtype=np.int64).T
    boxes = inception_boxes(heights, widths, drawn, min_area)
    return [boxes[index] for index in range(len(sizes))]


def trained(sizes: list[tuple[int, int]], ids, *, seed: int = 0, epoch: int = 0, **augment) -> list[Box]:
    heights, widths = np.array(sizes).T
    epochs = np.full(len(ids), epoch)
    boxes = training_boxes(AugmentConfig(**augment), seed, epochs, np.asarray(ids), heights, widths)
    return [boxes[index] for index in range(len(ids))]


@settings(max_examples=300)
@given(
    height=sides,
    width=sides,
    min_area=st.one_of(st.just(0.05), st.just(0.08), st.floats(0.001, 1)),
    attempts=st.lists(st.tuples(draws, draws, draws, draws).map(list), min_size=1, max_size=4),
)
@example(height=1, width=1, min_area=0.05, attempts=[[0.0, 0.0, 0.0, 0.0]])
@example(height=1, width=1, min_area=1.0, attempts=[[0.5, 0.5, 0.5, 0.5]])
@example(height=2**20, width=2**20, min_area=0.05, attempts=[[1 - 2**-32] * 4])
def test_a_box_is_the_one_that_tensorflow_would_take(height, width, min_area, attempts) -> None:
    found = boxes_of([(height, width)], np.array([attempts]), min_area)
    assert found == [reference(height, width, min_area, attempts)]


@pytest.mark.parametrize("size", [(100, 2400), (2400, 100)])
def test_the_first_attempt_that_fits_is_taken(size) -> None:
    """So long a strip has boxes that are large enough for some aspects only."""
    drawn = np.random.default_rng(2).random((300, 5, 4))
    tries = [[reference_attempt(*size, 0.05, draw) for draw in row] for row in drawn.tolist()]
    first = [next((number for number, box in enumerate(row) if box), None) for row in tries]
    assert {0, 1, 2, None} <= set(first)
    assert boxes_of([size] * 300, drawn) == [reference(*size, 0.05, row) for row in drawn.tolist()]


def test_a_large_batch_of_odd_sizes_is_that_of_the_reference() -> None:
    generator = np.random.default_rng(0)
    sizes = [SIZES[number % len(SIZES)] for number in range(990)]
    drawn = generator.random((len(sizes), 6, 4))
    expected = [reference(*size, 0.05, drawn[row].tolist()) for row, size in enumerate(sizes)]
    assert boxes_of(sizes, drawn) == expected
    assert len(set(expected)) > 300


@given(height=sides, width=sides, min_area=st.floats(0.001, 1), seed=st.integers(0, 2**64 - 1))
def test_a_box_is_never_empty_and_never_outside(height, width, min_area, seed) -> None:
    for top, left, tall, wide in trained([(height, width)] * 8, range(8), seed=seed, min_area=min_area):
        assert tall >= 1
        assert wide >= 1
        assert 0 <= top <= height - tall
        assert 0 <= left <= width - wide


@pytest.mark.parametrize("min_area", [0.05, 0.08, 0.5])
def test_area_aspect_and_place_have_the_distribution_of_the_docstring(min_area) -> None:
    side, count = 2**20, 4000
    top, left, height, width = np.array(trained([(side, side)] * count, range(count), min_area=min_area), dtype=float).T
    aspect = width / height
    assert kstest((aspect - 0.75) / (1.33 - 0.75), "uniform").pvalue > 1e-3
    # The height is uniform between that of the smallest area and the most that fits for this aspect.
    lowest, highest = (
        side * np.sqrt(min_area / aspect),
        side * np.minimum(np.sqrt(1 / aspect), np.minimum(1, 1 / aspect)),
    )
    roomy = lowest < 0.999 * highest
    share = (height - lowest)[roomy] / (highest - lowest)[roomy]
    assert kstest(share, "uniform").pvalue > 1e-3
    for corner, length in ((top, height), (left, width)):
        movable = length < 0.999 * side
        assert kstest((corner / (side - length).clip(1))[movable], "uniform").pvalue > 1e-3
    assert (height * width >= 0.999999 * min_area * side * side).all()


def test_areas_and_aspects_stay_within_bounds_on_photos() -> None:
    boxes = np.array(trained([(375, 500)] * 3000, range(3000)), dtype=float)
    area, aspect = boxes[:, 2] * boxes[:, 3] / (375 * 500), boxes[:, 3] / boxes[:, 2]
    assert 0.05 <= area.min() < 0.06
    assert 0.95 < area.max() <= 1
    # A whole number of pixels moves the aspect by at most half a pixel of width.
    assert (np.abs(aspect - np.clip(aspect, 0.75, 1.33)) <= 0.5 / boxes[:, 2] + 1e-12).all()


def test_the_crop_is_not_the_one_of_torchvision() -> None:
    """Area is not uniform here: the height is, so that small areas are more frequent than large ones."""
    boxes = np.array(trained([(4000, 4000)] * 4000, range(4000)), dtype=float)
    area = boxes[:, 2] * boxes[:, 3] / 4000**2
    assert kstest((area - 0.05) / 0.95, "uniform").pvalue < 1e-6
    assert np.mean(area < 0.3) > 0.4


@pytest.mark.parametrize("size", [(1, 1000), (1000, 1), (10, 1000), (2000, 20)])
def test_where_no_box_fits_it_is_the_whole_image(size) -> None:
    assert trained([size] * 20, range(20)) == [(0, 0, *size)] * 20


def test_a_box_depends_on_nothing_but_its_own_image() -> None:
    generator = np.random.default_rng(1)
    sizes = [tuple(generator.integers(1, 700, 2).tolist()) for _ in range(50)]
    ids = generator.integers(0, 2**62, 50)
    together = trained(sizes, ids, seed=3, epoch=2)
    assert [trained([size], [number], seed=3, epoch=2)[0] for size, number in zip(sizes, ids, strict=True)] == together
    assert trained(sizes[::-1], ids[::-1], seed=3, epoch=2) == together[::-1]


def test_another_seed_epoch_or_image_gives_another_box() -> None:
    def drawn(ids, **changes) -> list[Box]:
        return trained([(480, 640)] * 32, ids, **changes)

    same = drawn(range(32))
    assert drawn(range(32)) == same
    assert len(set(same)) == 32
    for other in (
        drawn(range(32), seed=1),
        drawn(range(32), epoch=1),
        drawn(range(32, 64)),
        drawn(range(32), seed=2**32),
    ):
        assert not set(other) & set(same)


def test_one_batch_may_hold_two_epochs() -> None:
    heights = widths = np.full(2, 300)
    both = training_boxes(AugmentConfig(), 0, np.array([0, 1]), np.array([9, 9]), heights, widths)
    assert both[0] == trained([(300, 300)], [9], epoch=0)[0]
    assert both[1] == trained([(300, 300)], [9], epoch=1)[0]
    assert both[0] != both[1]


@pytest.mark.parametrize("crop", ["resize", "pad", "whole"])
def test_other_crops_begin_with_the_whole_image(crop) -> None:
    assert trained([(3, 5), (700, 20)], [1, 2], crop=crop) == [(0, 0, 3, 5), (0, 0, 700, 20)]
    assert whole_boxes(np.array([4]), np.array([9]))[0] == (0, 0, 4, 9)


def test_offsets_fill_the_room_evenly_and_never_leave_it() -> None:
    offsets = random_offsets(5, np.zeros(6000, dtype=int), np.arange(6000), (8, 2))
    assert offsets.dtype == np.int64
    for axis, room in ((0, 8), (1, 2)):
        counts = np.bincount(offsets[:, axis], minlength=room + 1)
        assert len(counts) == room + 1
        assert np.abs(counts - 6000 / (room + 1)).max() < 5 * np.sqrt(6000 / (room + 1))
    assert abs(np.corrcoef(offsets.T)[0, 1]) < 0.05


def test_without_room_there_is_one_place() -> None:
    assert not random_offsets(5, np.zeros(9, dtype=int), np.arange(9), (0, 0)).any()


def test_an_offset_depends_on_nothing_but_its_own_image() -> None:
    epochs, ids = np.arange(30) % 3, np.arange(30) * 7
    together = random_offsets(1, epochs, ids, (64, 32))
    alone = [random_offsets(1, epochs[row : row + 1], ids[row : row + 1], (64, 32))[0] for row in range(30)]
    assert (together == np.array(alone)).all()
    assert (together != random_offsets(2, epochs, ids, (64, 32))).any()
    assert (together != random_offsets(1, epochs + 3, ids, (64, 32))).any()
