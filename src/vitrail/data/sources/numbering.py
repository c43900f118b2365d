"""From labels as they are written, names or numbers, to class numbers."""

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from vitrail.config.checks import MAX_WIDTH
from vitrail.data.sources.folder import in_order
from vitrail.errors import DataError

Label = int | str


def number_classes(
    labels: Sequence[Label], train: Iterable[Label], names: tuple[str, ...] | None, where: str
) -> tuple[tuple[str, ...], np.ndarray]:
    """The class names, and the class number of each of the distinct `labels` of a split.

    Names that are given count, and numbers point to them; else numbers are class numbers already where training has
    numbers, and names are sorted over the training split. A label that training does not know is an error, never
    another class.
    """
    here, known = [_plain(label) for label in labels], {_plain(label) for label in train} or set(map(_plain, labels))
    classes = names if names is not None else _classes_of(known, where)
    numbers: dict[Label, int] = {name: number for number, name in enumerate(classes)}
    are_numbered = names is not None or all(isinstance(label, int) for label in known)
    mapping = []
    for label in here:
        if isinstance(label, int) and not are_numbered:
            raise DataError(
                f"the label {label} is a number, and training has names such as {classes[0]!r}, without numbers",
                wanted="class names in every split",
                where=where,
            )
        number = label if isinstance(label, int) else numbers.get(label, -1)
        if not 0 <= number < len(classes):
            few = ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
            raise DataError(
                f"the class {label!r} is not one of the {len(classes)} known ones",
                wanted=f"classes among {few}, or their numbers",
                where=where,
            )
        mapping.append(number)
    return classes, np.asarray(mapping, dtype=np.int64)


def by_name(labels: Sequence[Label], names: tuple[str, ...] | None, where: str) -> list[Label]:
    """The labels of a split with the names that the split itself gives its numbers, where it gives any."""
    if names is None:
        return list(labels)
    beyond = [label for label in labels if isinstance(label, int) and not 0 <= label < len(names)]
    if beyond:
        raise DataError(f"a label is {beyond[0]}", wanted=f"0 to {len(names) - 1}, as there are names", where=where)
    return [names[label] if isinstance(label, int) else label for label in labels]


def _classes_of(known: set[Label], where: str) -> tuple[str, ...]:
    words = [label for label in known if isinstance(label, str)]
    numbers = [label for label in known if isinstance(label, int)]
    if words and numbers:
        raise DataError(
            f"some labels are numbers ({numbers[0]}) and some are names ({words[0]!r})",
            wanted="one kind",
            where=where,
        )
    if words or not numbers:
        return in_order(words)
    # One wrong number must not make a million classes.
    if max(numbers) >= MAX_WIDTH:
        raise DataError(f"a label is {max(numbers):,}", wanted=f"class numbers below {MAX_WIDTH:,}", where=where)
    return tuple(str(number) for number in range(max(numbers) + 1))


def _plain(label: Label) -> Label:
    return unicodedata.normalize("NFC", label) if isinstance(label, str) else int(label)
