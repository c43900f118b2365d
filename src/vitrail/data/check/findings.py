"""What a check found, as plain values: the summary, the JSON and the page all tell these."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Place:
    """One image and what it is said to show."""

    split: str
    index: int
    """Its place in the split."""
    path: str
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BadFile:
    """An image that cannot be used."""

    image: Place
    reason: str


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """Images that are copies of each other."""

    kind: Literal["exact", "near"]
    """Exact copies have equal pixels; near ones were re-encoded, resized or mirrored."""
    across_splits: bool
    """What is in training and in evaluation measures memory."""
    labels_differ: bool
    images: tuple[Place, ...]


@dataclass(frozen=True, kw_only=True)
class ClassCount:
    """How often a class occurs."""

    name: str
    images: dict[str, int]
    """By split."""


@dataclass(frozen=True, kw_only=True)
class ClassFault:
    """A class that training would stop at."""

    name: str
    split: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class SizeCell:
    """Images whose width and height lie in the quarter of an octave that begins here."""

    width: int
    height: int
    images: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Widths and heights in pixels, upright: smallest, median, largest."""

    width: tuple[int, int, int]
    height: tuple[int, int, int]
    cells: tuple[SizeCell, ...]


@dataclass(frozen=True, kw_only=True)
class StrangeName:
    """A file or folder whose name makes trouble on some system or in some program."""

    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that a check has to say about a data set."""

    data: str
    splits: dict[str, int]
    """Images of each split, bad ones included."""
    bad: tuple[BadFile, ...]
    exact: tuple[Duplicates, ...]
    near: tuple[Duplicates, ...] | None
    """None when near copies were not looked for."""
    classes: tuple[ClassCount, ...]
    """None where images have no labels."""
    class_faults: tuple[ClassFault, ...]
    sizes: Sizes | None
    """None when no image could be decoded."""
    formats: dict[str, int]
    several_frames: tuple[Place, ...]
    """Animations and multi-page files, of which the first frame is used."""
    strange_names: tuple[StrangeName, ...]
    notes: tuple[str, ...]

    @property
    def images(self) -> int:
        """Images in all splits."""
        return sum(self.splits.values())

    @property
    def across(self) -> tuple[Duplicates, ...]:
        """Copies in more than one split, exact ones first."""
        return tuple(group for group in (*self.exact, *(self.near or ())) if group.across_splits)

    @property
    def within(self) -> tuple[Duplicates, ...]:
        """Copies inside one split, exact ones first, without the conflicts."""
        groups = (*(group for group in self.exact if not group.labels_differ), *(self.near or ()))
        return tuple(group for group in groups if not group.across_splits)

    @property
    def conflicts(self) -> tuple[Duplicates, ...]:
        """Equal pixels that are said to show different things."""
        return tuple(group for group in self.exact if group.labels_differ)

    @property
    def has_problems(self) -> bool:
        """Whether training would stop, or its score would mislead."""
        return bool(self.bad or self.across or self.conflicts or self.class_faults)
