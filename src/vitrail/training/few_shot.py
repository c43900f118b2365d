"""A few-shot score on the way: what a linear classifier makes of the present features, learnt from a few images.

The paper compares pre-training runs by it (Figures 3 to 5), because it takes seconds and needs no fine-tuning.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.config import DataConfig, DecodePolicy
from vitrail.data import OpenOptions, Source, open_data
from vitrail.data.check import preflight
from vitrail.data.sources.source import Part
from vitrail.data.sources.splits import MissingSplit
from vitrail.errors import DataError, setting
from vitrail.evaluation.closed_form import L2, decompose
from vitrail.evaluation.features import extract_features
from vitrail.evaluation.protocol import SEEDS
from vitrail.evaluation.shots import choose_shots
from vitrail.evaluation.subject import Subject
from vitrail.runtime.processes import Processes

Checking = Callable[[Source], AbstractContextManager[Callable[[int], None]]]
"""Shows how far the reading of a source has come."""


@dataclass(frozen=True, kw_only=True)
class FewShot:
    """The images of the score."""

    learn: Source
    """Every image that some choice learns from, once."""
    choices: tuple[np.ndarray, ...]
    """Places in `learn`, for each of several choices."""
    test: Source
    shots: int


def open_few_shot(config: DataConfig, checking: Checking) -> FewShot | None:
    """Open what the config names, and read the images that will be needed; none where it names nothing."""
    if config.few_shot is None:
        return None
    root = Path(config.few_shot_root) if config.few_shot_root else None
    whole = open_data(config.few_shot, "train", options=OpenOptions(root=root, download=config.download))
    if whole.labels.is_multi:
        raise DataError("the images have several classes each", wanted="one, for a few-shot score", where=whole.name)
    same = OpenOptions(root=root, download=config.download, classes=whole.classes)
    try:
        test = open_data(config.few_shot, "test", options=same)
    except MissingSplit:
        test = _val(config, same)
    chosen = [choose_shots(whole.labels.values, config.few_shot_shots, seed, whole.classes) for seed in range(SEEDS)]
    places = np.unique(np.concatenate(chosen))
    learn = Part(whole, places, f"{config.few_shot_shots} of each class of {whole.split}")
    for source in (learn, test):
        with checking(source) as advance:
            preflight(source, policy=DecodePolicy(), fix="mend them or take them away", progress=advance)
    return FewShot(
        learn=learn,
        choices=tuple(np.searchsorted(places, choice) for choice in chosen),
        test=test,
        shots=config.few_shot_shots,
    )


def _val(config: DataConfig, options: OpenOptions) -> Source:
    assert config.few_shot is not None
    try:
        return open_data(config.few_shot, "val", options=options)
    except MissingSplit:
        raise DataError(
            "there is neither a test nor a val part to measure the few-shot score on",
            where=config.few_shot,
            fix=f"Give it a folder test/ or val/ beside train/, or name other data with {setting('data.few_shot')}.",
        ) from None


def score(
    few_shot: FewShot,
    subject: Subject,
    features: Callable[[Tensor], Tensor],
    *,
    batch_size: int,
    workers: int,
    processes: Processes,
    advance: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """The share of test images that is right, as a mean over choices, by big_vision's closed form with its l2.

    `features` are those of the subject's model with the weights to measure.
    """
    how = {"batch_size": batch_size, "workers": workers, "processes": processes, "advance": advance}
    learnt, measured = (
        extract_features(subject, source, network=features, **how) for source in (few_shot.learn, few_shot.test)
    )
    return processes.first_says(lambda: _counted(few_shot, learnt, measured, subject))


def _counted(few_shot: FewShot, learnt: np.ndarray, measured: np.ndarray, subject: Subject) -> dict[str, Any]:
    # Others than CUDA GPUs have no float64.
    device = subject.device if subject.device.type == "cuda" else "cpu"
    classes, right = few_shot.learn.labels.values, []
    for choice in few_shot.choices:
        solved = decompose(learnt[choice], classes[choice], len(few_shot.learn.classes), device)
        right.append(solved.count_right(solved.weights(L2), measured, few_shot.test.labels.values))
    images = len(few_shot.test)
    return {
        "data": few_shot.test.name,
        "shots": few_shot.shots,
        "accuracy": sum(right) / (len(right) * images),
        "images": images,
        "right": right,
    }
