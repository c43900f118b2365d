"""Diabetic Retinopathy: Kaggle's tables of levels, and images that are preprocessed already.

VTAB takes them as the winner of the competition made them ("btgraham-300": the eye scaled to a radius of 300 pixels,
its local average subtracted, the rim cut off). That is done with OpenCV, whose filters we do not have, so not here.
"""

import csv
from pathlib import Path

import numpy as np

from vitrail.data.sources.files import Files, shown
from vitrail.data.sources.labels import Labels
from vitrail.data.vtab.pools import Listed, Pools, official
from vitrail.data.vtab.tasks import Task
from vitrail.errors import DataError

_NAMES = ("0 no disease", "1 mild", "2 moderate", "3 severe", "4 proliferative")


def open_retinopathy(task: Task, root: Path, download: bool) -> Pools:
    """To choose on are the images of the public leader board, to test on those of the private one."""
    home = root / "retinopathy"
    images = home / "btgraham-300"
    solution = home / "retinopathy_solution.csv"
    return official(
        task.name,
        _listed(task, "train", home / "trainLabels.csv", images / "train", None),
        _listed(task, "val", solution, images / "test", "Public"),
        _listed(task, "test", solution, images / "test", "Private"),
    )


def _listed(task: Task, split: str, table: Path, folder: Path, usage: str | None) -> Listed:
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.DictReader(file) if usage is None or row["Usage"] == usage]
        ids = [row["image"] for row in rows]
        levels = np.array([int(row["level"]) for row in rows], dtype=np.int64)
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        wanted = "the columns image and level" + (" and Usage" if usage else "")
        raise DataError(f"the table cannot be read ({error})", wanted=wanted, where=shown(str(table))) from None
    if len(levels) and not 0 <= levels.min() <= levels.max() < len(_NAMES):
        raise DataError(f"a level is {levels.min()} or {levels.max()}", wanted="0 to 4", where=shown(str(table)))
    labels = Labels.of(levels, len(_NAMES))
    return Listed(Files(task.name, split, _NAMES, labels, folder, [f"{name}.jpeg" for name in ids]), ids)
