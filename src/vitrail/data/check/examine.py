"""Put together what is known of every image and say what is wrong with the data set."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from vitrail.config.decoding import DecodePolicy
from vitrail.data.check.duplicates import exact_groups, near_groups
from vitrail.data.check.findings import (
    BadFile,
    ClassCount,
    ClassFault,
    Duplicates,
    Findings,
    Place,
    SizeCell,
    Sizes,
    StrangeName,
)
from vitrail.data.check.names import strange_names
from vitrail.data.check.origin import files_of
from vitrail.data.check.pool import Advance
from vitrail.data.check.scan import FORMAT_NAMES, Scan, scan
from vitrail.data.sources.files import shown
from vitrail.data.sources.source import Source
from vitrail.errors import UsageError

_TRAIN = "train"
_UNEVEN = 10


def check(
    splits: dict[str, Source],
    *,
    policy: DecodePolicy | None = None,
    workers: int | None = None,
    near: bool = True,
    allow_empty: bool = False,
    labelled: bool = True,
    advance: Advance | None = None,
) -> Findings:
    """Decode all splits of a data set and tell what is wrong; bad files are findings, never errors.

    Of images that are not `labelled`, nothing is said about classes.
    """
    if not splits:
        raise UsageError("there are no splits to check")
    sources = list(splits.values())
    scans = scan(sources, policy=policy or DecodePolicy(), workers=workers, looks=near, advance=advance)
    everything = _Everything(splits, scans, labelled)
    records = np.concatenate([one.records for one in scans])
    good = np.flatnonzero(records["good"])
    decoded = records[good]
    exact = exact_groups(decoded)
    exact_found = everything.duplicates("exact", good, exact)
    alike = near_groups(decoded, exact) if near else None
    near_found = everything.near_duplicates(good, exact, alike.groups) if alike else None
    classes = _classes(splits) if labelled else ()
    return Findings(
        data=sources[0].name,
        splits={name: len(source) for name, source in splits.items()},
        bad=tuple(everything.bad()),
        exact=exact_found,
        near=near_found,
        classes=classes,
        class_faults=tuple(_class_faults(splits, classes, allow_empty)),
        sizes=_sizes(decoded),
        formats={FORMAT_NAMES[kind]: count for kind, count in Counter(decoded["format"].tolist()).most_common()},
        several_frames=tuple(map(everything.place, np.flatnonzero(records["frames"] > 1).tolist())),
        strange_names=tuple(_strange_names(splits)),
        notes=(*_notes(splits, classes), *(alike.notes if alike else ())),
    )


class _Everything:
    """The images of all splits in one row."""

    def __init__(self, splits: dict[str, Source], scans: list[Scan], labelled: bool) -> None:
        self._splits, self._scans, self._labelled = list(splits.items()), scans, labelled
        self._starts = np.cumsum([0, *(len(source) for source in splits.values())])

    def split_of(self, numbers: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._starts, numbers, side="right") - 1

    def place(self, number: int) -> Place:
        split = int(self.split_of(np.asarray(number)))
        name, source = self._splits[split]
        index = number - int(self._starts[split])
        labels = tuple(source.classes[one] for one in source.labels.classes_of(index) if self._labelled)
        return Place(split=name, index=index, path=source.where(index), labels=labels)

    def bad(self) -> Iterator[BadFile]:
        for start, one in zip(self._starts.tolist(), self._scans, strict=False):
            for index, reason in sorted(one.reasons.items()):
                yield BadFile(image=self.place(start + index), reason=reason)

    def duplicates(self, kind: str, images: np.ndarray, groups: np.ndarray) -> tuple[Duplicates, ...]:
        """Groups of two or more, those across splits first."""
        found = [self._group(kind, images[members]) for members in _members(groups)]
        return tuple(sorted(found, key=lambda group: not group.across_splits))

    def near_duplicates(self, images: np.ndarray, exact: np.ndarray, near: np.ndarray) -> tuple[Duplicates, ...]:
        """Groups in which not all pixels are equal; the others are told as exact already."""
        several = np.zeros(len(near), bool)
        for members in _members(near):
            several[members] = len(np.unique(exact[members])) > 1
        return self.duplicates("near", images[several], near[several])

    def _group(self, kind: str, numbers: np.ndarray) -> Duplicates:
        places = tuple(map(self.place, numbers.tolist()))
        return Duplicates(
            kind="exact" if kind == "exact" else "near",
            across_splits=len({place.split for place in places}) > 1,
            labels_differ=len({frozenset(place.labels) for place in places}) > 1,
            images=places,
        )


def _members(groups: np.ndarray) -> list[np.ndarray]:
    """Places of the members of each group of two or more, groups in the order of their first member."""
    order = np.argsort(groups, kind="stable")
    runs = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    return sorted((run for run in runs if len(run) > 1), key=lambda run: int(run[0]))


def _classes(splits: dict[str, Source]) -> tuple[ClassCount, ...]:
    """Counts by name: splits that were opened apart may number their classes differently."""
    images: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(splits, 0))
    for split, source in splits.items():
        for name, count in zip(source.classes, source.labels.counts().tolist(), strict=True):
            images[name][split] = count
    return tuple(ClassCount(name=name, images=counts) for name, counts in images.items())


def _class_faults(
    splits: dict[str, Source], classes: tuple[ClassCount, ...], allow_empty: bool
) -> Iterator[ClassFault]:
    if _TRAIN not in splits:
        return
    known = set(splits[_TRAIN].classes)
    for one in classes:
        if one.name not in known:
            split = next(split for split, source in splits.items() if one.name in source.classes)
            yield ClassFault(name=one.name, split=split, reason=f"is not a class of {_TRAIN}")
        elif not one.images[_TRAIN] and not allow_empty:
            yield ClassFault(name=one.name, split=_TRAIN, reason="has no images")


def _notes(splits: dict[str, Source], classes: tuple[ClassCount, ...]) -> Iterator[str]:
    yield from dict.fromkeys(note for source in splits.values() for note in source.notes)
    if not classes:
        return
    home, source = next(iter(splits.items()))
    if not source.labels.is_multi and len(source.classes) == 1:
        yield f"there is one class, {source.classes[0]!r}: nothing to tell apart."
    counts = {one.name: one.images[home] for one in classes if one.images[home]}
    alone = [name for name, count in counts.items() if count == 1]
    if alone and len(splits) == 1:
        yield f"{_classes_named(alone)} one image in {home}: it cannot be both learnt and measured."
    if counts and max(counts.values()) >= _UNEVEN * min(counts.values()):
        most, least = (choice(counts, key=counts.__getitem__) for choice in (max, min))
        yield f"{home} is uneven: {counts[most]:,} images of {most!r}, {counts[least]:,} of {least!r}."
    known = set(source.classes)
    for split in splits:
        absent = [one.name for one in classes if not one.images[split] and one.name in known]
        if absent and split != _TRAIN:
            yield f"{_classes_named(absent)} no image in {split}."


def _classes_named(names: list[str]) -> str:
    few = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"the class {few} has" if len(names) == 1 else f"{len(names)} classes ({few}) have"


def _sizes(records: np.ndarray) -> Sizes | None:
    if not len(records):
        return None
    width, height = records["width"].astype(np.int64), records["height"].astype(np.int64)
    # A quarter of an octave tells 224 from 256 and keeps the number of cells small.
    corners = np.stack([np.floor(4 * np.log2(side)).astype(np.int64) for side in (width, height)], axis=1)
    cells, counts = np.unique(corners, axis=0, return_counts=True)
    begins = np.ceil(2.0 ** (cells / 4)).astype(np.int64)
    return Sizes(
        width=_three(width),
        height=_three(height),
        cells=tuple(
            SizeCell(width=int(begin[0]), height=int(begin[1]), images=int(count))
            for begin, count in zip(begins, counts, strict=True)
        ),
    )


def _three(sides: np.ndarray) -> tuple[int, int, int]:
    return int(sides.min()), int(np.median(sides)), int(sides.max())


def _strange_names(splits: dict[str, Source]) -> Iterator[StrangeName]:
    paths: list[str] = []
    for source in splits.values():
        found = files_of(source)
        if found:
            files, indices = found
            paths += [files.paths[int(index)] for index in indices]
    for path, reason in strange_names(dict.fromkeys(paths)):
        yield StrangeName(path=shown(path), reason=reason)
