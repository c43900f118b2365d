"""What a network makes of every image of a source before its head reads it."""

import json
from collections.abc import Callable

import numpy as np
import torch

from vitrail.data import Source, evaluation_batches
from vitrail.errors import DataError
from vitrail.evaluate.feature_sets import not_finite
from vitrail.evaluate.shrinking import Shrinking
from vitrail.evaluate.subject import Subject
from vitrail.runtime.processes import ALONE, Processes

# Of each sentence of an error that another process tells; JSON may write a letter in twelve bytes.
_LETTERS = 1000
_TOLD_BYTES = 4 * 12 * _LETTERS + 64


def extract_features(
    subject: Subject,
    source: Source,
    *,
    batch_size: int,
    workers: int = 0,
    advance: Callable[[int], None] | None = None,
    processes: Processes = ALONE,
) -> np.ndarray:
    """The features of every image once, in the order of the source: float32 (images, dim).

    When memory runs out, fewer images are sent at a time and none is lost. Of several processes each takes every n-th
    image, and all of them get all features.
    """
    mine, failure = None, None
    try:
        mine = _share(subject, source, batch_size, workers, advance or (lambda _done: None), processes)
    except DataError as error:
        failure = error
    _raise_any(failure, processes)
    assert mine is not None
    features = processes.gathered(mine, len(source))
    with processes.together():
        _ensure_finite(features, subject, source)
    return features


def _raise_any(failure: DataError | None, processes: Processes) -> None:
    """What one process could not read ends all of them, and the first, which speaks, says what it was."""
    words = [] if failure is None else [failure.came, failure.wanted, failure.where, failure.fix]
    text = json.dumps([word[:_LETTERS] for word in words]).encode().ljust(_TOLD_BYTES)
    rows = processes.gathered(np.frombuffer(bytearray(text), dtype=np.uint8)[None], processes.ranks)
    for row in rows:
        if told := json.loads(row.tobytes()):
            came, wanted, where, fix = told
            with processes.together():
                raise DataError(came, wanted=wanted, where=where, fix=fix)


@torch.inference_mode()
def _share(
    subject: Subject,
    source: Source,
    batch_size: int,
    workers: int,
    advance: Callable[[int], None],
    processes: Processes,
) -> np.ndarray:
    """The features of the images of this process."""
    run = Shrinking(subject.model.features, subject.device, subject.bfloat16)
    preparation = subject.preparation
    batches = evaluation_batches(
        source,
        preparation,
        batch_size=batch_size,
        rank=processes.rank,
        ranks=processes.ranks,
        device=subject.device,
        workers=workers,
    )
    images, done = len(range(processes.rank, len(source), processes.ranks)), 0
    # Only the network knows how wide its features are; a process without images has to know it too.
    blank = torch.zeros(1, preparation.channels, *preparation.size, device=subject.device)
    features = np.empty((images, run(blank).shape[1]), dtype=np.float32)
    for batch in batches:
        features[done : done + len(batch.ids)] = run(batch.images).float().cpu().numpy()
        done += len(batch.ids)
        advance(len(batch.ids))
    return features


def _ensure_finite(features: np.ndarray, subject: Subject, source: Source) -> None:
    if len(rows := not_finite(features)):
        others = f", and neither are those of {len(rows) - 1:,} more" if len(rows) > 1 else ""
        raise DataError(
            f"the features of this image by {subject.name} are not finite{others}",
            wanted="numbers",
            where=source.where(int(rows[0])),
            fix="Try --precision float32." if subject.bfloat16 else "Look at the weights: a run may have diverged.",
        )
