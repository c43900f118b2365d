"""Random erasing: how often, how much, and nothing but the rectangle."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from vitrail.data.transforms.erasing import draw_rectangles, erase

COUNT = 5000


def rectangles(
    share: float = 1.0, size: tuple[int, int] = (224, 224), *, seed: int = 0, count: int = COUNT
) -> np.ndarray:
    return draw_rectangles(seed, np.zeros(count, dtype=int), np.arange(count), share, size)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_the_share_of_images_that_lose_something(share) -> None:
    drawn = rectangles(share)
    erased = (drawn[:, 2:] > 0).all(1)
    assert abs(erased.mean() - share) <= 4 * np.sqrt(share * (1 - share) / COUNT)
    assert not drawn[~erased].any()


def test_who_is_erased_does_not_change_where() -> None:
    """A larger share erases the same rectangles and more."""
    some, all_of_them = rectangles(0.3), rectangles(1.0)
    erased = some.any(1)
    assert (some[erased] == all_of_them[erased]).all()


@pytest.mark.parametrize("size", [(224, 224), (32, 32), (64, 200)])
def test_area_and_aspect_are_those_of_the_paper(size) -> None:
    height, width = rectangles(size=size)[:, 2:].T.astype(float)
    total = size[0] * size[1]
    # Half a pixel on each side, and what is longer than the image is cut off.
    slack = 0.5 * (height + width) + 0.25
    assert (height * width <= total / 3 + slack).all()
    free = (height < size[0]) & (width < size[1])
    assert (height * width >= 0.02 * total - slack)[free].all()
    assert ((height + 0.5) / (width - 0.5) >= 0.3)[free].all()
    assert ((height - 0.5) / (width + 0.5) <= 1 / 0.3)[free].all()


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_areas_are_uniform_and_aspects_are_in_their_logarithm(share) -> None:
    side = 100_000
    drawn = rectangles(share, (side, side))[:, 2:].astype(float)
    height, width = drawn[drawn.any(1)].T
    # Below 0.3 no side is longer than the image, so that none is cut off.
    small = height * width < 0.29 * side * side
    area = (height * width / side**2)[small]
    assert kstest((area - 0.02) / 0.27, "uniform").pvalue > 1e-3
    aspect = np.log(height / width)[small]
    assert kstest((aspect - np.log(0.3)) / (2 * np.log(1 / 0.3)), "uniform").pvalue > 1e-3


@given(
    size=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    seed=st.integers(0, 2**64 - 1),
    share=st.floats(0, 1),
)
def test_a_rectangle_never_leaves_the_image(size, seed, share) -> None:
    drawn = rectangles(share, size, seed=seed, count=50)
    assert drawn.dtype == np.int64
    assert (drawn >= 0).all()
    assert (drawn[:, 0] + drawn[:, 2] <= size[0]).all()
    assert (drawn[:, 1] + drawn[:, 3] <= size[1]).all()


def test_every_place_is_as_likely_as_another() -> None:
    top, left, height, width = rectangles(size=(10_000, 10_000)).T
    for corner, length in ((top, height), (left, width)):
        movable = length < 9000
        assert kstest(corner[movable] / (10_000 - length[movable]), "uniform").pvalue > 1e-3


def test_a_rectangle_depends_on_nothing_but_its_own_image() -> None:
    epochs, ids = np.arange(40) % 4, np.arange(40) * 13
    together = draw_rectangles(2, epochs, ids, 0.5, (32, 32))
    alone = [draw_rectangles(2, epochs[row : row + 1], ids[row : row + 1], 0.5, (32, 32))[0] for row in range(40)]
    assert (together == np.array(alone)).all()
    for other in (
        draw_rectangles(3, epochs, ids, 0.5, (32, 32)),
        draw_rectangles(2, epochs + 4, ids, 0.5, (32, 32)),
        draw_rectangles(2, epochs, ids + 1, 0.5, (32, 32)),
    ):
        assert (together != other).any(1).sum() > 20


def test_exactly_the_rectangle_becomes_zero() -> None:
    generator = np.random.default_rng(0)
    images = torch.from_numpy(generator.normal(size=(64, 3, 20, 28)).astype(np.float32))
    drawn = rectangles(0.7, (20, 28), count=64)
    expected = images.clone()
    for image, (top, left, height, width) in zip(expected, drawn, strict=True):
        image[:, top : top + height, left : left + width] = 0
    assert (expected != images).any()
    assert erase(images, drawn) is images
    assert torch.equal(images, expected)


def test_zeros_erase_nothing_and_a_full_rectangle_everything() -> None:
    images = torch.ones(2, 1, 4, 5)
    erased = erase(images, np.array([[0, 0, 0, 0], [0, 0, 4, 5]]))
    assert erased[0].all()
    assert not erased[1].any()
