"""What is kept of images from one call to the next: rows of an array, each found by the identity of its image."""

from pathlib import Path

import numpy as np

from vitrail.data.check.origin import UNKNOWN
from vitrail.errors import DiskError, marked, notice
from vitrail.runtime.atomic import atomic_file


def load_rows(cache: Path, kind: np.dtype) -> np.ndarray:
    """The rows of a file; none where it is missing or damaged, which only means that they are made again."""
    try:
        with cache.open("rb") as file:
            # Not `np.load`, which takes archives and more for what they are.
            rows = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return np.empty(0, kind)
    return rows if rows.dtype == kind and rows.ndim == 1 else np.empty(0, kind)


def store_rows(cache: Path, rows: np.ndarray, otherwise: str) -> None:
    """Keep one row of each image of which something is known; `otherwise` is said where the disk does not take them."""
    rows = rows[rows["image"] != UNKNOWN]
    if not len(rows):
        return
    try:
        with atomic_file(cache) as temporary:
            np.save(temporary, rows[np.unique(rows["image"], return_index=True)[1]], allow_pickle=False)
    except DiskError as error:
        notice(f"{otherwise}: {marked(error)}")


def rows_of(images: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The row of each image, by identity; zeros, and so no identity, where there is none."""
    found = np.zeros(len(images), rows.dtype)
    if len(rows):
        order = np.argsort(rows["image"])
        at = order[np.searchsorted(rows["image"], images, sorter=order).clip(max=len(rows) - 1)]
        same = (rows["image"][at] == images) & (images != UNKNOWN)
        found[same] = rows[at[same]]
    return found
