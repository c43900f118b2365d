"""Which way a network is spread over the processes of a run."""

from dataclasses import dataclass

import torch

from vitrail.config import OptimConfig, TrainConfig
from vitrail.config.training import Parallel
from vitrail.errors import UsageError, setting
from vitrail.models import Classifier, PeerNetwork
from vitrail.runtime.processes import Processes
from vitrail.training.copies import Copies
from vitrail.training.optimizer import MOMENTS
from vitrail.training.parts import Parts
from vitrail.training.spread import Whole

SHARE_FOR_STATE = 0.4
"""Of a GPU: a copy whose weights, gradients, moments and average take no more leaves enough for activations."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The processes of a run, and how its network is spread over them."""

    processes: Processes
    parallel: Parallel = "auto"


def kind_of_spread(
    model: Classifier, train: TrainConfig, optim: OptimConfig, device: torch.device, placement: Placement | None
) -> type[Whole]:
    """As asked; where it is not said, a copy in each of several processes unless one of them has no room for it."""
    if placement is None or placement.processes.control is None:
        return Whole
    if placement.parallel == "fsdp" and optim.optimizer == "muon":
        raise UsageError(
            "the optimiser is muon and the network in parts (fsdp)",
            wanted=f"whole matrices, as {setting('parallel', 'ddp')} has them, or another {setting('optim.optimizer')}",
        )
    if isinstance(model, PeerNetwork):
        if placement.parallel == "fsdp":
            raise UsageError(
                "a network of another package is asked for in parts (fsdp)",
                wanted=f"a copy in each process, as {setting('parallel', 'ddp')} has it: its blocks are not known here",
            )
        return Whole if placement.processes.ranks == 1 and placement.parallel == "auto" else Copies
    if placement.parallel != "auto":
        return Parts if placement.parallel == "fsdp" else Copies
    if placement.processes.ranks == 1:
        return Whole
    if optim.optimizer == "muon":
        return Copies
    return Parts if placement.processes.agree(_is_large(model, train, optim, device))[0] else Copies


def _is_large(model: Classifier, train: TrainConfig, optim: OptimConfig, device: torch.device) -> bool:
    """Whether what a copy holds besides activations leaves too little of a GPU for them."""
    if device.type != "cuda":
        return False
    # Weights and gradients, and with an average that and its distance from the weights.
    tensors = 2 + MOMENTS[optim.optimizer] + (2 if train.average else 0)
    held = tensors * sum(parameter.nbytes for parameter in model.parameters())
    return held > SHARE_FOR_STATE * torch.cuda.get_device_properties(device).total_memory
