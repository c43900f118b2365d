"""Which way a network is spread over the processes of a run."""

from dataclasses import dataclass

import torch

from vitrail.config import OptimConfig, TrainConfig
from vitrail.config.training import Parallel
from vitrail.models import Classifier
from vitrail.runtime.processes import Processes
from vitrail.train.copies import Copies
from vitrail.train.optimizer import MOMENTS
from vitrail.train.parts import Parts
from vitrail.train.spread import Whole

SHARE_FOR_STATE = 0.4
"""Of a GPU: a copy whose weights, gradients, moments and average take no more leaves enough for activations."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The processes of a run, and how its network is spread over them."""

    processes: Processes
    parallel: Parallel = "auto"


def spread_out(model: Classifier, train: TrainConfig, optim: OptimConfig, placement: Placement | None) -> Whole:
    """A network spread as asked; where it is not said, a copy in each process unless those are too large."""
    if placement is None or placement.processes.control is None:
        return Whole(model, compiled=train.compile)
    parallel = placement.parallel
    if parallel == "auto":
        parallel = "fsdp" if _is_large(model, train, optim) else "ddp"
    kind = Parts if parallel == "fsdp" else Copies
    return kind(model, placement.processes, compiled=train.compile)


def _is_large(model: Classifier, train: TrainConfig, optim: OptimConfig) -> bool:
    """Whether what a copy holds besides activations leaves too little of a GPU for them."""
    weight = next(model.parameters())
    if not weight.is_cuda:
        return False
    # Weights and gradients, and with an average that and its distance from the weights.
    tensors = 2 + MOMENTS[optim.optimizer] + (2 if train.average else 0)
    held = tensors * sum(parameter.nbytes for parameter in model.parameters())
    return held > SHARE_FOR_STATE * torch.cuda.get_device_properties(weight.device).total_memory
