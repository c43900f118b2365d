"""Calibration: whether a model is right as often as it says (Guo et al. 2017, "On Calibration of Modern Networks")."""

from dataclasses import dataclass

import numpy as np

from vitrail.evaluation.classify import Predictions

BINS = 15


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """The images whose first guess has a probability above `low` and up to `high`."""

    low: float
    high: float
    images: int
    confidence: float | None
    """Their mean probability; none without images."""
    accuracy: float | None
    """The share that is right."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What a model says about its first guesses beside how often they are right."""

    images: int
    """How many were counted."""
    ece: float
    """Expected calibration error: |accuracy - confidence| of the bins, each weighted by its images."""
    largest_gap: float
    """The largest |accuracy - confidence| of a bin."""
    confidence: float
    """Mean probability of the first guess."""
    accuracy: float
    bins: tuple[CalibrationBin, ...]
    """Of equal width, from 0 to 1."""


def calibrate(predictions: Predictions, bins: int = BINS) -> Calibration:
    """Sort the images into bins of equal width by the probability of their first guess (equation 3 of Guo et al.)."""
    sure, right = predictions.confidence[:, 0].astype(np.float64), predictions.right[:, 0]
    edges = np.linspace(0, 1, bins + 1)
    # A bin holds its upper end, as in the paper; a sigmoid that is exactly 0 goes to the first.
    place = np.clip(np.searchsorted(edges, sure, side="left") - 1, 0, bins - 1)
    images = np.bincount(place, minlength=bins)
    said, were = np.bincount(place, sure, minlength=bins), np.bincount(place, right, minlength=bins)
    gaps = np.abs(were - said)
    return Calibration(
        images=len(sure),
        ece=float(gaps.sum() / len(sure)),
        largest_gap=float((gaps[images > 0] / images[images > 0]).max()),
        confidence=float(sure.mean()),
        accuracy=float(right.mean()),
        bins=tuple(
            CalibrationBin(
                low=float(edges[one]),
                high=float(edges[one + 1]),
                images=int(images[one]),
                confidence=float(said[one] / images[one]) if images[one] else None,
                accuracy=float(were[one] / images[one]) if images[one] else None,
            )
            for one in range(bins)
        ),
    )
