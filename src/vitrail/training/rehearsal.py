"""One micro-batch of training on tensors without data, and what is alive at every moment of it.

Every moment holds so many bytes whatever the images, and so many for each image: two rehearsals of different size give
both, and with them the memory of any micro-batch. A compiled step keeps for its backward pass what an eager one keeps:
torch's partitioner recomputes only what is free.
"""

import functools
import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from vitrail.config import ModelConfig, OptimConfig, TrainConfig
from vitrail.models import Classifier, bit, resnet
from vitrail.models.block import Block
from vitrail.models.empty import build_empty
from vitrail.models.live_memory import LiveMemory
from vitrail.training.memory import checkpoint_blocks
from vitrail.training.objective import build_objective
from vitrail.training.optimizer import learning

KINDS = ("casts", "activations", "temporaries", "gradients")
_FEW, _MORE = 8, 16


@dataclass(frozen=True)
class Rehearsal:
    """What a step of training holds beside the state of its optimiser, in bytes."""

    weights: int
    """Parameters and buffers."""
    trained: int
    """Parameters that learn."""
    largest_block: int
    """Parameters of the largest block: what is put together at a time where weights are sharded."""
    outside_blocks: int
    """Parameters of the embedding, the norm and the head."""
    fixed: np.ndarray
    """What is alive at each moment, a column for each of KINDS, whatever the number of images."""
    per_image: np.ndarray
    """What each image adds to it."""

    def alive(self, images: int) -> np.ndarray:
        """Bytes at each moment of a micro-batch of so many images, a column for each of KINDS."""
        return self.fixed + images * self.per_image


def rehearse(model: ModelConfig, train: TrainConfig, optim: OptimConfig) -> Rehearsal:
    """Forward, loss and backward of a network as a run has them; the update itself needs no memory of its own."""
    bfloat16 = train.precision == "bfloat16"
    return _rehearse(model, train.loss, bfloat16, train.checkpoint_activations, optim.freeze)


@functools.lru_cache(maxsize=16)
def _rehearse(model: ModelConfig, loss: Any, bfloat16: bool, checkpointed: bool, freeze: int) -> Rehearsal:
    train = TrainConfig(batch_size=1, loss=loss, steps=1)
    network = build_empty(model)
    with FakeTensorMode(allow_non_fake_inputs=True), _no_collection():
        network.to_empty(device="cpu")
        learning(network, OptimConfig(optimizer="sgd", lr=0.0, freeze=freeze))
        network.train()
        if checkpointed:
            checkpoint_blocks(network)
        objective = build_objective(train)
        few, more = (_moments(network, model, objective, bfloat16, images) for images in (_FEW, _MORE))
    per_image = (more - few) / (_MORE - _FEW)
    blocks = [
        _bytes(part.parameters()) for part in network.modules() if isinstance(part, Block | bit.Unit | resnet.Unit)
    ]
    return Rehearsal(
        weights=_bytes(network.parameters()) + _bytes(network.buffers()),
        trained=_bytes(parameter for parameter in network.parameters() if parameter.requires_grad),
        largest_block=max(blocks),
        outside_blocks=_bytes(network.parameters()) - sum(blocks),
        fixed=few - _FEW * per_image,
        per_image=per_image,
    )


def _moments(network: Classifier, model: ModelConfig, objective: Callable, bfloat16: bool, images: int) -> np.ndarray:
    """Bytes of each kind whenever something new was made."""
    batch = torch.empty(images, model.channels, *model.image_size)
    targets = torch.zeros(images, dtype=torch.int64)
    live = _Kinds(network)
    with _AsOnCuda(), live, torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        logits = network(batch)
    with _AsOnCuda(), live:
        # Leaving autocast lets go of its copies of weights, but for those that the backward pass needs.
        losses = objective(logits.float(), targets)
        live.label = "temporaries"
        losses.sum().backward()
    for parameter in network.parameters():
        parameter.grad = None
    live.forget()
    return np.array(live.moments, dtype=np.float64)


class _Kinds(LiveMemory):
    """Sorts what is made: copies of weights, what the forward pass makes, what the backward pass makes, gradients."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.label = "activations"
        self.moments: list[tuple[int, ...]] = []
        self._weights = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._arrived)
            for parameter in network.parameters()
            if parameter.requires_grad
        ]

    def label_of(self, func: Any, inputs: Collection[int]) -> str:
        is_cast = func is torch.ops.aten._to_copy.default and not self._weights.isdisjoint(inputs)
        return "casts" if is_cast else self.label

    def grew(self) -> None:
        self.moments.append(tuple(self.now[kind] for kind in KINDS))

    def forget(self) -> None:
        """Leave the network as it was."""
        for hook in self._hooks:
            hook.remove()

    def _arrived(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.relabel(parameter.grad, "gradients")
        self.grew()


class _AsOnCuda(TorchFunctionMode):
    """Tensors without data need no GPU, but some operations keep more or less on one than on a CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (functional.layer_norm, functional.group_norm) and torch.is_autocast_enabled("cpu"):
            # Autocast computes these in float32 on a GPU, and in what comes on a CPU.
            return func(args[0].float(), *args[1:], **kwargs)
        if func is functional.dropout:
            return _dropout(*args, **kwargs)
        if func is functional.scaled_dot_product_attention:
            # The fused kernels draw dropout themselves and keep nothing of it; those of a CPU cannot.
            kwargs["dropout_p"] = 0.0
        return func(*args, **kwargs)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """A GPU keeps one byte for each number, a CPU another number."""
    return torch.native_dropout(input, p, train=True)[0] if training and p else input


@contextmanager
def _no_collection() -> Iterator[None]:
    """Memory is given back where a step gives it back, and not when Python's collector happens to come by."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
