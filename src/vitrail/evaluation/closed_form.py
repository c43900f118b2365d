"""The few-shot classifier of the paper: regularised least squares on frozen features, solved in closed form (4.1).

As big_vision computes it: whitened features with a constant column of 100 for a bias that is hardly regularised,
targets -1 and 1, and W = (XᵀX + l2 I)⁻¹ XᵀY, or Xᵀ(XXᵀ + l2 I)⁻¹ Y for fewer images than dimensions. One
eigendecomposition serves every l2. Whitened columns are orthogonal to the constant one, so its row of W is solved by
itself: beside 100² times the images, small eigenvalues would lose digits. The original computes in float32, this in
float64.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.evaluation.feature_sets import FeatureSets, ensure_positive
from vitrail.evaluation.whitening import Whitening

BIAS = 100.0
L2 = 2.0**10
# Test images that are whitened at a time: the product is large enough, and memory stays small.
_ROWS = 4096


@dataclass(frozen=True)
class Fewshot:
    """A few-shot classifier and how good it is."""

    accuracy: float
    """Share of the test images that are right."""
    right: int
    images: int
    """How many were counted."""
    l2: float
    weights: np.ndarray
    """float64 (dim + 1, classes) for whitened features; the last row belongs to the constant 100."""


@dataclass(frozen=True)
class ClosedForm:
    """What is known of the shots before an l2 is chosen: W = left (eigenvalues + l2)⁻¹ right, and below it the bias."""

    whitening: Whitening
    left: Tensor
    """(dim, rank)."""
    eigenvalues: Tensor
    """(rank,)."""
    right: Tensor
    """(rank, classes)."""
    balance: Tensor
    """The sum of the targets of each class, (classes,)."""
    images: int

    def weights(self, l2: float) -> Tensor:
        """float64 (dim + 1, classes)."""
        ensure_positive("l2", l2)
        bias = BIAS * self.balance / (BIAS**2 * self.images + l2)
        return torch.cat([(self.left / (self.eigenvalues + l2)) @ self.right, bias[None]])

    def count_right(self, weights: Tensor, features: np.ndarray, labels: np.ndarray) -> int:
        """How many images get their own class; of equal scores the lower class number counts."""
        right = 0
        for start in range(0, len(features), _ROWS):
            rows = torch.tensor(features[start : start + _ROWS], device=weights.device)
            scores = self.whitening(rows) @ weights[:-1] + BIAS * weights[-1]
            right += int((scores.argmax(dim=1).cpu().numpy() == labels[start : start + _ROWS]).sum())
        return right


def fewshot(
    train_x: Any, train_y: Any, test_x: Any, test_y: Any, l2: float = L2, *, device: str | torch.device = "cpu"
) -> Fewshot:
    """Learn from features and class numbers, and measure on others."""
    sets = FeatureSets.of(train_x, train_y, test_x, test_y)
    solved = decompose(*sets.train, sets.num_classes, device)
    weights = solved.weights(l2)
    right, images = solved.count_right(weights, *sets.test), len(sets.test_y)
    return Fewshot(right / images, right, images, l2, weights.cpu().numpy())


def decompose(
    features: np.ndarray, labels: np.ndarray, num_classes: int, device: str | torch.device = "cpu"
) -> ClosedForm:
    """The one eigendecomposition, of the smaller of XᵀX and XXᵀ."""
    x = torch.tensor(features, dtype=torch.float64, device=device)
    classes = torch.tensor(labels, dtype=torch.int64, device=device)
    whitening = Whitening.of(x)
    # In place: a second copy would be the largest thing in memory.
    x.sub_(whitening.mean).div_(whitening.scale)
    balance = 2.0 * torch.bincount(classes, minlength=num_classes) - len(x)
    if len(x) > x.shape[1]:
        eigenvalues, left = torch.linalg.eigh(x.T @ x)
        right = left.T @ _times_targets(x, classes, num_classes)
    else:
        eigenvalues, vectors = torch.linalg.eigh(x @ x.T)
        left, right = x.T @ vectors, _times_targets(vectors, classes, num_classes)
    return ClosedForm(whitening, left, eigenvalues, right, balance.to(x), len(x))


def _times_targets(rows: Tensor, classes: Tensor, num_classes: int) -> Tensor:
    """Rowsᵀ Y for targets of -1 and 1: twice the sum over each class, less the sum over all, without making Y."""
    sums = torch.zeros(num_classes, rows.shape[1], dtype=rows.dtype, device=rows.device)
    return (2 * sums.index_add_(0, classes, rows) - rows.sum(dim=0)).T
