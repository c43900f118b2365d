"""The paper's optimisers over a network: who is decayed, who learns how fast, who stays as it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.config import OptimConfig, VitConfig
from vitrail.errors import UsageError
from vitrail.models import Classifier, PeerNetwork
from vitrail.training.muon import Muon

# Position tables and tokens are matrices, but no kernels.
_NOT_KERNELS = re.compile(r"(^|\.)(positions|class_token|mask_token|registers|relative|probe)(\.|$)")
MOMENTS = {"adam": 2, "sgd": 1, "muon": 2}
"""Numbers that an optimiser remembers for each weight, at most: Muon only one for those of the blocks."""
_BLOCK = re.compile(r"blocks\.(\d+)\.")
# What reads the last block; the last two of a network that learns without labels.
_ABOVE = ("norm.", "pre_logits.", "pooling.", "prediction.", "decoder.")


@dataclass(frozen=True)
class Place:
    """What a parameter that learns is called, and how far below the head it is."""

    name: str
    is_kernel: bool
    """Of a dense layer or convolution: those alone are decayed."""
    below: int
    """0 for the norm and head above the blocks, 1 for the last block, depth + 1 for the embedding."""
    matrices: int
    """How many lie joined in a kernel of a block, which Muon moves one by one; 0 for what it leaves to Adam."""


def build_optimizer(
    model: Classifier, optim: OptimConfig, weights: Mapping[str, Tensor] | None = None
) -> torch.optim.Optimizer:
    """AdamW or SGD as the original computes them: `p -= lr * (adam(g) + weight_decay * p)`, decay on kernels only.

    Each group carries `scale`, its factor on the learning rate, and all state is there before the first step.
    `weights` are the tensors to move, by name, where those are not the parameters themselves.
    """
    weights = dict(model.named_parameters()) if weights is None else weights
    groups: dict[tuple[bool, int, float], list[Tensor]] = {}
    for place in learning(model, optim):
        scale = optim.layer_decay**place.below
        matrices = place.matrices if optim.optimizer == "muon" else 0
        groups.setdefault((place.is_kernel, matrices, scale), []).append(weights[place.name])
    if not groups:
        raise UsageError(f"freeze is {optim.freeze}", wanted="at least the head left to train")
    if optim.optimizer == "muon" and not isinstance(model.config, VitConfig):
        raise UsageError(
            "the optimiser is muon", wanted="adam or sgd for a network that is no Vision Transformer of ours"
        )
    listed = [
        {
            "params": parameters,
            "lr": optim.lr * scale,
            "scale": scale,
            "weight_decay": optim.weight_decay if is_kernel else 0.0,
            "matrices": matrices,
        }
        for (is_kernel, matrices, scale), parameters in groups.items()
    ]
    on_gpu = next(iter(weights.values())).is_cuda
    adam = {"lr": optim.lr, "betas": optim.betas, "eps": optim.epsilon, "fused": True, "capturable": on_gpu}
    match optim.optimizer:
        case "adam":
            optimizer = torch.optim.AdamW(listed, **adam)
        case "sgd":
            optimizer = torch.optim.SGD(listed, lr=optim.lr, momentum=optim.momentum, fused=True)
        case "muon":
            optimizer = Muon(listed, momentum=optim.momentum, **adam)
    _start_state(optimizer)
    return optimizer


def learning(model: Classifier, optim: OptimConfig) -> tuple[Place, ...]:
    """The parameters that learn; the others are told that they do not."""
    found = []
    depth = _depth(model)
    if optim.freeze > depth:
        raise UsageError(f"freeze is {optim.freeze}", wanted=f"at most the {depth} blocks of this network")
    for name, parameter in model.named_parameters():
        is_head = name.startswith("head.")
        block = _BLOCK.match(name)
        layer = depth + 1 if is_head or name.startswith(_ABOVE) else 0
        layer = int(block[1]) + 1 if block and depth else layer
        frozen = not is_head if optim.freeze == -1 else optim.freeze > 0 and layer <= optim.freeze
        parameter.requires_grad_(not frozen)
        if not frozen:
            is_kernel = parameter.ndim > 1 and _may_be_kernel(name, model)
            found.append(Place(name, is_kernel, depth + 1 - layer, _matrices(name) if block and is_kernel else 0))
    return tuple(found)


def moments(optimizer: torch.optim.Optimizer, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Everything the optimiser remembers, by what it is and for which parameter; the tensors themselves."""
    names = {weight: name for name, weight in weights.items()}
    return {
        f"{kind}/{names[parameter]}": value
        for parameter, state in optimizer.state.items()
        for kind, value in state.items()
    }


def _may_be_kernel(name: str, model: Classifier) -> bool:
    """Other packages have other names for tables and tokens, but all call a kernel a weight."""
    if isinstance(model, PeerNetwork):
        return name.endswith("weight")
    return not _NOT_KERNELS.search(name)


def _matrices(kernel: str) -> int:
    return 3 if kernel.endswith("attention.qkv.weight") else 1


def _depth(model: Classifier) -> int:
    return model.config.depth if isinstance(model.config, VitConfig) else 0


def _start_state(optimizer: torch.optim.Optimizer) -> None:
    """Zero moments, as the originals start, so that a step is the same program from the first on."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            zeros = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            if isinstance(optimizer, torch.optim.AdamW | Muon) and not group["matrices"]:
                step = torch.zeros((), dtype=torch.float32, device=parameter.device)
                optimizer.state[parameter] = {"step": step, "exp_avg": zeros, "exp_avg_sq": zeros.clone()}
            else:
                optimizer.state[parameter] = {"momentum_buffer": zeros}
