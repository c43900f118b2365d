"""Features to learn from and features to measure on, and the classes of both."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vitrail.errors import DataError, UsageError


@dataclass(frozen=True)
class FeatureSets:
    """Features (images, dim) and class numbers (images,) that fit together; what does not is refused here."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    @classmethod
    def of(cls, train_x: Any, train_y: Any, test_x: Any, test_y: Any) -> "FeatureSets":
        """From arrays, lists or tensors."""
        sets = cls(*map(_array, (train_x, train_y, test_x, test_y)))
        for name, features, labels in (("train", *sets.train), ("test", *sets.test)):
            _check(name, features, labels)
        if sets.train_x.shape[1] != sets.test_x.shape[1]:
            raise UsageError(
                f"train_x has {sets.train_x.shape[1]} dimensions and test_x {sets.test_x.shape[1]}",
                wanted="features of one network",
            )
        if len(there := np.unique(sets.train_y)) < 2:
            raise DataError(
                f"all training features are of class {there[0]}", wanted="two or more classes to tell apart"
            )
        return sets

    @property
    def train(self) -> tuple[np.ndarray, np.ndarray]:
        return self.train_x, self.train_y

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        return self.test_x, self.test_y

    @property
    def num_classes(self) -> int:
        """One more than the highest class number of both."""
        return int(max(self.train_y.max(), self.test_y.max())) + 1


def ensure_positive(name: str, value: float) -> None:
    """Refuse a regularisation or a temperature that is none."""
    if not 0 < value < math.inf:
        raise UsageError(f"{name} is {value}", wanted="a positive number")


def not_finite(features: np.ndarray) -> np.ndarray:
    """The rows that hold NaN or infinity."""
    # A sum in float64 does not overflow, and needs no second table as large as the features.
    return np.flatnonzero(~np.isfinite(features.sum(axis=1, dtype=np.float64)))


def _array(part: Any) -> np.ndarray:
    if not isinstance(part, torch.Tensor):
        return np.asarray(part)
    part = part.detach().cpu()
    return (part.float() if part.dtype == torch.bfloat16 else part).numpy()


def _check(name: str, features: np.ndarray, labels: np.ndarray) -> None:
    if features.ndim != 2 or not len(features) or features.dtype.kind != "f":
        raise UsageError(f"{name}_x is {_form(features)}", wanted="floating-point features (images, dim), one at least")
    if labels.shape != features.shape[:1] or labels.dtype.kind not in "iu":
        raise UsageError(f"{name}_y is {_form(labels)}", wanted=f"{len(features):,} class numbers")
    if labels.min() < 0:
        raise UsageError(f"{name}_y holds {labels.min()}", wanted="class numbers from 0 up")
    if len(rows := not_finite(features)):
        raise DataError(f"{name}_x is not finite in {len(rows):,} of {len(features):,} rows, first in row {rows[0]}")


def _form(array: np.ndarray) -> str:
    return f"{array.dtype} {array.shape}"
