"""CLEVR: how many objects a scene has, and how far the closest one is."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.data.sources.files import Files, shown, state_of
from vitrail.data.sources.labels import Labels
from vitrail.data.vtab.pools import Listed, Pools, held_back
from vitrail.data.vtab.tasks import Task
from vitrail.data.vtab.thresholds import class_of_distance
from vitrail.errors import DataError

_FEWEST, _MOST = 3, 10
_THRESHOLDS = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
_TRAIN_PERCENT = 90
_NAMES = {
    "clevr-count": tuple(f"{count} objects" for count in range(_FEWEST, _MOST + 1)),
    "clevr-distance": ("up to 8", "8 to 8.5", "8.5 to 9", "9 to 9.5", "9.5 to 10", "more than 10"),
}
Scene = tuple[str, int, float]
"""File name, number of objects, depth of the closest."""


def open_clevr(task: Task, root: Path, download: bool) -> Pools:
    """The labelled scenes are train and val; those of the official test have no labels."""
    home = root / "clevr" / "CLEVR_v1.0"
    train, val = (_listed(task, home, split) for split in ("train", "val"))
    return held_back("clevr", train, _TRAIN_PERCENT, val)


def _listed(task: Task, home: Path, split: str) -> Listed:
    path = home / "scenes" / f"CLEVR_{split}_scenes.json"
    try:
        found = scenes(str(path), state_of(path.stat()))
    except OSError as error:
        raise DataError(f"the file could not be read ({error.strerror})", where=shown(str(path))) from None
    counting = task.name == "clevr-count"
    numbers = [
        _count(count, f"{path.name}, {name}") if counting else class_of_distance(depth, _THRESHOLDS, name)
        for name, count, depth in found
    ]
    names = _NAMES[task.name]
    if max(numbers, default=0) >= len(names):
        raise DataError(f"an object is more than {_THRESHOLDS[-1]:g} away", where=shown(str(path)))
    labels = Labels.of(np.array(numbers, dtype=np.int64), len(names))
    files = Files(task.name, split, names, labels, home / "images" / split, [name for name, _, _ in found])
    return Listed(files, [name for name, _, _ in found])


def _count(count: int, where: str) -> int:
    if not _FEWEST <= count <= _MOST:
        raise DataError(f"the scene has {count} objects", wanted=f"{_FEWEST} to {_MOST}", where=where)
    return count - _FEWEST


@lru_cache(maxsize=2)
def scenes(path: str, state: tuple[int, ...]) -> tuple[Scene, ...]:
    """What the scenes file says, in the order of the file names; `state` is that of the file, which may change."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            found: list[dict[str, Any]] = json.load(file)["scenes"]
        read = (
            (
                str(scene["image_filename"]),
                len(scene["objects"]),
                min((float(thing["pixel_coords"][2]) for thing in scene["objects"]), default=0.0),
            )
            for scene in found
        )
        return tuple(sorted(read))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"[:120]
        raise DataError(
            f"the scenes cannot be read ({reason})",
            wanted='{"scenes": [{"image_filename": ..., "objects": [{"pixel_coords": [x, y, depth]}]}]}',
            where=shown(path),
        ) from None
