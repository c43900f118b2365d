"""A few images as the network was given them, with what it says about each."""

from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
from torch import Tensor

from vitrail.config import Preprocessing
from vitrail.reports.as_seen import as_seen
from vitrail.reports.glyphs import FIRST_FONT, Naming, font_of, one_line

_ONE_PERCENT = 0.01
# Two names and more have to fit below a pair of pictures, and a file below one.
_LONGEST_NAME, _LONGEST_FILE = 16, 24


@dataclass(frozen=True)
class Shown:
    """Images that are drawn."""

    images: Tensor
    """What the network is fed: normalised, (batch, channels, height, width)."""
    preprocessing: Preprocessing
    names: tuple[str, ...]
    """Where a person finds each."""
    guesses: np.ndarray | None
    """The class that the network takes each for; none where it has no head."""
    confidence: np.ndarray | None
    """How sure it is of that."""
    labels: tuple[str, ...] | None
    """Names of the classes of the network."""
    truths: tuple[int, ...] | None = None
    """The class that each shows, where that is known."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def pictures(self) -> np.ndarray:
        """The same in colours 0 .. 1, (batch, height, width, 3)."""
        return as_seen(self.images, self.preprocessing)

    def named(self) -> dict[int, str]:
        """The names of the classes that are guessed or shown, where there are some."""
        if self.labels is None or self.guesses is None:
            return {}
        return {int(number): self.labels[number] for number in (*self.guesses, *(self.truths or ()))}

    def answer(self, place: int, naming: Naming) -> str:
        """The guess for one image, beside what it is where the two differ, for people."""
        if self.guesses is None or self.confidence is None:
            return ""
        guess, sure = int(self.guesses[place]), float(self.confidence[place])
        share = f"{sure:.0%}" if sure >= _ONE_PERCENT else f"{sure:.1%}"
        if self.truths is None or self.truths[place] == guess:
            return f"{naming(guess)}, {share}"
        return f"is {_cut(naming(self.truths[place]))}, taken for {_cut(naming(guess))}, {share}"

    def guess(self, place: int, naming: Naming) -> str:
        """What the network takes one image for, short."""
        return "" if self.guesses is None else _cut(naming(int(self.guesses[place])))

    def file(self, place: int) -> str:
        """The name of an image in a drawing, its end where it is long; its number where our font lacks a letter."""
        name = one_line(PurePath(self.names[place]).name)
        if not name or any(font_of(letter) != FIRST_FONT for letter in name if not letter.isspace()):
            return f"image {place + 1}"
        return name if len(name) <= _LONGEST_FILE else f"…{name[1 - _LONGEST_FILE :]}"

    def facts(self) -> list[dict[str, object]]:
        """One record for each image."""
        return [self._fact(place) for place in range(len(self))]

    def _fact(self, place: int) -> dict[str, object]:
        name = self.names[place]
        found: dict[str, object] = {"image": name, "file": PurePath(name).name}
        guess = None if self.guesses is None else int(self.guesses[place])
        sure = None if self.confidence is None else float(self.confidence[place])
        label = None if guess is None or self.labels is None else self.labels[guess]
        found |= {"guess": guess, "label": label, "probability": sure}
        return found if self.truths is None else {**found, "truth": self.truths[place]}


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
