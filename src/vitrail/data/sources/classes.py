"""Class names decide, never class numbers."""

import copy
from collections.abc import Sequence

import numpy as np

from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Source
from vitrail.errors import DataError


def with_classes(source: Source, classes: tuple[str, ...]) -> Source:
    """The same images numbered by another list of class names, such as a model's; an unknown name is an error."""
    if source.classes == classes:
        return source
    numbers = {name: number for number, name in enumerate(classes)}
    present = np.flatnonzero(source.labels.counts())
    for number in present:
        name = source.classes[int(number)]
        if name not in numbers:
            few = ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
            raise DataError(
                f"the class {name!r} is not one of the {len(classes)} known ones",
                wanted=f"classes among {few}",
                where=f"{source.name}, {source.split}",
                fix="Rename it in the data, or use a model that knows it.",
            )
    # Names that no image carries may be unknown; they map to nothing.
    return renumbered(source, classes, [numbers.get(name, -1) for name in source.classes])


def renumbered(source: Source, classes: tuple[str, ...], numbers: Sequence[int]) -> Source:
    """The same images under other classes: `numbers` is what each old class is among them, -1 for none."""
    mapping = np.array(numbers, dtype=np.int64)
    other = copy.copy(source)
    other.classes = classes
    labels = source.labels
    shares = None if labels.shares is None else _with_columns(labels.shares, mapping, len(classes))
    other.labels = Labels(mapping[labels.values], len(classes), labels.offsets, shares)
    return other


def _with_columns(shares: np.ndarray, mapping: np.ndarray, classes: int) -> np.ndarray:
    """The same shares in the columns of other class numbers."""
    moved = np.zeros((len(shares), classes), shares.dtype)
    known = mapping >= 0
    moved[:, mapping[known]] = shares[:, known]
    return moved


def ensure_trainable(source: Source) -> None:
    """Refuse what no classifier can learn from: no images, or a single class."""
    if not len(source):
        raise DataError("there are no images", wanted="at least one per class", where=f"{source.name}, {source.split}")
    if len(source.classes) < 2 and not source.labels.is_multi:
        raise DataError(
            f"there is one class, {', '.join(map(repr, source.classes))}",
            wanted="two or more to tell apart",
            where=source.name,
            fix="Add a folder with images of something else.",
        )
