"""Which 800, 200 and how many images a task uses: by our rule, or by lists that somebody brings."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitrail.data.sources.files import shown
from vitrail.data.vtab.pools import Listed, Pools
from vitrail.data.vtab.tasks import Task
from vitrail.errors import DataError

FORMAT = "vitrail-vtab-split/1"
LEARN, SELECT = 800, 200
NAMES = {"train": "train800", "val": "val200", "train+val": "train1000", "test": "test"}
"""The splits that can be opened, and what VTAB calls them."""
RULE = (
    "The ids of each pool are ordered by the SHA-256 of 'vitrail-vtab:NAME:ID'; the first 800 to learn from and the "
    "first 200 to choose on are taken, and all of the pool for testing."
)


@dataclass(frozen=True)
class Split:
    """The images of a task; `origin` is "own split" or the list that says so."""

    task: str
    origin: str
    learn: Listed
    train: np.ndarray
    val: np.ndarray
    measured: Listed
    test: np.ndarray

    def ids(self) -> dict[str, list[str]]:
        """The ids of each part, in the order in which they are taken."""
        return {
            "train800": [self.learn.ids[index] for index in self.train.tolist()],
            "val200": [self.learn.ids[index] for index in self.val.tolist()],
            "test": [self.measured.ids[index] for index in self.test.tolist()],
        }

    def record(self) -> dict[str, object]:
        """What is stored: the ids and their hash. It is taken as a list, so that others can use the same images."""
        ids = self.ids()
        own = self.origin == "own split"
        return {"format": FORMAT, "task": self.task, "origin": self.origin, **({"rule": RULE} if own else {}),
                "sha256": digest(ids), **ids}  # fmt: skip


def digest(ids: dict[str, list[str]]) -> str:
    """The hash of a split: names and ids, a line each."""
    lines = [line for name, part in ids.items() for line in (f"[{name}]", *part)]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def own_split(task: Task, pools: Pools) -> Split:
    """The split by our rule."""
    train, val = pools.train[:LEARN], pools.val[:SELECT]
    return Split(task.name, "own split", pools.learn, train, val, pools.measured, pools.test)


def listed_split(task: Task, pools: Pools, lists: dict[str, list[str]], where: str) -> Split:
    """The split that lists name; where none says what to test on, the rest of the pool for testing."""
    train, val = (_found(pools.learn, lists[name], name, where) for name in ("train800", "val200"))
    test = _found(pools.measured, lists["test"], "test", where) if "test" in lists else pools.test
    learnt = np.concatenate([train, val])
    if len(np.unique(learnt)) < len(learnt):
        raise DataError("an image is named twice in train800 and val200", wanted="each once", where=where)
    if pools.learn.source is pools.measured.source:
        shared = np.intersect1d(learnt, test)
        if len(shared) and "test" in lists:
            name = pools.learn.ids[int(shared[0])]
            raise DataError(f"{name!r} is learnt from and tested on", wanted="one of both", where=where)
        test = np.setdiff1d(test, shared)
    return Split(task.name, where, pools.learn, train, val, pools.measured, test)


def find_lists(task: Task, root: Path) -> tuple[dict[str, list[str]], str] | None:
    """Lists in vtab/TASK.json, or in vtab/TASK.train800.txt, .val200.txt and perhaps .test.txt, below the root."""
    home = root / "vtab"
    whole = home / f"{task.name}.json"
    texts = {name: home / f"{task.name}.{name}.txt" for name in ("train800", "val200", "test")}
    if whole.is_file():
        return _of_json(whole), shown(str(whole))
    if not texts["train800"].is_file() and not texts["val200"].is_file():
        return None
    found = {}
    for name, path in texts.items():
        if path.is_file() or name != "test":
            found[name] = [line.strip() for line in _text(path).splitlines() if line.strip()]
    return found, shown(str(texts["train800"]))


def _of_json(path: Path) -> dict[str, list[str]]:
    try:
        values = json.loads(_text(path))
        lists = {name: values[name] for name in ("train800", "val200", "test") if name != "test" or name in values}
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DataError(f"the lists cannot be read ({error})", wanted=_LISTS, where=shown(str(path))) from None
    if not all(isinstance(part, list) and all(isinstance(name, str) for name in part) for part in lists.values()):
        raise DataError("a list holds something else than ids", wanted=_LISTS, where=shown(str(path)))
    return lists


_LISTS = '{"train800": [ids], "val200": [ids], "test": [ids, if not all]}'


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the list could not be read ({error})", where=shown(str(path))) from None


def _found(listed: Listed, names: list[str], part: str, where: str) -> np.ndarray:
    places = {name: index for index, name in enumerate(listed.ids)}
    indices = []
    for name in names:
        if (index := places.get(name.removeprefix("/"))) is None:
            like = listed.ids[0] if len(listed.ids) else "none"
            raise DataError(f"there is no image {name!r} ({part})", wanted=f"ids such as {like!r}", where=where)
        indices.append(index)
    if not indices or len(set(indices)) < len(indices):
        raise DataError(f"{part} is empty or names an image twice", wanted="each once", where=where)
    return np.array(indices, dtype=np.int64)
