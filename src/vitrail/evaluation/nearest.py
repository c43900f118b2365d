"""Nearest neighbours on frozen features: an image is what the most similar training images are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vitrail.config.checks import positive
from vitrail.errors import UsageError
from vitrail.evaluation.feature_sets import FeatureSets, ensure_positive

NEIGHBOURS = 20
TEMPERATURE = 0.07
# Similarities and votes that are held at a time: 256 MB in float32.
_AT_A_TIME = 2**26
# More than are asked for, because some may be equally near.
_SPARE = 256


@dataclass(frozen=True)
class Nearest:
    """How good the vote of k neighbours is."""

    k: int
    images: int
    """How many were counted."""
    plain_right: int
    """Each neighbour has one vote."""
    weighted_right: int
    """Each has exp(cosine / 0.07) votes (Wu et al. 2018)."""

    @property
    def plain(self) -> float:
        """Accuracy of the plain vote."""
        return self.plain_right / self.images

    @property
    def weighted(self) -> float:
        """Accuracy of the weighted vote."""
        return self.weighted_right / self.images


def nearest_neighbours(
    train_x: Any,
    train_y: Any,
    test_x: Any,
    test_y: Any,
    k: Sequence[int] = (NEIGHBOURS,),
    *,
    temperature: float = TEMPERATURE,
    device: str | torch.device = "cpu",
) -> tuple[Nearest, ...]:
    """Find the neighbours by cosine similarity once, and let the first k of them vote, for each k.

    Of equally near images the earlier counts, and of classes with equal votes the lower number.
    """
    sets = FeatureSets.of(train_x, train_y, test_x, test_y)
    ensure_positive("temperature", temperature)
    for number in k:
        positive("k", number)
    if not k or max(k) > len(sets.train_y):
        raise UsageError(f"k is {max(k, default=None)}", wanted=f"at most the {len(sets.train_y):,} training images")
    known, classes = _directions(sets.train_x, device), torch.tensor(sets.train_y, dtype=torch.int64, device=device)
    right = np.zeros((len(k), 2), dtype=np.int64)
    rows = max(1, _AT_A_TIME // (len(known) + 2 * sets.num_classes))
    for start in range(0, len(sets.test_y), rows):
        asked = _directions(sets.test_x[start : start + rows], device)
        similarity, places = _neighbours(asked @ known.T, max(k))
        labels = torch.tensor(sets.test_y[start : start + rows], dtype=torch.int64, device=device)
        for row, number in enumerate(k):
            voters = classes[places[:, :number]]
            # Less the largest, so that the exponential of a small temperature does not overflow.
            weights = ((similarity[:, :number] - similarity[:, :1]).double() / temperature).exp()
            for column, votes in enumerate((torch.ones_like(weights), weights)):
                right[row, column] += int((_elected(voters, votes, sets.num_classes) == labels).sum())
    return tuple(
        Nearest(number, len(sets.test_y), int(plain), int(weighted))
        for number, (plain, weighted) in zip(k, right, strict=True)
    )


def _neighbours(similarity: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The nearest, in an order that does not depend on how many are asked for unless very many are equally near."""
    near, places = similarity.topk(min(number + _SPARE, similarity.shape[1]), dim=1)
    order = places.argsort(dim=1)
    near, places = near.gather(1, order), places.gather(1, order)
    near, order = near.sort(dim=1, descending=True, stable=True)
    return near[:, :number], places.gather(1, order)[:, :number]


def _directions(features: np.ndarray, device: str | torch.device) -> Tensor:
    return functional.normalize(torch.tensor(features, dtype=torch.float32, device=device), dim=1)


def _elected(voters: Tensor, votes: Tensor, num_classes: int) -> Tensor:
    ballot = torch.zeros(len(voters), num_classes, dtype=votes.dtype, device=votes.device)
    return ballot.scatter_add_(1, voters, votes).argmax(dim=1)
