"""The pools of a task: what 800 images are learnt from, what 200 are chosen on, and all that is tested on."""

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from vitrail.data.sources.files import in_one_spelling
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.source import Source
from vitrail.data.sources.strings import Ids, Strings


@dataclass(frozen=True)
class Listed:
    """Images that have a name each: their ids, which are those of TFDS where it has some."""

    source: Source
    ids: Ids


@dataclass(frozen=True)
class Pools:
    """Indices into what is learnt from and into what is measured on, each in the order in which images are taken."""

    learn: Listed
    train: np.ndarray
    val: np.ndarray
    measured: Listed
    test: np.ndarray


def ordered(task: str, listed: Listed, among: np.ndarray | None = None) -> np.ndarray:
    """Indices by the SHA-256 of "vitrail-vtab:TASK:ID": a shuffle that anyone can repeat, in any language."""
    indices = range(len(listed.source)) if among is None else among.tolist()
    key = hashlib.sha256(f"vitrail-vtab:{task}:".encode())

    def digest(index: int) -> bytes:
        whole = key.copy()
        whole.update(listed.ids[index].encode("utf-8", "surrogateescape"))
        return whole.digest()

    return np.array(sorted(indices, key=digest), dtype=np.int64)


def official(task: str, train: Listed, val: Listed, test: Listed) -> Pools:
    """All three come from its authors."""
    learn = Listed(Joined([train.source, val.source], "train+val"), Strings([*train.ids, *val.ids]))
    whole = np.arange(len(learn.source))
    cut = len(train.source)
    return Pools(
        learn,
        ordered(task, learn, whole[:cut]),
        ordered(task, learn, whole[cut:]),
        test,
        np.arange(len(test.source)),
    )


def held_back(task: str, learn: Listed, percent: int, test: Listed) -> Pools:
    """`percent` of the official train to learn from, the rest to choose on."""
    order = ordered(task, learn)
    cut = percent * len(order) // 100
    return Pools(learn, order[:cut], order[cut:], test, np.arange(len(test.source)))


def shared_out(task: str, whole: Listed, train: int, val: int) -> Pools:
    """Percents of a data set that comes without splits; the rest is for testing."""
    order = ordered(task, whole)
    # Rounded up, which gives the numbers of VTAB for all of them.
    first, second = (math.ceil(percent * len(order) / 100) for percent in (train, train + val))
    return Pools(whole, order[:first], order[first:second], whole, np.sort(order[second:]))


def by_path(source: Source, parts: int = 1) -> Listed:
    """Files by the last parts of their paths; other images by split and place."""
    paths = getattr(source, "paths", None)
    if paths is None:
        return Listed(source, Strings(f"{source.split}_{index:05d}" for index in range(len(source))))
    return Listed(source, Strings("/".join(in_one_spelling(path).split("/")[-parts:]) for path in paths))
