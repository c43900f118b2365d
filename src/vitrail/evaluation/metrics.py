"""Numbers from predictions, each with the count of images behind it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitrail.evaluation.classify import Predictions


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """How often the first guess, or one of five, is right."""

    images: int
    """How many were counted."""
    accuracy: float
    """Share whose first guess is right."""
    top5: float | None = None
    """Share with a right one among five guesses, or among all classes where there are fewer; none of hidden patches."""
    loss: float
    """Mean cross-entropy."""

    def record(self) -> dict[str, Any]:
        """As it is written down: what it does not have is not there."""
        return {name: value for name, value in vars(self).items() if value is not None}


def measure(predictions: Predictions) -> Metrics:
    """Accuracy and loss over all images."""
    return Metrics(
        images=len(predictions),
        accuracy=float(predictions.right[:, 0].mean()),
        top5=float(predictions.right.any(axis=1).mean()),
        loss=float(predictions.losses.astype(np.float64).mean()),
    )


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of some images, and what that says about others like them."""

    right: int
    images: int
    """How many were counted."""
    share: float
    low: float
    """Where the 95 % interval begins."""
    high: float
    """Where it ends."""


def share_of(right: int, images: int) -> Share:
    """A count as a share with its 95 % interval."""
    low, high = interval(right, images)
    return Share(right=right, images=images, share=right / images, low=low, high=high)


def interval(right: int, images: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927): where the true one lies, were these images drawn at random.

    `(p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n)` with z = 1.96.
    """
    share, z = right / images, 1.959964
    middle = share + z * z / (2 * images)
    half = z * math.sqrt(share * (1 - share) / images + z * z / (4 * images * images))
    whole = 1 + z * z / images
    # The ends are exact, which rounding would miss by a hair.
    return (middle - half) / whole if right else 0.0, (middle + half) / whole if right < images else 1.0


def confusion(predictions: Predictions, labels: np.ndarray, classes: int) -> np.ndarray:
    """Counts (classes, classes): row is what an image is, column what it was taken for."""
    table = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(table, (labels, predictions.guesses[:, 0]), 1)
    return table


def confusion_triples(predictions: Predictions, labels: np.ndarray) -> np.ndarray:
    """The cells of the confusion matrix that are not zero: rows of (is, was taken for, images), in order.

    For any number of classes: the matrix of 21,843 would not fit into memory.
    """
    pairs, counts = np.unique(np.stack([labels, predictions.guesses[:, 0]], axis=1), axis=0, return_counts=True)
    return np.column_stack([pairs, counts])


@dataclass(frozen=True, kw_only=True)
class ClassResult:
    """How good a model is on the images of one class."""

    number: int
    """Its output of the head."""
    name: str
    images: int
    right: int
    """Of these, those whose first guess is this class."""
    guessed: int
    """Of all images, those that were taken for it."""
    accuracy: float | None
    """None for a class without images."""
    precision: float | None
    """Share that is right of those taken for it; none for a class that was never guessed."""


def per_class(predictions: Predictions, labels: np.ndarray, names: tuple[str, ...]) -> tuple[ClassResult, ...]:
    """Every class by its number, also those without images."""
    count = len(names)
    first, is_right = predictions.guesses[:, 0], predictions.right[:, 0]
    images, guessed = np.bincount(labels, minlength=count), np.bincount(first, minlength=count)
    right = np.bincount(labels[is_right], minlength=count)
    return tuple(
        ClassResult(
            number=number,
            name=name,
            images=int(images[number]),
            right=int(right[number]),
            guessed=int(guessed[number]),
            accuracy=float(right[number] / images[number]) if images[number] else None,
            precision=float(right[number] / guessed[number]) if guessed[number] else None,
        )
        for number, name in enumerate(names)
    )
