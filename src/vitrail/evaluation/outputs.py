"""What a network, or the part of it below the head, gives for every image of a source."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from vitrail.data import Source, evaluation_batches
from vitrail.evaluation.shrinking import Shrinking
from vitrail.evaluation.subject import Subject
from vitrail.runtime.processes import ALONE, Processes


def all_outputs(
    network: Callable[[Tensor], Tensor],
    subject: Subject,
    source: Source,
    *,
    batch_size: int,
    workers: int = 0,
    advance: Callable[[int], None] | None = None,
    processes: Processes = ALONE,
) -> np.ndarray:
    """A row of float32 for each image, in the order of the source; each is sent through the network once.

    When memory runs out, fewer images are sent at a time and none is lost. Of several processes each takes every n-th
    image, and all of them get all rows.
    """
    run = Shrinking(network, subject.device, subject.bfloat16)
    with processes.together(), torch.inference_mode():
        mine = _share(run, subject, source, batch_size, workers, advance or (lambda _done: None), processes)
    return processes.gathered(mine, len(source))


def _share(
    run: Shrinking,
    subject: Subject,
    source: Source,
    batch_size: int,
    workers: int,
    advance: Callable[[int], None],
    processes: Processes,
) -> np.ndarray:
    """The rows of the images of this process."""
    preparation, done = subject.preparation, 0
    # Only the network knows how wide a row is; a process without images has to know it too.
    blank = torch.zeros(1, preparation.channels, *preparation.size, device=subject.device)
    images = len(range(processes.rank, len(source), processes.ranks))
    rows = np.empty((images, run(blank).shape[1]), dtype=np.float32)
    for batch in evaluation_batches(
        source,
        preparation,
        batch_size=batch_size,
        rank=processes.rank,
        ranks=processes.ranks,
        device=subject.device,
        workers=workers,
    ):
        rows[done : done + len(batch.ids)] = run(batch.images)[: len(batch.ids)].float().cpu().numpy()
        done += len(batch.ids)
        advance(len(batch.ids))
    return rows
