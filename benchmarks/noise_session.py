"""A session of `vitrail train` on noise, for benchmarks of steps and loops without data."""

from typing import Any

import numpy as np
import torch
from torch import nn

from vitrail.config import (
    AugmentConfig,
    DataConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
    preset,
)
from vitrail.data import Arrays, Labels
from vitrail.training.progress import Progress
from vitrail.training.session import Session
from vitrail.training.sources import RunData
from vitrail.training.spread import Placement


class _Noise(Arrays):
    def digest(self) -> str:
        return "noise"


def noise_config(model: ModelConfig, *, batch: int, steps: int, **train: Any) -> RunConfig:
    """Adam, clipping and softmax cross-entropy on one batch after another, all at a time."""
    return RunConfig(
        recipe="benchmark",
        model=model,
        preprocessing=preset("google"),
        data=DataConfig(data="noise"),
        augment=AugmentConfig(),
        optim=OptimConfig(optimizer="adam", lr=1e-4, weight_decay=0.1, clip=1.0),
        schedule=ScheduleConfig(decay="cosine"),
        train=TrainConfig(batch_size=batch, micro_batch=batch, loss="softmax", steps=steps, **train),
    )


def noise_session(
    config: RunConfig, network: nn.Module, device: torch.device, placement: Placement | None = None
) -> Session:
    """The session of a run whose images are nothing, and so many that no epoch ends."""
    model, train = config.model, config.train
    assert train.steps is not None
    names = tuple(str(number) for number in range(model.num_classes))
    labels = Labels.of(np.zeros(train.batch_size * (train.steps + 1), dtype=np.int64), model.num_classes)
    pixels = np.broadcast_to(np.zeros((1, 1, 1, model.channels), dtype=np.uint8), (len(labels), 1, 1, model.channels))
    data = RunData(train=_Noise("noise", "train", names, labels, pixels), held_out=None, test=None, workers=0)
    progress = Progress(steps=train.steps, micro_batch=train.batch_size)
    return Session(config, network, data, progress, device, placement=placement)  # type: ignore[arg-type]
