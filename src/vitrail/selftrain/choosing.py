"""Which of the images that a teacher labelled are learnt from (Xie et al., 2020, section 3.1)."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from vitrail.config.checks import positive
from vitrail.errors import UsageError, choose

Kind = Literal["soft", "hard"]


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
            positive("per_class", self.per_class, at_most=2**40)
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
    # The surest first, and of equals the first.
    sure = sure[np.argsort(-confidence[sure], kind="stable")]
    counts = np.bincount(guesses[sure], minlength=classes)
    wanted = choice.per_class or middle(counts)
    groups = [sure[guesses[sure] == number] for number in np.flatnonzero(counts)]
    return np.sort(np.concatenate([np.resize(group, wanted) for group in groups]))


def middle(counts: np.ndarray) -> int:
    """The median of the classes that have images, from below."""
    there = np.sort(counts[counts > 0])
    return int(there[(len(there) - 1) // 2])
