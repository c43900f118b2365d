"""The linear probe: multinomial logistic regression on frozen, whitened features, solved until it stands still.

The l2 is chosen on training features that are held out, never on the test images: of up to 10,000 features each is held
out once, in five folds, because a fifth of few says little; of more a fifth is enough. The classifier is then learnt
from all training features.

A solution is exact when the two parts of its gradient, of the cross-entropy and of the l2, cancel: l2 |W| is how large
each of them is there. The objective is l2-strongly convex in W, so |gradient| / l2 bounds the error of W, and `_EXACT`
is its relative error, whatever the l2. Where the curvature comes from the data and not from such an l2, float64 cannot
show that, and the end is where the loss cannot fall any more.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vitrail.errors import DataError, UsageError, setting
from vitrail.evaluation.feature_sets import FeatureSets, ensure_positive
from vitrail.evaluation.whitening import Whitening
from vitrail.runtime.threads import one_thread

L2_GRID = tuple(10.0**power for power in range(1, -7, -1))
"""Strong first: each solution is where the next one begins, which is near."""
FOLDS = 5
ONE_IS_ENOUGH = 10_000
"""Training features beyond which one fold is held out, and not each of them in turn."""
ITERATIONS = 2000
# Relative errors of W: of a classifier, and of one that is only to show how good its l2 is.
_EXACT, _TRIED = 1e-5, 1e-3
# Where the loss cannot fall any more, the gradient is this small beside the one of a classifier that knows nothing.
_ROUNDING = 1e-6
# Steps whose curvature is remembered; how often a step is halved; which part of what the slope promises is enough.
_REMEMBERED, _HALVINGS, _PROMISED = 20, 40, 1e-4
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
    """Of all folds."""
    converged: bool
    """In every fold."""


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
    """Training features the l2 was chosen on, each once; none when it was given."""
    folds: int
    """How often it was learnt without some of them; 0 when it was given."""
    tried: tuple[Tried, ...]
    iterations: int
    converged: bool
    """Whether the weights are those of the minimum to 1e-5, or as near as float64 tells, before iterations ran out."""
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
    tried, folds = (), []
    if len(grid) > 1:
        folds = held_out_folds(sets.train_y, seed)
        tried = _try(sets, folds, grid, device)
        grid = [max(tried, key=_worth).l2]
    whole = _Fitting.of(*sets.train, sets.num_classes, device)
    final = whole.fit(grid[0], whole.nothing())
    right, _loss = whole.measure(final.weights, *sets.test)
    return Probe(
        accuracy=right / len(sets.test_y),
        right=right,
        images=len(sets.test_y),
        l2=grid[0],
        held_out=sum(map(len, folds)),
        folds=len(folds),
        tried=tried,
        iterations=final.iterations,
        converged=final.converged,
        gradient=final.gradient,
        weights=final.weights.cpu().numpy(),
    )


def _try(
    sets: FeatureSets, folds: Sequence[np.ndarray], grid: Sequence[float], device: str | torch.device
) -> tuple[Tried, ...]:
    """How good each l2 is on the features of the folds, by what was learnt without them."""
    found = [list(_on_fold(sets, fold, grid, device)) for fold in folds]
    held_out = sum(map(len, folds))
    tried = []
    for l2, fits in zip(grid, zip(*found, strict=True), strict=True):
        right, loss = sum(one.right for one in fits), sum(one.loss for one in fits)
        steps = sum(one.fit.iterations for one in fits)
        tried.append(Tried(l2, right / held_out, loss / held_out, steps, all(one.fit.converged for one in fits)))
    return tuple(tried)


def _on_fold(
    sets: FeatureSets, fold: np.ndarray, grid: Sequence[float], device: str | torch.device
) -> Iterator["_Measured"]:
    rest = np.setdiff1d(np.arange(len(sets.train_y)), fold)
    part = _Fitting.of(sets.train_x[rest], sets.train_y[rest], sets.num_classes, device)
    weights = part.nothing()
    for l2 in grid:
        fit = part.fit(l2, weights, _TRIED)
        weights = fit.weights
        right, loss = part.measure(weights, sets.train_x[fold], sets.train_y[fold])
        yield _Measured(fit, right, loss)


def _worth(one: Tried) -> tuple[float, float]:
    return one.accuracy, -one.loss


def held_out_folds(labels: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    """The places that are held out, fold by fold: five of them, or of many labels one that has a fifth.

    The images of every class are shuffled and dealt to the folds in turn, going on where the class before ended. The
    only image of a class is always learnt from.
    """
    generator = np.random.default_rng(seed)
    dealt: list[list[int]] = [[] for _ in range(FOLDS)]
    turn = 0
    for number in np.unique(labels):
        places = generator.permutation(np.flatnonzero(labels == number))
        for place in places if len(places) > 1 else ():
            dealt[turn % FOLDS].append(int(place))
            turn += 1
    folds = [np.sort(fold) for fold in dealt if fold]
    if not folds:
        raise DataError(
            "every class has one image, so none can be held out to choose the l2 on",
            wanted="two or more of a class",
            fix=f"Say the l2 with {setting('l2')}.",
        )
    return folds if len(labels) <= ONE_IS_ENOUGH else folds[:1]


@dataclass(frozen=True)
class _Fit:
    weights: Tensor
    iterations: int
    converged: bool
    gradient: float


@dataclass(frozen=True)
class _Measured:
    fit: _Fit
    right: int
    loss: float
    """The sum over the features of the fold."""


@dataclass(frozen=True)
class _Fitting:
    """Whitened features and their classes."""

    whitening: Whitening
    x: Tensor
    """float64 (images, dim)."""
    classes: Tensor
    num_classes: int

    @property
    def is_small(self) -> bool:
        return self.x.numel() * self.num_classes < _SMALL

    def nothing(self) -> Tensor:
        """The weights of a classifier that knows nothing."""
        return self.x.new_zeros(self.x.shape[1] + 1, self.num_classes)

    @classmethod
    def of(cls, features: np.ndarray, labels: np.ndarray, num_classes: int, device: str | torch.device) -> "_Fitting":
        x = torch.tensor(features, dtype=torch.float64, device=device)
        whitening = Whitening.of(x)
        return cls(whitening, whitening(x), torch.tensor(labels, dtype=torch.int64, device=device), num_classes)

    def fit(self, l2: float, start: Tensor, tolerance: float = _EXACT) -> _Fit:
        """Run L-BFGS from a start until the weights are exact to the tolerance, or the loss cannot fall any more."""
        with one_thread(self.is_small):
            return self._descend(l2, start, tolerance)

    def _descend(self, l2: float, weights: Tensor, tolerance: float) -> _Fit:
        nothing_known = self._loss_and_gradient(torch.zeros_like(weights), l2)[1].norm()
        loss, gradient = self._loss_and_gradient(weights, l2)
        steps: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=_REMEMBERED)
        iterations = 0
        while not (converged := bool(gradient.norm() <= tolerance * l2 * weights[:-1].norm())):
            way = _newton_like(gradient, steps)
            found = self._lower(l2, weights, loss, way, float((way * gradient).sum()))
            if found is None:
                # As near as float64 tells, unless a direction failed far from the minimum.
                converged = bool(gradient.norm() <= _ROUNDING * nothing_known)
                break
            if iterations == ITERATIONS:
                break
            new, loss, slope = found
            step, change = new - weights, slope - gradient
            if (product := (step * change).sum()) > 0:
                steps.append((step, change, product))
            weights, gradient = new, slope
            iterations += 1
        return _Fit(weights, iterations, converged, float(gradient.abs().max()))

    def _lower(
        self, l2: float, weights: Tensor, loss: float, way: Tensor, slope: float
    ) -> tuple[Tensor, float, Tensor] | None:
        """Weights along the way whose loss is lower by a part of what the slope promises; none where there are none."""
        length = 1.0
        for _ in range(_HALVINGS):
            new = weights + length * way
            new_loss, gradient = self._loss_and_gradient(new, l2)
            if new_loss < loss + _PROMISED * length * slope and new_loss < loss:
                return new, new_loss, gradient
            length /= 2
        return None

    def _loss_and_gradient(self, weights: Tensor, l2: float) -> tuple[float, Tensor]:
        likelihood = (self.x @ weights[:-1] + weights[-1]).log_softmax(dim=1)
        loss = functional.nll_loss(likelihood, self.classes) + l2 / 2 * weights[:-1].square().sum()
        slope = likelihood.exp_()
        slope[torch.arange(len(slope), device=slope.device), self.classes] -= 1
        slope /= len(slope)
        return float(loss), torch.cat([self.x.T @ slope + l2 * weights[:-1], slope.sum(dim=0, keepdim=True)])

    def measure(self, weights: Tensor, features: np.ndarray, labels: np.ndarray) -> tuple[int, float]:
        """How many are right, and the sum of their cross-entropies."""
        right, loss = 0, 0.0
        with one_thread(self.is_small):
            for begin in range(0, len(features), _ROWS):
                rows = torch.tensor(features[begin : begin + _ROWS], device=self.x.device)
                classes = torch.tensor(labels[begin : begin + _ROWS], dtype=torch.int64, device=self.x.device)
                scores = self.whitening(rows) @ weights[:-1] + weights[-1]
                right += int((scores.argmax(dim=1) == classes).sum())
                loss += float(functional.cross_entropy(scores, classes, reduction="sum"))
        return right, loss


def _newton_like(gradient: Tensor, steps: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Where the minimum would be by the curvature of the last steps (Nocedal, 1980); of the first, one downhill."""
    if not steps:
        return -gradient / gradient.norm()
    way, shares = -gradient, []
    for step, change, product in reversed(steps):
        shares.append((step * way).sum() / product)
        way = way - shares[-1] * change
    step, change, product = steps[-1]
    way = way * (product / change.square().sum())
    for (step, change, product), share in zip(steps, reversed(shares), strict=True):
        way = way + (share - (change * way).sum() / product) * step
    return way
