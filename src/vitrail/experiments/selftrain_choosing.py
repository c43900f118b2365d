"""Which of the images that a teacher labelled are learnt from (Xie et al., 2020, section 3.1)."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from vitrail.config.checks import positive
from vitrail.errors import UsageError, choose

Kind = Literal["soft", "hard"]

# The paper takes 130,000. Each has a place in memory, and more would be a slip.
_MOST_PER_CLASS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What becomes of the teacher's answers."""

    labels: Kind = "soft"
    """What a student learns of an image: how likely the teacher finds every class (soft), or its first guess (hard)."""
    threshold: float = 0.3
    """Images of whose class the teacher is less sure than this are left out."""
    balance: bool = True
    """As many images of each class: the surest ones of a frequent class, those of a rare one several times."""
    per_class: int | None = None
    """How many of each; if not said, what a class in the middle of all has."""

    def __post_init__(self) -> None:
        choose("kind of labels", self.labels, get_args(Kind))
        if not 0 <= self.threshold < 1:
            raise UsageError(f"threshold is {self.threshold}", wanted="a probability from 0 up to 1")
        if self.per_class is not None:
            positive("per_class", self.per_class, at_most=_MOST_PER_CLASS)
            if not self.balance:
                raise UsageError("per_class is given and balance is off", wanted="one of them")


def choose_images(guesses: np.ndarray, confidence: np.ndarray, classes: int, choice: Choice) -> np.ndarray:
    """Places of the images to learn from, in rising order; one that stands there twice is learnt from twice.

    Without a number, a balanced class gets what the class in the middle of those that have images has: the whole then
    stays about as large as what the teacher is sure of, however uneven the classes are.
    """
    sure = np.flatnonzero(confidence >= choice.threshold)
    if not choice.balance or not len(sure):
        return sure
    # Class by class, the surest first, and of equals the first.
    sure = sure[np.lexsort((-confidence[sure], guesses[sure]))]
    counts = np.bincount(guesses[sure], minlength=classes)
    wanted = choice.per_class or middle(counts)
    groups = np.split(sure, np.cumsum(counts)[:-1])
    return np.sort(np.concatenate([np.resize(group, wanted) for group in groups if len(group)]))


def middle(counts: np.ndarray) -> int:
    """The median of the classes that have images, from below."""
    there = np.sort(counts[counts > 0])
    return int(there[(len(there) - 1) // 2])
