"""Optimiser, schedule and length of a training run: values only."""

from dataclasses import dataclass
from typing import Literal, get_args

from vitrail.config.checks import chance, count, positive, small_number
from vitrail.errors import UsageError, choose

Optimizer = Literal["adam", "sgd", "muon"]
Decay = Literal["linear", "cosine", "steps", "constant"]
Loss = Literal["sigmoid", "softmax"]
Precision = Literal["float32", "bfloat16"]
Keep = Literal["best", "last"]
Parallel = Literal["auto", "ddp", "fsdp"]
"""A copy of the network in each process (DDP), a part of it in each (FSDP2), or the one that suits its size."""


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The update rule."""

    optimizer: Optimizer
    """Adam with decoupled weight decay, SGD with momentum, or Muon for kernels of the blocks and Adam for the rest."""
    lr: float
    """Base learning rate, reached at the end of the warm-up."""
    weight_decay: float = 0.0
    """On kernels only. Adam and Muon: decoupled and multiplied by the learning rate. SGD: added to the gradient."""
    momentum: float = 0.9
    """Of SGD and Muon."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Of Adam, also beside Muon."""
    epsilon: float = 1e-8
    """Of Adam."""
    clip: float | None = None
    """Largest global norm of the gradient; none leaves it alone."""
    layer_decay: float = 1.0
    """Factor on the learning rate from each block to the one below it; 1 treats all alike."""
    freeze: int = 0
    """First blocks that stay as they are, with the embedding below them; -1 trains the head alone."""

    def __post_init__(self) -> None:
        choose("optimizer", self.optimizer, get_args(Optimizer))
        for name in ("lr", "weight_decay", "epsilon"):
            small_number(name, getattr(self, name))
        chance("momentum", self.momentum)
        for beta in self.betas:
            chance("a beta", beta)
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"clip is {self.clip}", wanted="a number above 0, or none")
        if not 0 < self.layer_decay <= 1:
            raise UsageError(f"layer_decay is {self.layer_decay}", wanted="a factor in (0, 1]")
        if self.freeze < -1:
            raise UsageError(f"freeze is {self.freeze}", wanted="a number of blocks, or -1 for all but the head")


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning rate over time."""

    decay: Decay
    """Shape of the curve after the warm-up; steps divides by ten at each boundary."""
    warmup_steps: int = 0
    """Steps of linear warm-up, which multiplies the decay curve."""
    warmup_share: float = 0.0
    """Share of the run that is warm-up, in place of warmup_steps."""
    linear_end: float = 1e-5
    """Where a linear decay ends."""
    boundaries: tuple[int, ...] = ()
    """Steps after which decay=steps divides the rate by ten."""
    lr: float | None = None
    """Base learning rate; a run takes it from the optimiser."""
    steps: int | None = None
    """Length; a run takes it from its epochs or steps."""

    def __post_init__(self) -> None:
        choose("decay", self.decay, get_args(Decay))
        count("warmup_steps", self.warmup_steps, at_most=2**40)
        chance("warmup_share", self.warmup_share)
        small_number("linear_end", self.linear_end)
        if list(self.boundaries) != sorted(self.boundaries):
            raise UsageError(f"boundaries are {self.boundaries}", wanted="steps in rising order")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The length and the objective of a run; exactly one of epochs and steps is set."""

    batch_size: int
    """Images per update, whatever fits into memory at a time."""
    loss: Loss
    """Sigmoid cross-entropy sums over classes; softmax is the usual one."""
    epochs: int | None = None
    """Passes over the training set."""
    steps: int | None = None
    """Updates."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes."""
    average: float = 0.0
    """Decay of the Polyak average of the weights, which is then what is evaluated and kept; 0 is off."""
    seed: int = 0
    """Decides the first weights, the order of the images, their augmentation and dropout."""
    micro_batch: int | None = None
    """Images at a time in each process; gradients of several make up a batch. As many as fit if not said."""
    precision: Precision = "float32"
    """Of the arithmetic; weights and moments are always float32."""
    compile: bool = False
    """torch.compile, and on a GPU one CUDA graph for the whole step."""
    checkpoint_activations: bool = False
    """Compute each block a second time in the backward pass instead of keeping its activations."""
    deterministic: bool = False
    """Only kernels that give the same bits every time; on a GPU slower."""
    evaluate_every: int | None = None
    """Epochs between evaluations, each of which ends with a checkpoint; twenty in a run if not said."""
    save_minutes: float = 10.0
    """Longest time without a checkpoint."""
    log_every: int = 10
    """Steps per line of the log."""
    time_limit: float | None = None
    """Minutes of training; the number of steps is set from the speed of the first ones."""
    keep: Keep = "best"
    """The model that is kept: the best on held-out images, or the last."""

    def __post_init__(self) -> None:
        choose("loss", self.loss, get_args(Loss))
        choose("precision", self.precision, get_args(Precision))
        choose("keep", self.keep, get_args(Keep))
        for name in ("batch_size", "log_every"):
            positive(name, getattr(self, name))
        if (self.epochs is None) == (self.steps is None):
            raise UsageError(
                f"epochs is {self.epochs} and steps is {self.steps}", wanted="exactly one of them, and the other none"
            )
        for name in ("epochs", "steps", "micro_batch", "evaluate_every"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name), at_most=2**40)
        for name in ("label_smoothing", "average"):
            chance(name, getattr(self, name))
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise UsageError(f"seed is {self.seed}", wanted="a whole number from 0 up to 2^63")
        if not self.save_minutes > 0:
            raise UsageError(f"save_minutes is {self.save_minutes}", wanted="a number above 0")
        if self.time_limit is not None and not self.time_limit > 0:
            raise UsageError(f"time_limit is {self.time_limit}", wanted="minutes, more than 0")
