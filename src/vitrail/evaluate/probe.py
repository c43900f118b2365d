"""The linear probe: multinomial logistic regression on frozen, whitened features, solved until it stands still.

The l2 is chosen on training features that are held out, never on the test images; the classifier is then learnt from
all training features.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional

from vitrail.errors import DataError, UsageError
from vitrail.evaluate.feature_sets import FeatureSets, ensure_positive
from vitrail.evaluate.whitening import Whitening
from vitrail.runtime.threads import one_thread

L2_GRID = tuple(10.0**power for power in range(1, -7, -1))
"""Strong first: each solution is where the next one begins, which is near."""
HELD_OUT = 0.2
ITERATIONS = 2000
_GRADIENT = 1e-5
# Products in a step below which one thread is faster.
_SMALL = 2**24
_ROWS = 4096


@dataclass(frozen=True)
class Tried:
    """An l2 that was tried on held-out training features."""

    l2: float
    accuracy: float
    loss: float
    """Mean cross-entropy of the held-out features."""
    iterations: int
    converged: bool


@dataclass(frozen=True)
class Probe:
    """A linear classifier and how good it is."""

    accuracy: float
    """Share of the test images that are right."""
    right: int
    images: int
    """How many were counted."""
    l2: float
    held_out: int
    """Training features the l2 was chosen on; none when it was given."""
    tried: tuple[Tried, ...]
    iterations: int
    converged: bool
    """Whether the gradient vanished, or the loss no longer fell, before the iterations ran out."""
    gradient: float
    """The largest entry of the gradient at the end."""
    weights: np.ndarray
    """float64 (dim + 1, classes) for whitened features; the last row is the bias."""


def linear_probe(
    train_x: Any,
    train_y: Any,
    test_x: Any,
    test_y: Any,
    l2: float | Sequence[float] = L2_GRID,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Probe:
    """Minimise mean cross-entropy + l2 / 2 |W|², the bias free; of several `l2` take the best on held-out features."""
    sets = FeatureSets.of(train_x, train_y, test_x, test_y)
    grid = sorted({float(value) for value in ([l2] if isinstance(l2, int | float) else l2)}, reverse=True)
    if not grid:
        raise UsageError("there is no l2", wanted="a positive number, or several")
    for value in grid:
        ensure_positive("l2", value)
    tried, held_out = (), 0
    if len(grid) > 1:
        tried, held_out = _try(sets, grid, seed, device)
        grid = [max(tried, key=_worth).l2]
    whole = _Fitting.of(*sets.train, sets.num_classes, device)
    final = whole.fit(grid[0], np.zeros((sets.train_x.shape[1] + 1, sets.num_classes)))
    right, _loss = whole.measure(final.weights, *sets.test)
    return Probe(
        accuracy=right / len(sets.test_y),
        right=right,
        images=len(sets.test_y),
        l2=grid[0],
        held_out=held_out,
        tried=tried,
        iterations=final.iterations,
        converged=final.converged,
        gradient=final.gradient,
        weights=final.weights,
    )


def _try(
    sets: FeatureSets, grid: Sequence[float], seed: int, device: str | torch.device
) -> tuple[tuple[Tried, ...], int]:
    """How good each l2 is on held-out features, and how many those are."""
    rest, held_out = hold_out(sets.train_y, seed)
    part = _Fitting.of(sets.train_x[rest], sets.train_y[rest], sets.num_classes, device)
    start = np.zeros((sets.train_x.shape[1] + 1, sets.num_classes))
    tried: list[Tried] = []
    for l2 in grid:
        found = part.fit(l2, start)
        start = found.weights
        right, loss = part.measure(found.weights, sets.train_x[held_out], sets.train_y[held_out])
        tried.append(Tried(l2, right / len(held_out), loss, found.iterations, found.converged))
    return tuple(tried), len(held_out)


def _worth(one: Tried) -> tuple[float, float]:
    return one.accuracy, -one.loss


def hold_out(labels: np.ndarray, seed: int = 0, share: float = HELD_OUT) -> tuple[np.ndarray, np.ndarray]:
    """The places to learn from and those held out: a share of every class, but never its last image."""
    generator = np.random.default_rng(seed)
    rest, held = [], []
    for number in np.unique(labels):
        places = generator.permutation(np.flatnonzero(labels == number))
        kept = max(1, math.floor((1 - share) * len(places)))
        rest.append(places[:kept])
        held.append(places[kept:])
    found = np.concatenate(held)
    if not len(found):
        raise DataError(
            "every class has one image, so none can be held out to choose the l2 on",
            wanted="two or more of a class",
            fix="Say the l2 with --l2.",
        )
    return np.sort(np.concatenate(rest)), np.sort(found)


@dataclass(frozen=True)
class _Fit:
    weights: np.ndarray
    iterations: int
    converged: bool
    gradient: float


@dataclass(frozen=True)
class _Fitting:
    """Whitened features and their classes."""

    whitening: Whitening
    x: Tensor
    """float64 (images, dim)."""
    classes: Tensor
    num_classes: int

    @classmethod
    def of(cls, features: np.ndarray, labels: np.ndarray, num_classes: int, device: str | torch.device) -> "_Fitting":
        x = torch.tensor(features, dtype=torch.float64, device=device)
        whitening = Whitening.of(x)
        return cls(whitening, whitening(x), torch.tensor(labels, dtype=torch.int64, device=device), num_classes)

    def fit(self, l2: float, start: np.ndarray) -> _Fit:
        """Run L-BFGS from a start to the minimum."""
        options = {"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "gtol": _GRADIENT, "ftol": 1e-14, "maxcor": 20}
        with one_thread(self.x.numel() * self.num_classes < _SMALL):
            found = minimize(
                self._loss_and_gradient, start.ravel(), args=(l2,), jac=True, method="L-BFGS-B", options=options
            )
        weights = found.x.reshape(start.shape)
        return _Fit(weights, int(found.nit), bool(found.success), float(np.abs(found.jac).max()))

    def _loss_and_gradient(self, flat: np.ndarray, l2: float) -> tuple[float, np.ndarray]:
        weights = torch.from_numpy(flat.reshape(-1, self.num_classes)).to(self.x)
        likelihood = (self.x @ weights[:-1] + weights[-1]).log_softmax(dim=1)
        loss = functional.nll_loss(likelihood, self.classes) + l2 / 2 * weights[:-1].square().sum()
        slope = likelihood.exp_()
        slope[torch.arange(len(slope), device=slope.device), self.classes] -= 1
        slope /= len(slope)
        gradient = torch.cat([self.x.T @ slope + l2 * weights[:-1], slope.sum(dim=0, keepdim=True)])
        return float(loss), gradient.cpu().numpy().ravel()

    def measure(self, weights: np.ndarray, features: np.ndarray, labels: np.ndarray) -> tuple[int, float]:
        """How many are right, and the mean cross-entropy."""
        solution = torch.from_numpy(weights).to(self.x)
        right, loss = 0, 0.0
        for begin in range(0, len(features), _ROWS):
            rows = torch.tensor(features[begin : begin + _ROWS], device=self.x.device)
            classes = torch.tensor(labels[begin : begin + _ROWS], dtype=torch.int64, device=self.x.device)
            scores = self.whitening(rows) @ solution[:-1] + solution[-1]
            right += int((scores.argmax(dim=1) == classes).sum())
            loss += float(functional.cross_entropy(scores, classes, reduction="sum"))
        return right, loss / len(features)
