"""An archive is refused by what it says of itself, before anything is unpacked."""

import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from vitrail.runtime.archives import MOST_TIMES, SMALL, Disproportionate, open_npz


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small array beside one of zeros, which shrinks a thousand times."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.npz"
    np.savez_compressed(path, small=np.arange(5), large=np.zeros(SMALL + 1, np.uint8))
    assert path.stat().st_size < SMALL / 500
    return path


def test_much_more_than_it_holds(bomb) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Disproportionate, match=f"more than {MOST_TIMES} times"):
            open_npz(bomb)
        assert tracemalloc.get_traced_memory()[1] < SMALL / 10
    finally:
        tracemalloc.stop()


def test_a_part_of_it_that_is_small(bomb) -> None:
    with open_npz(bomb, only=["small"]) as arrays:
        assert arrays["small"].tolist() == [0, 1, 2, 3, 4]


def test_compressed_numbers_and_small_archives(tmp_path) -> None:
    numbers = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    np.savez_compressed(tmp_path / "good.npz", numbers=numbers, zeros=np.zeros(10**6, np.uint8))
    with open_npz(tmp_path / "good.npz") as arrays:
        np.testing.assert_array_equal(arrays["numbers"], numbers)
        assert not arrays["zeros"].any()


def test_what_is_no_archive(tmp_path) -> None:
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(zipfile.BadZipFile):
        open_npz(tmp_path / "one.npy")
