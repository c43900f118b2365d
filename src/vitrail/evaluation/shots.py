"""Which images a few-shot classifier learns from: the choice of big_vision, image by image."""

from collections.abc import Sequence

import numpy as np

from vitrail.config.checks import count, positive
from vitrail.errors import DataError, setting


def choose_shots(labels: np.ndarray, shots: int, seed: int, classes: Sequence[str] | None = None) -> np.ndarray:
    """The places of `shots` images of each class, class after class; `classes` are its names, for errors.

    One generator shuffles the images of every class in the order of class numbers, and the first of each are taken: so
    five shots are the first five of ten. big_vision takes what there is of a class with too few; here it is an error.
    """
    positive("shots", shots)
    count("seed", seed)
    number_of_classes = int(labels.max(initial=-1)) + 1 if classes is None else len(classes)
    counts = np.bincount(labels, minlength=number_of_classes)
    if len(short := np.flatnonzero(counts < shots)):
        name = repr(classes[short[0]]) if classes is not None else str(short[0])
        more = f", and {len(short) - 1:,} more of {len(counts):,} classes have fewer than {shots}"
        raise DataError(
            f"the class {name} has {_images(int(counts[short[0]]))}{more if len(short) > 1 else ''}",
            wanted=f"{shots} of each for {shots}-shot",
            fix=f"Ask for at most {counts.min()} with {setting('shots')}."
            if counts.min()
            else "Take more of the data to learn.",
        )
    of_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
    generator = np.random.default_rng(seed)
    return np.concatenate([generator.permutation(places)[:shots] for places in of_class])


def _images(number: int) -> str:
    return f"{number:,} image{'' if number == 1 else 's'}"
