"""Few-shot evaluation as the paper ran it: several numbers of shots, several choices of them, one l2 or a grid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vitrail.config.checks import positive
from vitrail.errors import UsageError
from vitrail.evaluation.closed_form import L2, decompose
from vitrail.evaluation.feature_sets import FeatureSets
from vitrail.evaluation.shots import choose_shots

SHOTS = (1, 5, 10, 25)
SEEDS = 3
L2_GRID = tuple(2.0**power for power in range(-10, 20))
"""What was tried at the time of the paper; big_vision now takes 2^10."""


@dataclass(frozen=True, kw_only=True)
class ShotsResult:
    """How many test images are right after learning from a few of each class."""

    shots: int
    learnt_from: int
    """Images: shots times classes."""
    images: int
    """Test images that were counted."""
    l2: tuple[float, ...]
    right: tuple[tuple[int, ...], ...]
    """For each seed, from 0 up, and each l2."""

    def accuracies(self, l2: float) -> list[float]:
        """The share that is right, seed by seed."""
        place = self.l2.index(l2)
        return [row[place] / self.images for row in self.right]


def measure_shots(
    sets: FeatureSets,
    classes: Sequence[str],
    *,
    shots: Sequence[int] = SHOTS,
    seeds: int = SEEDS,
    l2: Sequence[float] = (L2,),
    device: str | torch.device = "cpu",
) -> Iterator[ShotsResult]:
    """One result after the other, the fewest shots first: where a class has too few images, the others are kept."""
    positive("seeds", seeds)
    if not shots or not l2:
        raise UsageError("there is nothing to measure", wanted="a number of shots and an l2")
    for number in sorted(set(shots)):
        places = [choose_shots(sets.train_y, number, seed, classes) for seed in range(seeds)]
        right = []
        for chosen in places:
            solved = decompose(sets.train_x[chosen], sets.train_y[chosen], len(classes), device)
            right.append(tuple(solved.count_right(solved.weights(value), *sets.test) for value in l2))
        yield ShotsResult(
            shots=number, learnt_from=len(places[0]), images=len(sets.test_y), l2=tuple(l2), right=tuple(right)
        )


def choose_l2(results: Sequence[ShotsResult]) -> float:
    """The l2 of the best mean rank over data sets, all of one number of shots; of equals the smaller.

    A rank is the place in the order of mean accuracies over seeds (argsort of argsort), so that no data set weighs more
    than another. This looks at test images, as the protocol of the paper's time did.
    """
    means = [np.sum(result.right, axis=0) / result.images for result in results]
    ranks = [np.argsort(np.argsort(mean, kind="stable"), kind="stable") for mean in means]
    return results[0].l2[int(np.argmax(np.mean(ranks, axis=0)))]
