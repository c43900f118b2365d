"""The embedded digits: 1,797 images of 8x8 pixels from scikit-learn, so that everything can be tried offline."""

import numpy as np

from vitrail.data.sources.labels import Labels
from vitrail.data.sources.parts import spread_order
from vitrail.data.sources.source import Arrays

_TEST_SHARE = 0.2


def open_digits(split: str = "train") -> Arrays:
    """Open train (1,438 images) or test (359): the digits come unsplit, so every fifth of each class is test."""
    from sklearn.datasets import load_digits

    values, classes = load_digits(return_X_y=True)
    # Grey levels are 0 to 16.
    pixels = np.round(np.asarray(values).reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    names = tuple(str(digit) for digit in range(10))
    whole = Arrays("digits", "all", names, Labels.of(np.asarray(classes), 10), pixels)
    order = spread_order(whole)
    cut = round((1 - _TEST_SHARE) * len(whole))
    chosen = np.sort(order[:cut] if split == "train" else order[cut:])
    return Arrays("digits", split, names, whole.labels.select(chosen), pixels[chosen])
