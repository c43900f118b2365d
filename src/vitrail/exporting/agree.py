"""When two ways to compute a network give one answer."""

import numpy as np

TOLERANCE = 1e-4
"""Largest difference of a logit from float32 torch, as a share of the largest of them where that is above 1."""


def allowed_difference(expected: np.ndarray) -> float:
    """How far other logits may be from these."""
    return TOLERANCE * max(1.0, float(np.abs(expected).max()))


def largest_difference(expected: np.ndarray, found: np.ndarray) -> float:
    """How far they are; not a number where one of them is none."""
    return float(np.abs(expected.astype(np.float64) - found).max())
