"""Optimiser, schedule and length of a training run: values only."""

from dataclasses import dataclass
from typing import Literal

Optimizer = Literal["adam", "sgd"]
Decay = Literal["linear", "cosine"]
Loss = Literal["sigmoid", "softmax"]


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The update rule."""

    optimizer: Optimizer
    """Adam with decoupled weight decay, or SGD with momentum."""
    lr: float
    """Base learning rate, reached at the end of the warm-up."""
    weight_decay: float = 0.0
    """Decoupled and multiplied by the learning rate; on kernels only."""
    momentum: float = 0.9
    """Of SGD."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Of Adam."""
    clip: float | None = None
    """Largest global norm of the gradient; none leaves it alone."""


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning rate over time."""

    decay: Decay
    """Shape of the curve after the warm-up."""
    warmup_steps: int
    """Steps of linear warm-up, which multiplies the decay curve."""
    linear_end: float = 1e-5
    """Where a linear decay ends."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The length and the objective of a run; exactly one of epochs and steps is set."""

    batch_size: int
    """Images per update, whatever the number of devices."""
    loss: Loss
    """Sigmoid cross-entropy sums over classes; softmax is the usual one."""
    epochs: int | None = None
    """Passes over the training set."""
    steps: int | None = None
    """Updates."""
