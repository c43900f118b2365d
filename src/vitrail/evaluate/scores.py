"""What a network says about every class of every image; several labels per image need more than five guesses."""

from collections.abc import Callable

import numpy as np
import torch

from vitrail.data import Source, evaluation_batches
from vitrail.evaluate.shrinking import Shrinking
from vitrail.evaluate.subject import Subject
from vitrail.runtime.processes import ALONE, Processes


def all_logits(
    subject: Subject,
    source: Source,
    *,
    batch_size: int,
    workers: int = 0,
    advance: Callable[[int], None] | None = None,
    processes: Processes = ALONE,
) -> np.ndarray:
    """Logits float32 (images, classes) in the order of the source, each image sent through the network once.

    Of several processes each takes every n-th image, and all of them get all logits.
    """
    with processes.together():
        mine = _share(subject, source, batch_size, workers, advance or (lambda _done: None), processes)
    return processes.gathered(mine, len(source))


@torch.no_grad()
def _share(
    subject: Subject,
    source: Source,
    batch_size: int,
    workers: int,
    advance: Callable[[int], None],
    processes: Processes,
) -> np.ndarray:
    """The logits of the images of this process; there may be none."""
    run = Shrinking(subject.model, subject.device, subject.bfloat16)
    parts = [np.empty((0, subject.model.config.num_classes), np.float32)]
    for batch in evaluation_batches(
        source,
        subject.preparation,
        batch_size=batch_size,
        rank=processes.rank,
        ranks=processes.ranks,
        device=subject.device,
        workers=workers,
    ):
        parts.append(run(batch.images).float().cpu().numpy())
        advance(len(batch.ids))
    return np.concatenate(parts)
