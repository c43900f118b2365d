"""What a self-training found: the teacher and its students on the same images, and how right the taught labels were."""

import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.config import from_json, to_json
from vitrail.data import OpenOptions, open_data
from vitrail.data.sources.source import whole_of
from vitrail.data.sources.taught import Lesson, TaughtRecord
from vitrail.errors import DataError, Notice, VitrailError
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text

FORMAT = "vitrail-selftrain-result/1"


@dataclass(frozen=True, kw_only=True)
class Score:
    """How often a model is right on some images."""

    accuracy: float
    images: int

    def __post_init__(self) -> None:
        if not (0 <= self.accuracy <= 1 and self.images > 0):
            raise DataError(
                f"the accuracy is {self.accuracy} of {self.images} images",
                wanted="a share from 0 to 1 of one image or more",
            )


@dataclass(frozen=True, kw_only=True)
class Taught:
    """What a student was taught."""

    offered: int
    """Images that the teacher labelled."""
    images: int
    """Those that were learnt from, each counted once."""
    copies: int
    """The same with every repetition."""
    sure: int | None = None
    """Images of which the teacher was sure enough; not known of what an older version taught."""
    unseen: tuple[str, ...] = ()
    """Classes of which no image was taught."""
    only: str | None = None
    """The one class that all of them are said to have, where there is no other."""
    right: Score | None = None
    """How many of the labels are the true ones, where those are known: looked at afterwards, and used for nothing."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """The teacher, or the student of a round."""

    name: str
    fingerprint: str = ""
    held_out: Score | None = None
    test: Score | None = None
    taught: Taught | None = None
    """None for the teacher."""
    seconds: float | None = None
    """Of training."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """`selftrain.json`."""

    format: str = FORMAT
    teacher: Model
    students: tuple[Model, ...]
    """One for each round that has come to its end."""

    @property
    def accuracy(self) -> float | None:
        """That of the last student, on test images where there are some."""
        last = self.students[-1] if self.students else self.teacher
        score = last.test or last.held_out
        return None if score is None else score.accuracy


def score_of(metrics: Any) -> Score | None:
    """What a model folder says of some images."""
    return None if not metrics else Score(accuracy=metrics["accuracy"], images=metrics["images"])


def with_truth(taught: Taught, record: TaughtRecord, lesson: Lesson) -> Taught:
    """Compare what was taught with the labels of the unlabelled images, where their source has them after all."""
    truth = _truth(record, lesson)
    known = truth >= 0
    if not known.any():
        return taught
    # Each image once, however often it was learnt from.
    _, first = np.unique(lesson.taught, return_index=True)
    first = first[known[first]]
    right = float((truth[first] == lesson.classes[first]).mean())
    return replace(taught, right=Score(accuracy=right, images=len(first)))


def _truth(record: TaughtRecord, lesson: Lesson) -> np.ndarray:
    """The true class of each taught image; -1 where it is not known."""
    unknown = np.full(len(lesson.taught), -1)
    origin = record.unlabelled
    options = OpenOptions(root=Path(origin.root) if origin.root else None, allow_empty=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Notice)
            blind = whole_of(open_data(origin.data, origin.split, options=replace(options, labelled=False)))
            seen = whole_of(open_data(origin.data, origin.split, options=options))
    except VitrailError:
        return unknown
    # A folder that was read as plain images may put them in another order than as classes.
    is_same = len(seen) == len(blind) and all(
        seen.where(place) == blind.where(place) for place in map(int, lesson.taught)
    )
    if seen.labels.is_multi or not is_same:
        return unknown
    numbers = {name: number for number, name in enumerate(record.classes)}
    names = np.array([numbers.get(name, -1) for name in seen.classes])
    return names[seen.labels.values[lesson.taught]]


def write_result(path: Path, result: Result) -> None:
    """Write `selftrain.json`, whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(json_text(to_json(result), indent=2) + "\n", encoding="utf-8")


def read_result(path: Path) -> Result:
    """Read `selftrain.json`."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", where=str(path)) from None
    result = from_json(Result, values, where=str(path))
    if result.format != FORMAT:
        raise DataError(f"the format is {result.format!r}", wanted=repr(FORMAT), where=str(path))
    return result
