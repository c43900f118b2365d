"""Parts of a split, such as "train[:98%]": the paper selects on training data that was held out, never on test."""

import re
from dataclasses import dataclass

import numpy as np

from vitrail.data.sources.source import Part, Source
from vitrail.data.sources.splits import canonical_split
from vitrail.errors import DataError, UsageError, setting
from vitrail.runtime.counter import permutation, uniforms

# One fixed key, so that "train[:98%]" means the same images in every run, whatever its seed.
_SEED = 2010_11929
_WITHIN_CLASS = 1
_BETWEEN_CLASSES = 2
_SHOWN = 3
_APART = f"{setting('data.copies', 'apart')} splits as if there were no copies"
_PATTERN = re.compile(r"(?P<split>[A-Za-z0-9_+]+)(\[(?P<start>\d{1,15}%?)?:(?P<stop>\d{1,15}%?)?\])?")


@dataclass(frozen=True)
class PartSpec:
    """A split and the part of it that is meant; the ends are counts, or shares with a percent sign, or open."""

    split: str
    start: str | None = None
    stop: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all of the split is meant."""
        return self.start is None and self.stop is None

    def cuts(self, length: int) -> bool:
        """Whether some of so many images are left out."""
        return (_position(self.start, length, 0), _position(self.stop, length, length)) != (0, length)

    def __str__(self) -> str:
        return self.split if self.is_whole else f"{self.split}[{self.start or ''}:{self.stop or ''}]"


def parse_part(text: str) -> PartSpec:
    """Read "train", "train[:98%]", "train[98%:]" or "train[:1000]"."""
    match = _PATTERN.fullmatch(text.strip())
    if not match:
        raise UsageError(f"the split is {text!r}", wanted="a name, or a part such as 'train[:98%]' or 'train[98%:]'")
    part = PartSpec(match["split"], match["start"], match["stop"])
    for end in (part.start, part.stop):
        if end and end.endswith("%") and int(end[:-1]) > 100:
            raise UsageError(f"the split is {text!r}", wanted="at most 100%")
    return part


def splits_of(text: str) -> set[str]:
    """The splits that images are taken from: "train+validation[:90%]" is of train and val."""
    return {canonical_split(name) for name in parse_part(text).split.split("+")}


def take_part(source: Source, part: PartSpec, copies: np.ndarray | None = None, notes: tuple[str, ...] = ()) -> Source:
    """The images of a part: a stretch of an order in which every class is spread evenly.

    So any beginning holds every class in proportion (give or take one image, or a few of a class that outweighs many
    others), two parts that meet share no image, and the same text means the same images everywhere. Of images that
    share a number of `copies` either all are in a part or none: its ends move to where no group is cut.
    """
    if part.is_whole:
        return source
    order = spread_order(source, copies)
    ends = _position(part.start, len(source), 0), _position(part.stop, len(source), len(source))
    start, stop = (_uncut(order, copies, end) for end in ends)
    if start >= stop:
        is_of_copies = ends[0] < ends[1]
        raise DataError(
            f"{part} is empty: {len(source)} images, from {ends[0]} to {ends[1]}"
            + (", all of them copies of images outside, and copies are kept on one side" if is_of_copies else ""),
            wanted="at least one image",
            where=source.name,
            fix=f"Name a larger part; a run with {_APART}." if is_of_copies else "",
        )
    # Kept in the order of the whole, so that reading goes along the disk.
    return Part(source, np.sort(order[start:stop]), str(part), notes)


def hold_out(
    source: Source, share: float, copies: np.ndarray | None = None, notes: tuple[str, ...] = ()
) -> tuple[Source, Source]:
    """Split into (the rest, a held-out share); a class that would have nothing left to learn from is an error.

    Images that share a number of `copies` stay on one side.
    """
    if not 0 < share < 1:
        raise UsageError(f"the held-out share is {share}", wanted="between 0 and 1")
    order = spread_order(source, copies)
    cut = _uncut(order, copies, len(source) - max(1, round(share * len(source))))
    if cut == len(source):
        raise DataError(
            f"all {len(source):,} images are copies of one",
            wanted="two or more different images to hold some out",
            where=source.name,
            fix=f"Measure on a val/ folder of your own; {_APART}.",
        )
    counts = source.labels.counts()
    alone = np.flatnonzero(counts == 1)
    if not source.labels.is_multi and len(alone):
        raise DataError(
            f"the class {source.classes[int(alone[0])]!r} has one image, so it cannot be both learnt and measured",
            wanted="two or more images per class to hold some out",
            where=source.name,
            fix="Add images, or measure on a val/ folder of your own.",
        )
    name = f"{100 * share:g}%"
    rest = Part(source, np.sort(order[:cut]), f"{source.split} without {name}", notes)
    unlearnt = np.flatnonzero((counts > 0) & (rest.labels.counts() == 0))
    if not source.labels.is_multi and len(unlearnt):
        bound = _with_copies(source, int(unlearnt[0]), copies)
        shown = f"{', '.join(map(source.where, bound[:_SHOWN]))}{', ...' if len(bound) > _SHOWN else ''}"
        raise DataError(
            f"holding out {name} leaves no image of the class {source.classes[int(unlearnt[0])]!r} to learn from",
            wanted="a smaller share",
            where=source.name,
            fix=f"Some of its images have copies that are kept with them ({shown}); {_APART}." if len(bound) else "",
        )
    return rest, Part(source, np.sort(order[cut:]), f"{source.split}, held-out {name}", notes)


def _with_copies(source: Source, number: int, copies: np.ndarray | None) -> list[int]:
    """The images of a class that others are kept together with."""
    if copies is None:
        return []
    return np.flatnonzero((source.labels.values == number) & (np.bincount(copies)[copies] > 1)).tolist()


def spread_order(source: Source, copies: np.ndarray | None = None) -> np.ndarray:
    """An order of the images whose every stretch is balanced: the k-th of a class's n images stands at (k + u) / n.

    Images that share a number of `copies` (the place of the first of them) stand side by side, where that one stands;
    more than half of a class stands in front, where it is learnt from, and so does some of a class that has only copies
    of images of others. Without copies they change nothing.
    """
    everything = np.arange(len(source))
    groups = everything if copies is None else copies
    shuffled = permutation(_SEED, _WITHIN_CLASS, 0, len(source))
    firsts = shuffled[groups[shuffled] == shuffled]
    if not source.labels.is_multi:
        firsts = firsts[np.argsort(_places(source, firsts, groups), kind="stable")]
    place = np.empty(len(source), dtype=np.int64)
    place[firsts] = np.arange(len(firsts))
    return np.argsort(place[groups], kind="stable")


def _places(source: Source, firsts: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Where each group stands among those of its class, from 0 to 1; the first image says which class that is."""
    labels, sizes = source.labels.values, np.bincount(groups)[firsts]
    classes = labels[firsts]
    counts = np.bincount(classes, sizes, minlength=source.labels.num_classes).astype(np.int64)
    is_most = (sizes > 1) & (2 * sizes > counts[classes])
    for number in np.flatnonzero((source.labels.counts() > 0) & (counts == 0)):
        is_most |= firsts == np.bincount(groups[labels == number]).argmax()
    by_class = np.lexsort((~is_most, classes))
    before = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rank = np.empty(len(firsts), dtype=np.int64)
    rank[by_class] = np.cumsum(sizes[by_class]) - sizes[by_class] - before[classes[by_class]]
    offset = uniforms(_SEED, _BETWEEN_CLASSES, 0, np.arange(source.labels.num_classes), 1)[:, 0]
    return np.where(is_most, 0, (rank + offset[classes] * sizes) / counts[classes])


def _uncut(order: np.ndarray, copies: np.ndarray | None, at: int) -> int:
    """The place nearest to `at`, but neither end, where an order can be cut without cutting a group of copies."""
    if copies is None or at in (0, len(order)):
        return at
    inner = np.flatnonzero(np.diff(copies[order])) + 1
    return int(inner[np.abs(inner - at).argmin()]) if len(inner) else len(order)


def evenly(count: int, most: int) -> np.ndarray:
    """So many places of a source as are wanted, evenly spread over it; all of them when there are no more."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).round().astype(np.int64)


def without(source: Source, dropped: list[int], why: str) -> Source:
    """The source without some images; the note says how many and why."""
    kept = np.setdiff1d(np.arange(len(source)), np.asarray(dropped, dtype=np.int64))
    gone = len(source) - len(kept)
    return Part(source, kept, source.split, notes=(f"{gone:,} of {len(source):,} images left out: {why}.",))


def _position(end: str | None, length: int, default: int) -> int:
    if end is None:
        return default
    return int(end[:-1]) * length // 100 if end.endswith("%") else min(int(end), length)
