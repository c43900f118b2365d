"""Rows that are kept of images: whatever lies there, nothing is worse than to make them again."""

import numpy as np
import pytest

from vitrail.data.check.kept import load_rows, store_rows

KIND = np.dtype([("image", np.uint64), ("value", np.uint32)])


def test_rows_come_back(tmp_path) -> None:
    rows = np.array([(7, 1), (9, 2)], KIND)
    store_rows(tmp_path / "kept.npy", rows, "not kept")
    assert np.array_equal(load_rows(tmp_path / "kept.npy", KIND), rows)


@pytest.mark.parametrize("damage", ["nothing", "archive", "zip", "cut", "pickle", "other"])
def test_what_is_damaged_is_made_again(damage, tmp_path) -> None:
    cache = tmp_path / "kept.npy"
    store_rows(cache, np.array([(7, 1)], KIND), "not kept")
    match damage:
        case "nothing":
            cache.write_bytes(b"")
        case "archive":
            with cache.open("wb") as file:
                np.savez(file, rows=np.zeros(3))
        case "zip":
            cache.write_bytes(b"PK\3\4garbage")
        case "cut":
            cache.write_bytes(cache.read_bytes()[:-3])
        case "pickle":
            np.save(cache, np.array([{}], object), allow_pickle=True)
        case "other":
            np.save(cache, np.zeros(3))
    assert len(load_rows(cache, KIND)) == 0
