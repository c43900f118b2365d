"""How well a network that learns without labels predicts what was hidden from it."""

from collections.abc import Callable

import torch
from torch import Tensor

from vitrail.data import Preparation, Source, evaluation_batches
from vitrail.evaluation.metrics import Metrics
from vitrail.runtime.processes import ALONE, Processes


@torch.no_grad()
def guess_hidden(
    network: Callable[[Tensor], Tensor],
    source: Source,
    preparation: Preparation,
    *,
    batch_size: int,
    device: torch.device,
    workers: int = 0,
    bfloat16: bool = False,
    advance: Callable[[int], None] | None = None,
    processes: Processes = ALONE,
) -> Metrics:
    """Every image once; the network answers with (loss, share of right guesses) of each."""
    parts = []
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=bfloat16)
    batches = evaluation_batches(
        source,
        preparation,
        batch_size=batch_size,
        rank=processes.rank,
        ranks=processes.ranks,
        device=device,
        workers=workers,
    )
    for batch in batches:
        with autocast:
            parts.append(network(batch.images)[: len(batch.ids)].float().cpu())
        if advance:
            advance(len(batch.ids))
    losses, right = processes.gathered(torch.cat(parts).numpy(), len(source)).T.astype(float)
    return Metrics(images=len(source), accuracy=float(right.mean()), loss=float(losses.mean()))
