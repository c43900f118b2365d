import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from vitrail.errors import UsageError
from vitrail.weights import resize_positions


def zoomed(table: np.ndarray, old: tuple[int, int], new: tuple[int, int], prefix: int) -> np.ndarray:
    """The original's rule, scipy's zoom of order 1, applied per axis."""
    grid = table[prefix:].reshape(*old, -1)
    moved = ndimage.zoom(grid, (new[0] / old[0], new[1] / old[1], 1), order=1)
    return np.concatenate([table[:prefix], moved.reshape(new[0] * new[1], -1)])


@pytest.mark.parametrize("size", [12, 7])
def test_equals_the_originals_function(size, fixtures) -> None:
    folder = fixtures / "posemb_resize"
    resized = resize_positions(np.load(folder / "in_cls_8x8.npy"), (8, 8), (size, size))
    np.testing.assert_allclose(resized, np.load(folder / f"out_cls_{size}x{size}.npy"), rtol=0, atol=5e-6)


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize(
    ("old", "new"), [((14, 14), (24, 24)), ((14, 14), (7, 28)), ((14, 14), (7, 7)), ((2, 8), (4, 4)), ((3, 5), (1, 9))]
)
def test_equals_scipys_zoom_per_axis(old, new, prefix) -> None:
    table = np.random.default_rng(0).normal(size=(prefix + old[0] * old[1], 6)).astype(np.float32)
    resized = resize_positions(torch.from_numpy(table), old, new, prefix=prefix)
    assert resized.dtype == torch.float32
    np.testing.assert_allclose(resized.numpy(), zoomed(table, old, new, prefix), rtol=0, atol=1e-6)


sides = st.integers(1, 12)


@given(old=st.tuples(sides, sides), new=st.tuples(sides, sides), prefix=st.integers(0, 3), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_any_grid_to_any_other(old, new, prefix, seed) -> None:
    table = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, prefix + old[0] * old[1], 3)))
    resized = resize_positions(table, old, new, prefix=prefix)
    assert resized.shape == (1, prefix + new[0] * new[1], 3)
    assert torch.equal(resized[:, :prefix], table[:, :prefix])
    np.testing.assert_allclose(resized[0].numpy(), zoomed(table[0].numpy(), old, new, prefix), rtol=0, atol=1e-9)
    grid, back = table[0, prefix:].reshape(*old, 3), resized[0, prefix:].reshape(*new, 3)
    torch.testing.assert_close(back[0, 0], grid[0, 0])
    if min(*old, *new) > 1:
        torch.testing.assert_close(back[-1, -1], grid[-1, -1])


def test_equal_counts_on_different_grids_are_still_resampled() -> None:
    table = torch.randn(1 + 14 * 14, 4)
    assert not torch.equal(resize_positions(table, (14, 14), (7, 28)), table)


def test_the_same_grid_is_returned_untouched() -> None:
    table = torch.randn(10, 4)
    assert resize_positions(table, 3, 3) is table


@pytest.mark.parametrize("table", [torch.zeros(10, 4), torch.zeros(196), torch.zeros(1, 1, 197, 4)])
def test_a_table_that_does_not_fit_its_grid_is_refused(table) -> None:
    with pytest.raises(UsageError, match="wanted 1 prefix rows and 196 rows for a 14x14 grid"):
        resize_positions(table, 14, 24)


def test_unknown_mode_is_suggested() -> None:
    with pytest.raises(UsageError, match=r"Unknown resize mode 'gogle'\. Did you mean 'google'\?"):
        resize_positions(torch.zeros(10, 4), 3, 4, mode="gogle")
