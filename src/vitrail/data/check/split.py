"""A suggested split that keeps copies together and classes in proportion."""

import csv
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitrail.data.check.findings import Findings
from vitrail.data.check.origin import files_of
from vitrail.data.sources.files import Files
from vitrail.data.sources.source import Source
from vitrail.data.sources.splits import SPLITS
from vitrail.errors import DataError, UsageError, setting
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.counter import permutation

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
# One fixed key: the same data gets the same suggestion.
_SEED, _PURPOSE = 2010_11929, 3
_BETWEEN_LABELS = "|"
# Stands for the class of images that show none.
_NONE = ""

Image = tuple[str, int]
"""A split and a place in it."""


@dataclass(frozen=True)
class Suggestion:
    """A split for every image that can be used."""

    splits: dict[Image, str]
    moved: int
    """Images that leave the split they are in."""

    def counts(self) -> dict[str, int]:
        """Images per split."""
        found = Counter(self.splits.values())
        return {split: found[split] for split in SPLITS if found[split]}


def suggest_split(
    splits: dict[str, Source],
    findings: Findings,
    *,
    without: Collection[Image] = (),
    shares: dict[str, float] | None = None,
) -> Suggestion:
    """Say where each good image should be; images of classes that training does not know are left out too.

    A data set with several splits keeps them: only copies that are in more than one move, all to the last of train, val
    and test that holds one, so that test stays complete, or to the first where training would lose a class. A single
    split is divided by `shares`, copies together and each class in proportion as far as its copies allow; a class with
    at least two different pictures is in the first two parts.
    """
    unusable = {(one.image.split, one.image.index) for one in findings.bad} | set(without)
    home = next(iter(splits))
    strangers = {fault.name for fault in findings.class_faults if fault.split != home}
    labels = {
        image: names
        for split, source in splits.items()
        for image, names in _labels(split, source)
        if image not in unusable and not strangers & set(names)
    }
    groups = _groups(list(labels), findings)
    if len(splits) > 1:
        chosen = _without_leaks(list(splits), groups, labels)
    else:
        chosen = _divided(groups, labels, shares or SHARES)
    return Suggestion(chosen, sum(split != suggested for (split, _), suggested in chosen.items()))


def write_split(path: Path, splits: dict[str, Source], suggestion: Suggestion) -> None:
    """Write a CSV that `--data` opens; paths are relative to its folder."""
    is_multi = any(source.labels.is_multi for source in splits.values())
    base = path.resolve().parent
    rows = []
    for image, file in _paths(splits):
        if image in suggestion.splits:
            split, index = image
            labels = [splits[split].classes[number] for number in splits[split].labels.classes_of(index)]
            for name in labels:
                _ensure_kept(name, is_multi)
            label = _BETWEEN_LABELS.join(labels)
            rows.append((os.path.relpath(file, base), label, suggestion.splits[image]))
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "labels" if is_multi else "label", "split"))
        writer.writerows(rows)


def nameless(splits: dict[str, Source]) -> set[Image]:
    """Images that a table cannot name: their paths are not UTF-8."""
    return {image for image, file in _paths(splits) if not _is_text(str(file))}


def ensure_files(splits: dict[str, Source]) -> dict[str, tuple[Files, np.ndarray]]:
    """The files of each split; a table of paths cannot be written of anything else."""
    found = {}
    for split, source in splits.items():
        files = files_of(source)
        if files is None:
            raise UsageError(
                f"{source.name} is not made of image files",
                wanted=f"files for {setting('write_split')} to name",
                fix="Use a part such as 'train[:90%]' instead.",
            )
        found[split] = files
    return found


def _paths(splits: dict[str, Source]) -> Iterator[tuple[Image, Path]]:
    for split, (files, places) in ensure_files(splits).items():
        for index, place in enumerate(places.tolist()):
            yield (split, index), files.path(place).absolute()


def _groups(images: list[Image], findings: Findings) -> list[list[Image]]:
    """Copies together, everything else by itself; near groups hold the exact ones they touch."""
    copies: dict[Image, int] = {}
    for number, group in enumerate((*findings.exact, *(findings.near or ()))):
        # Near groups come last and take over.
        copies |= {(place.split, place.index): number for place in group.images}
    together: dict[int, list[Image]] = defaultdict(list)
    groups: list[list[Image]] = []
    for image in images:
        if image in copies:
            together[copies[image]].append(image)
        else:
            groups.append([image])
    return [*together.values(), *groups]


def _labels(split: str, source: Source) -> Iterator[tuple[Image, tuple[str, ...]]]:
    for index in range(len(source)):
        yield (split, index), tuple(source.classes[number] for number in source.labels.classes_of(index))


def _without_leaks(
    order: list[str], groups: list[list[Image]], labels: dict[Image, tuple[str, ...]]
) -> dict[Image, str]:
    home, place = order[0], {split: number for number, split in enumerate(order)}
    learnt = Counter(name for (split, index), names in labels.items() if split == home for name in names)
    chosen: dict[Image, str] = {}
    for group in groups:
        target = max((split for split, _ in group), key=place.__getitem__)
        leaving = Counter(name for image in group if image[0] == home for name in labels[image])
        if target != home and any(learnt[name] <= many for name, many in leaving.items()):
            target = home
        elif target != home:
            learnt.subtract(leaving)
        chosen |= dict.fromkeys(group, target)
    return chosen


def _divided(
    groups: list[list[Image]], labels: dict[Image, tuple[str, ...]], shares: dict[str, float]
) -> dict[Image, str]:
    """Small groups first, each to a later part that still lacks its classes; the first part takes the rest."""
    shuffled = [groups[place] for place in permutation(_SEED, _PURPOSE, 0, len(groups)).tolist()]
    needs = {id(group): Counter(name for image in group for name in labels[image] or (_NONE,)) for group in groups}
    left = Counter(name for group in groups for name in needs[id(group)])
    first, *others = shares
    images = Counter(name for need in needs.values() for name in need.elements())
    lacking = _wanted(images, left, {split: shares[split] for split in others})
    learnt: set[str] = set()
    chosen: dict[Image, str] = {}
    for group in sorted(shuffled, key=len):
        need = needs[id(group)]
        gains = {split: sum(max(0, lacking[split][name]) for name in need) for split in others}
        last_chance = any(left[name] == 1 and name not in learnt for name in need)
        split = first if last_chance or not any(gains.values()) else max(gains, key=gains.__getitem__)
        if split == first:
            learnt |= set(need)
        else:
            lacking[split].subtract(need)
        left.subtract(set(need))
        chosen |= dict.fromkeys(group, split)
    return chosen


def _wanted(images: Counter[str], groups: Counter[str], shares: dict[str, float]) -> dict[str, Counter[str]]:
    """Images of each class for the later parts: a share, and at least one as long as there are groups to give."""
    return {
        split: Counter({name: max(1, round(share * many)) for name, many in images.items() if groups[name] > place})
        for place, (split, share) in enumerate(shares.items(), start=1)
    }


def _ensure_kept(label: str, is_multi: bool) -> None:
    """Refuse a class whose name a table would give back as another."""
    if is_multi and _BETWEEN_LABELS in label:
        raise DataError(f"the class {label!r} holds {_BETWEEN_LABELS!r}, which stands between labels in a table")
    if unicodedata.normalize("NFC", label).strip() != label:
        raise DataError(
            f"the class {label!r} begins or ends with a space, which a table does not keep", fix="Rename the class."
        )


def _is_text(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
