"""Numbers from predictions, each with the count of images behind it."""

from dataclasses import dataclass

import numpy as np

from vitrail.evaluate.classify import Predictions


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """How often the first guess, or one of five, is right."""

    images: int
    """How many were counted."""
    accuracy: float
    """Share whose first guess is right."""
    top5: float
    """Share with a right one among five guesses, or among all classes where there are fewer."""
    loss: float
    """Mean cross-entropy."""


def measure(predictions: Predictions) -> Metrics:
    """Accuracy and loss over all images."""
    return Metrics(
        images=len(predictions),
        accuracy=float(predictions.right[:, 0].mean()),
        top5=float(predictions.right.any(axis=1).mean()),
        loss=float(predictions.losses.astype(np.float64).mean()),
    )


def confusion(predictions: Predictions, labels: np.ndarray, classes: int) -> np.ndarray:
    """Counts (classes, classes): row is what an image is, column what it was taken for."""
    table = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(table, (labels, predictions.guesses[:, 0]), 1)
    return table
