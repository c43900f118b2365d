"""The 1,000 outputs of networks trained on ImageNet-1k, in the order of the WordNet numbers, by all their names."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# WordNet has one word for the bird and the machine, and one for two swimsuits; torchvision tells them apart like this.
_TOLD_APART = {134: "crane bird", 639: "maillot tank suit"}
_WORDNET = re.compile(r"(n\d{8})(?:[ _-].*)?")


@dataclass(frozen=True)
class _Names:
    """The classes by what they may be called; each name may stand for several."""

    ids: tuple[str, ...]
    """WordNet numbers, by class."""
    shown: tuple[str, ...]
    """As torchvision names them, by class."""
    first: dict[str, frozenset[int]]
    """By the name that WordNet puts first, or torchvision's."""
    all: dict[str, frozenset[int]]
    """By any of WordNet's names."""
    folded: dict[str, frozenset[int]]
    """The same, whatever the case, and with spaces for hyphens."""


def imagenet_classes() -> tuple[str, ...]:
    """The names as torchvision has them."""
    return _names().shown


def imagenet_ids() -> tuple[str, ...]:
    """The WordNet numbers, such as n01440764."""
    return _names().ids


def imagenet_numbers(name: str) -> frozenset[int]:
    """The classes that a name may mean: a WordNet number, one of WordNet's names, or several of one class with commas.

    Underscores are spaces. The first name of a class goes before a further name of another, such as harp.
    """
    known, text = _names(), _plain(name)
    if identity := _WORDNET.fullmatch(text):
        return frozenset({known.ids.index(identity[1])} if identity[1] in known.ids else ())
    for names, spelled in ((known.first, text), (known.all, text), (known.folded, _folded(text))):
        if spelled in names:
            return names[spelled]
    parts = [known.folded.get(_folded(part.strip()), frozenset[int]()) for part in text.split(",")]
    return frozenset.intersection(*parts)


def imagenet_namesakes(name: str) -> frozenset[int]:
    """All classes that bear a name, first or further, whatever its case."""
    return _names().folded.get(_folded(_plain(name))) or imagenet_numbers(name)


def is_imagenet(labels: Sequence[str]) -> bool:
    """Whether these names are those of the classes, in their order."""
    return len(labels) == len(_names().ids) and all(
        number in imagenet_numbers(label) for number, label in enumerate(labels)
    )


@cache
def _names() -> _Names:
    text = files("vitrail.zoo").joinpath("imagenet_classes.txt").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    shown = tuple(_TOLD_APART.get(number, row[1]) for number, row in enumerate(rows))
    places = range(len(rows))
    return _Names(
        ids=tuple(row[0] for row in rows),
        shown=shown,
        first=_by_name((name, number) for number in places for name in (shown[number], rows[number][1])),
        all=_by_name((name, number) for number in places for name in rows[number][1:]),
        folded=_by_name((_folded(name), number) for number in places for name in (shown[number], *rows[number][1:])),
    )


def _by_name(pairs: Iterable[tuple[str, int]]) -> dict[str, frozenset[int]]:
    found: defaultdict[str, set[int]] = defaultdict(set)
    for name, number in pairs:
        found[name].add(number)
    return {name: frozenset(numbers) for name, numbers in found.items()}


def _plain(name: str) -> str:
    return " ".join(unicodedata.normalize("NFC", name).replace("_", " ").split())


def _folded(name: str) -> str:
    return name.casefold().replace("-", " ")
