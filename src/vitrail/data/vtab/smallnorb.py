"""Small NORB: from which side and from how high a toy is seen, in the binary matrices of its authors."""

import struct
from pathlib import Path

import numpy as np

from vitrail.data.sources.files import shown
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.slices import Slices, Stretches
from vitrail.data.sources.strings import Strings
from vitrail.data.vtab.pools import Listed, Pools, ordered
from vitrail.data.vtab.tasks import Task
from vitrail.errors import DataError

_KINDS = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
# Columns of the info matrix: instance, elevation (0 to 8), azimuth (0 to 34 in steps of 2), lighting.
_ATTRIBUTES = {"snorb-elevation": (1, 1), "snorb-azimuth": (2, 2)}
_NAMES = {
    "snorb-elevation": tuple(f"{30 + 5 * number} degrees" for number in range(9)),
    "snorb-azimuth": tuple(f"{20 * number} degrees" for number in range(18)),
}


def open_smallnorb(task: Task, root: Path, download: bool) -> Pools:
    """To learn from is the official train; one half of the official test is to choose on, the other to test on."""
    home = root / "smallnorb"
    parts = {"train": ("46789", "training"), "test": ("01235", "testing")}
    stems = {split: f"smallnorb-5x{objects}x9x18x6x2x96x96-{part}" for split, (objects, part) in parts.items()}
    files = [home / f"{stem}-dat.mat" for stem in stems.values()]
    places = [_images(path) for path in files]
    column, step = _ATTRIBUTES[task.name]
    numbers = [read_matrix(home / f"{stem}-info.mat")[:, column] // step for stem in stems.values()]
    for path, (starts, _), labels in zip(files, places, numbers, strict=True):
        if len(starts) != len(labels):
            came = f"{len(starts):,} images and {len(labels):,} labels"
            raise DataError(came, wanted="as many", where=shown(str(path)))
    counts = [len(labels) for labels in numbers]
    labels = np.concatenate(numbers).astype(np.int64)
    names = _NAMES[task.name]
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        came = f"the labels go from {labels.min()} to {labels.max()}"
        raise DataError(came, wanted=f"0 to {len(names) - 1}", where=shown(str(home)))
    shape = places[0][1]
    stretches = Stretches(
        files=tuple(map(str, files)),
        file=np.repeat([0, 1], counts),
        start=np.concatenate([starts for starts, _ in places]),
        size=np.full(sum(counts), shape[0] * shape[1], dtype=np.int64),
        shape=shape,
    )
    ids = Strings(f"{split}_{index:05d}" for split, count in zip(parts, counts, strict=True) for index in range(count))
    whole = Listed(Slices(task.name, "all", names, Labels.of(labels, len(names)), stretches, ids), ids)
    everything = np.arange(sum(counts))
    order = ordered("smallnorb", whole, everything[counts[0] :])
    half = len(order) // 2
    train = ordered("smallnorb", whole, everything[: counts[0]])
    return Pools(whole, train, order[:half], whole, np.sort(order[half:]))


def _images(path: Path) -> tuple[np.ndarray, tuple[int, int]]:
    """Where the first image of every pair begins, and height and width."""
    kind, shape, start = _header(path)
    if len(shape) != 4 or shape[1] != 2 or kind != np.uint8:
        raise DataError(f"the matrix is {kind} {shape}", wanted="bytes (images, 2, 96, 96)", where=shown(str(path)))
    pair = shape[1] * shape[2] * shape[3]
    if path.stat().st_size < start + shape[0] * pair:
        raise DataError("the file is cut off", where=shown(str(path)))
    return start + np.arange(shape[0], dtype=np.int64) * pair, (shape[2], shape[3])


def read_matrix(path: Path) -> np.ndarray:
    """A whole matrix: a magic number, the rank, at least three sizes, then the values, all with the low byte first."""
    kind, shape, start = _header(path)
    values = np.fromfile(path, kind, offset=start)
    if len(values) < np.prod(shape) or len(shape) != 2 or shape[1] < 4:
        came = f"the matrix is cut off, or its shape is {shape}"
        raise DataError(came, wanted="(images, 4)", where=shown(str(path)))
    return values[: np.prod(shape)].reshape(shape)


def _header(path: Path) -> tuple[np.dtype, tuple[int, ...], int]:
    try:
        with path.open("rb") as file:
            magic, rank = struct.unpack("<II", file.read(8))
            sizes = struct.unpack(f"<{max(3, rank)}i", file.read(4 * max(3, rank))) if rank <= 8 else ()
    except (OSError, struct.error) as error:
        raise DataError(f"the file cannot be read ({error})", where=shown(str(path))) from None
    if magic not in _KINDS or not sizes:
        raise DataError(
            "this is no matrix of small NORB",
            where=shown(str(path)),
            fix="Unpack the .mat.gz with gunzip.",
        )
    return _KINDS[magic], sizes[:rank], 8 + 4 * len(sizes)
