"""A task of VTAB-1k as a source: `vtab:oxford-pets`, or `vtab:dtd=hf:owner/name` for data from elsewhere."""

import os
from pathlib import Path

import numpy as np

from vitrail.data.sources.files import shown, user_path
from vitrail.data.sources.source import Part, Source
from vitrail.data.sources.splits import MissingSplit
from vitrail.data.vtab.pools import Pools
from vitrail.data.vtab.split import LEARN, NAMES, SELECT, Split, find_lists, listed_split, own_split
from vitrail.data.vtab.tasks import TASKS, Task
from vitrail.errors import DataError, choose, notice, setting
from vitrail.runtime.cache import cache_folder


def open_task(text: str, split: str, *, root: Path | None = None, download: bool = False) -> Source:
    """Open train (800 images), val (200), train+val (the 1,000 of the final run) or test (all of it)."""
    if split not in NAMES:
        ways = ", ".join(f"{ours} ({theirs})" for ours, theirs in NAMES.items())
        raise MissingSplit(f"there is no {split!r} part; it has {ways}", where=f"vtab:{text}", fix="Ask for 'train'.")
    found, notes = task_split(text, root=root, download=download)
    for note in notes:
        notice(note)
    chosen = {
        "train": found.train,
        "val": found.val,
        "train+val": np.concatenate([found.train, found.val]),
        "test": found.test,
    }[split]
    listed = found.measured if split == "test" else found.learn
    part = Part(listed.source, chosen, NAMES[split], notes=notes)
    part.name = f"vtab:{text}"
    return part


def task_split(text: str, *, root: Path | None = None, download: bool = False) -> tuple[Split, tuple[str, ...]]:
    """Which images a task uses, and what is to be told of them."""
    task, given = parse_task(text)
    place = data_root(root)
    data = given or prepared(task, place)
    pools, origin = _pools(task, data, place, download)
    lists = find_lists(task, place)
    found = own_split(task, pools) if lists is None else listed_split(task, pools, *lists)
    if len(pools.learn.source.classes) != task.classes:
        raise DataError(
            f"there are {len(pools.learn.source.classes):,} classes",
            wanted=f"{task.classes:,}",
            where=f"vtab:{text}, {shown(str(place))}",
        )
    if not len(found.train) or not len(found.val) or not len(found.test):
        came = f"{len(found.train)} images to learn from, {len(found.val)} to choose on, {len(found.test)} to test on"
        raise DataError(came, wanted="some of each", where=f"vtab:{text}, {shown(str(place))}")
    return found, _notes(task, text, origin, pools, found)


def parse_task(text: str) -> tuple[Task, str]:
    """A task, and where its images come from if that was said."""
    name, _, given = text.partition("=")
    return TASKS[choose("VTAB task", name, TASKS)], given


def data_root(root: Path | None) -> Path:
    """Where data is looked for: `root`, else $VITRAIL_DATA, else the cache."""
    return user_path(root or Path(os.environ.get("VITRAIL_DATA") or cache_folder("datasets")))


def prepared(task: Task, root: Path) -> str:
    """What a user prepared for a task: vtab/TASK as a folder, a .csv or a .parquet below the root; else nothing."""
    ways = [root / "vtab" / f"{task.name}{ending}" for ending in ("", ".csv", ".tsv", ".parquet")]
    return next((str(path) for path in ways if path.exists()), "")


def missing_files(task: Task, root: Path) -> list[str]:
    """The files that are wanted and not there, as paths; none when the task can be opened."""
    if prepared(task, root):
        return []
    return [shown(str(root / pattern)) for pattern in task.files if next(root.glob(pattern), None) is None]


def _pools(task: Task, data: str, root: Path, download: bool) -> tuple[Pools, str]:
    """The pools, and how they were cut, in words."""
    if data:
        from vitrail.data.vtab.prepared import open_prepared

        return open_prepared(task, data, root, download)
    from vitrail.data.vtab.readers import READERS

    can_download = download and task.can_download
    if not can_download and (missing := missing_files(task, root)):
        fetch = f", which {setting('data.download', True)} fetches" if task.can_download else ""
        raise DataError(
            f"{task.column} is not there",
            wanted=", ".join(missing),
            where=f"vtab:{task.name}",
            fix=f"It comes from {task.origin}{fetch}. Say with {setting('data_root')} where it is, or put a folder of "
            f"train/, val/ and test/ with class folders at {shown(str(root / 'vtab' / task.name))}.",
        )
    return READERS[task.name](task, root, can_download), f"the pools of VTAB ({task.pools})"


def _notes(task: Task, text: str, origin: str, pools: Pools, found: Split) -> tuple[str, ...]:
    notes = []
    if found.origin == "own split":
        notes.append(
            f"vtab:{text} is our own split, because VTAB's depends on the order of TFDS: the first images by the "
            f"SHA-256 of their ids in {origin}."
        )
    else:
        notes.append(f"vtab:{text}: the split is that of {found.origin}.")
    here = len(pools.train), len(pools.val), len(pools.test)
    if here != task.images and found.origin == "own split":
        notes.append(
            f"vtab:{text}: {_three(here)} images are here to learn from, to choose on and to test on, of "
            f"{_three(task.images)}."
        )
    if (len(found.train), len(found.val)) != (LEARN, SELECT):
        notes.append(f"vtab:{text}: {len(found.train)} + {len(found.val)} images are used, of {LEARN} + {SELECT}.")
    return tuple(notes)


def _three(counts: tuple[int, int, int]) -> str:
    return f"{counts[0]:,}, {counts[1]:,} and {counts[2]:,}"
