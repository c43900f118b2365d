"""Which image comes when: the order of training is a pure function of (seed, epoch), so any step can be the first."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vitrail.config.checks import count, positive
from vitrail.errors import UsageError
from vitrail.runtime.counter import permutation
from vitrail.runtime.purposes import Purpose


@dataclass(frozen=True)
class Picks:
    """Images of one batch: their positions in the source, and the epoch in which each is seen."""

    indices: np.ndarray
    epochs: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def cut(self, size: int) -> Iterator["Picks"]:
        """Pieces of at most `size` images."""
        for start in range(0, len(self), size):
            yield Picks(self.indices[start : start + size], self.epochs[start : start + size])


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The endless row of training images, epoch after epoch, cut into full batches.

    Place p of the row is image order(seed, p // length)[p % length]; step s of a run takes the batch_size places from
    s * batch_size on, and rank r of R those of its batch at r, r + R, r + 2R and so on. So every epoch holds every
    image exactly once, on any number of ranks and workers, a batch may reach into the next epoch, and none is short.
    """

    length: int
    """Images in the source."""
    batch_size: int
    """Images per step over all ranks."""
    seed: int
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        positive("the number of images", self.length, at_most=2**40)
        positive("batch_size", self.batch_size)
        _check_rank(self.rank, self.ranks)
        if self.ranks > self.batch_size:
            raise UsageError(f"batch_size is {self.batch_size}", wanted=f"an image for each of the {self.ranks} ranks")

    def step(self, step: int) -> Picks:
        """What this rank sees in a step."""
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)[self.rank :: self.ranks]
        epochs = places // self.length
        indices = np.empty_like(places)
        for epoch in np.unique(epochs):
            there = epochs == epoch
            indices[there] = epoch_order(self.seed, int(epoch), self.length)[places[there] % self.length]
        return Picks(indices, epochs)


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, length: int) -> np.ndarray:
    """The order of all images in one epoch."""
    order = permutation(seed, Purpose.ORDER, epoch, length)
    return order.astype(np.int32) if length < 2**31 else order


def evaluation_picks(length: int, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Picks]:
    """Every image once, in the order of the source; the last batch is short."""
    positive("batch_size", batch_size)
    _check_rank(rank, ranks)
    mine = np.arange(length)[rank::ranks]
    yield from Picks(mine, np.zeros_like(mine)).cut(batch_size)


def _check_rank(rank: int, ranks: int) -> None:
    positive("ranks", ranks)
    count("rank", rank)
    if rank >= ranks:
        raise UsageError(f"rank is {rank}", wanted=f"below the {ranks} ranks")
