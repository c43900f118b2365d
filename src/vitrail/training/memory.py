"""What fits into memory at a time, and what to do when it does not."""

import functools
import os

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from vitrail.config import ModelConfig, PeerConfig, RunConfig, TrainConfig, VitConfig
from vitrail.errors import UsageError, VitrailError, setting
from vitrail.models import PeerNetwork, bit, resnet
from vitrail.models.block import Block
from vitrail.models.cost import kept_bytes
from vitrail.training.schedule import micro_batch, nearest_divisor

# Larger pieces are no faster on a CPU, and fall out of its caches.
_CPU_MICRO_BATCH = 64
# Numbers that autograd keeps for each token of a block, in multiples of its width and of its MLP's.
_KEPT_WIDTHS, _KEPT_MLP_WIDTHS = 9, 3
_SHARE_FOR_ACTIVATIONS = 0.7


class OutOfMemory(VitrailError):
    """Not even the smallest piece of a batch fits."""

    exit_code = 6


def smallest_piece(config: RunConfig) -> int:
    """Images that a piece of a batch needs in each process."""
    # A network of another package may have a BatchNorm over a single cell, which learns nothing from one image.
    return 2 if config.augment.is_mixing or isinstance(config.model, PeerConfig) else 1


def first_micro_batch(
    model: ModelConfig, train: TrainConfig, device: torch.device, smallest: int, processes: int = 1
) -> int:
    """Images at a time over all processes: in each as many as the config says, or as an estimate says will fit."""
    if train.batch_size < smallest * processes:
        raise UsageError(
            f"batch_size is {train.batch_size}",
            wanted=f"at least {smallest} for each of the {processes} processes",
            fix=f"Give {setting('train.batch_size', smallest * processes)} or more, or start fewer processes.",
        )
    if train.micro_batch is not None:
        return micro_batch(train.micro_batch * processes, train.batch_size, smallest * processes)
    free = _free_bytes(device) * _SHARE_FOR_ACTIVATIONS
    fits = max(int(free / _bytes_per_image(model, train)), smallest)
    if device.type == "cpu":
        fits = min(fits, max(_CPU_MICRO_BATCH, smallest))
    return nearest_divisor(fits * processes, train.batch_size, smallest * processes)


def _bytes_per_image(model: ModelConfig, train: TrainConfig) -> float:
    """A rough estimate of what the backward pass of one image needs; running out is met by halving."""
    size = 2 if train.precision == "bfloat16" else 4
    height, width = model.image_size
    image = 4 * 4 * model.channels * height * width
    if isinstance(model, PeerConfig):
        return image + kept_bytes(model) * size / 4
    if not isinstance(model, VitConfig):
        # The early stages dominate: about three maps of 4 x width channels at a quarter of the side, per unit.
        return image + size * 3 * 4 * model.width * height * width / 16 * sum(model.blocks) / 2
    kept = _KEPT_WIDTHS * model.width + _KEPT_MLP_WIDTHS * model.mlp_width
    blocks = 1 + model.depth / 8 if train.checkpoint_activations else model.depth
    stem = 0 if model.backbone is None else 40 * 64 * height * width / 4
    return image + size * (model.tokens * kept * blocks + stem)


def _free_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4e9


def checkpoint_blocks(model: nn.Module) -> None:
    """Keep only what enters each block, and compute the rest again in the backward pass (Chen et al., 2016)."""
    if isinstance(model, PeerNetwork):
        raise UsageError(
            "checkpoint_activations is asked for",
            wanted=f"a network of ours: the blocks of {model.config.title} are its own",
        )
    for module in model.modules():
        if isinstance(module, Block | bit.Unit | resnet.Unit):
            module.forward = functools.partial(_recomputed, module.forward)  # type: ignore[method-assign]


def _recomputed(forward, *inputs):
    return checkpoint(forward, *inputs, use_reentrant=False) if torch.is_grad_enabled() else forward(*inputs)
