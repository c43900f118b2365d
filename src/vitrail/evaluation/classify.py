"""What a network says about every image of a source."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vitrail.data import Preparation, Source, evaluation_batches
from vitrail.evaluation.shrinking import Shrinking
from vitrail.runtime.processes import ALONE, Processes

TOP = 5


@dataclass(frozen=True)
class Predictions:
    """The answers for the images of a source, in its order."""

    guesses: np.ndarray
    """Class numbers, the likeliest first: int64 (images, up to 5)."""
    confidence: np.ndarray
    """Their probabilities: float32 (images, up to 5)."""
    right: np.ndarray
    """Whether each guess is among the image's classes: bool (images, up to 5)."""
    losses: np.ndarray
    """Cross-entropy of each image: float32 (images,)."""

    def __len__(self) -> int:
        return len(self.losses)


@torch.no_grad()
def classify(
    network: Callable[[Tensor], Tensor],
    source: Source,
    preparation: Preparation,
    *,
    batch_size: int,
    device: str | torch.device = "cpu",
    workers: int = 0,
    bfloat16: bool = False,
    sigmoid: bool = False,
    advance: Callable[[int], None] | None = None,
    processes: Processes = ALONE,
    may_shrink: bool = True,
) -> Predictions:
    """Send every image once through the network, which gives logits; `sigmoid` reads them as independent classes.

    When memory runs out and it `may_shrink`, fewer images are sent at a time and none is lost. Of several processes
    each takes every n-th image, and all of them get all answers.
    """
    device = torch.device(device)
    parts: list[tuple[Tensor, ...]] = []
    run = Shrinking(network, device, bfloat16, may_shrink=may_shrink)
    rank, ranks = processes.rank, processes.ranks
    batches = evaluation_batches(
        source, preparation, batch_size=batch_size, rank=rank, ranks=ranks, device=device, workers=workers
    )
    for batch in batches:
        answers = _judge(run(batch.images), batch.targets, sigmoid)
        parts.append(tuple(part[: len(batch.ids)].cpu() for part in answers))
        if advance:
            advance(len(batch.ids))
    columns = (torch.cat(group).numpy() for group in zip(*parts, strict=True))
    guesses, confidence, right, losses = (processes.gathered(column, len(source)) for column in columns)
    return Predictions(guesses, confidence, right, losses)


def _judge(logits: Tensor, targets: Tensor, sigmoid: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits = logits.float()
    probabilities = logits.sigmoid() if sigmoid else logits.softmax(dim=1)
    # Ties go to the lower class number, whatever the device; a full sort of very many classes would take too long.
    order = torch.sort(logits, dim=1, descending=True, stable=True).indices if logits.shape[1] <= 2**12 else None
    guesses = order[:, :TOP] if order is not None else logits.topk(TOP, dim=1).indices
    if targets.ndim == 1:
        shares = functional.one_hot(targets, logits.shape[1]).to(logits.dtype)
    else:
        shares = targets.to(logits.dtype)
    if sigmoid:
        losses = functional.binary_cross_entropy_with_logits(logits, shares, reduction="none").sum(dim=1)
    else:
        losses = -(shares * logits.log_softmax(dim=1)).sum(dim=1)
    # Of shares that a teacher gave, the largest is the class; of several classes all have the same.
    given = shares.gather(1, guesses)
    right = (given > 0) & (given == shares.amax(dim=1, keepdim=True))
    return guesses, probabilities.gather(1, guesses), right, losses
