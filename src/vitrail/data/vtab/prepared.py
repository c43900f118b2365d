"""A task from data that a user prepared: whatever --data takes, with the labels of the task already."""

from pathlib import Path

from vitrail.data.open import OpenOptions, open_data
from vitrail.data.sources.files import shown
from vitrail.data.sources.splits import MissingSplit
from vitrail.data.vtab.pools import Pools, by_path, held_back, official
from vitrail.data.vtab.tasks import Task
from vitrail.errors import DataError

_WHOLE_PATH = 1000
_TRAIN_PERCENT = 80


def open_prepared(task: Task, data: str, root: Path, download: bool) -> tuple[Pools, str]:
    """Train and test, and val where there is one, else a fifth of train to choose on; and what was done, in words."""
    train = open_data(data, "train", options=OpenOptions(root=root, download=download))
    if len(train.classes) != task.classes or train.labels.is_multi:
        raise DataError(
            f"there are {len(train.classes):,} classes", wanted=f"{task.classes:,} for {task.name}", where=train.name
        )
    options = OpenOptions(root=root, download=download, classes=train.classes)
    test = by_path(open_data(data, "test", options=options), _WHOLE_PATH)
    learn = by_path(train, _WHOLE_PATH)
    try:
        val = by_path(open_data(data, "val", options=options), _WHOLE_PATH)
    except MissingSplit:
        cut = f"{_TRAIN_PERCENT} % and {100 - _TRAIN_PERCENT} % of train"
        return held_back(task.name, learn, _TRAIN_PERCENT, test), f"{cut} of {shown(data)}, which has no val"
    return official(task.name, learn, val, test), f"the parts of {shown(data)}"
