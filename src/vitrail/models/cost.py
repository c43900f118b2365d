"""What a network costs: parameters, multiply-adds and memory, measured on tensors without data."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from vitrail.config import ModelConfig
from vitrail.models.conv_stem import ConvStem
from vitrail.models.embedding import PatchEmbedding
from vitrail.models.empty import build_empty
from vitrail.models.live_memory import LiveMemory
from vitrail.models.peer import PeerNetwork
from vitrail.models.resnet import ResNet
from vitrail.models.vit import VisionTransformer


def _attention_flops(query: torch.Size, key: torch.Size, value: torch.Size, *_rest: Any, **_named: Any) -> int:
    """Two products: queries with keys, and what they weigh with values."""
    *rows, queries, width = query
    return 2 * math.prod(rows) * queries * key[-2] * (width + value[-1])


# Not every torch that we take counts the fused attention of CPUs.
_FUSED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops}


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One row of the per-layer table."""

    name: str
    kind: str
    parameters: int
    macs: int
    output: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The bill for one batch; memory is float32 activations, weights not counted."""

    batch: int
    parameters: int
    macs: int
    """Multiply-adds of the forward pass of all tokens, for the whole batch; one is two floating-point operations."""
    inference_bytes: int
    """Most activation memory alive at once without gradients, the input included."""
    training_bytes: int
    """Activation memory that a forward pass keeps for the backward pass."""
    layers: tuple[LayerCost, ...]


def measure_cost(config: ModelConfig, batch: int = 1) -> Cost:
    """Run the network once on tensors that have shapes and no data."""
    model = build_empty(config)
    # Fake CPU tensors, unlike meta ones, take the fused attention path, so memory is what a real run would use.
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        images = torch.empty(batch, config.channels, *config.image_size)
        outputs: dict[str, tuple[int, ...]] = {}
        handles = [module.register_forward_hook(_remember(outputs, name)) for name, module in _parts(model)]
        with FlopCounterMode(display=False, custom_mapping=_FUSED) as counter, torch.no_grad():
            _count_every_token(model.eval(), images)
        for handle in handles:
            handle.remove()
        flops = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
        root = type(model).__name__
        modules = [
            LayerCost(
                name=name,
                kind=type(module).__name__,
                parameters=_parameters(module),
                macs=flops.get(f"{root}.{name}", 0) // 2,
                output=outputs.get(name, ()),
            )
            for name, module in _parts(model)
        ]
        loose = [
            LayerCost(name=name, kind="Parameter", parameters=tensor.numel(), macs=0, output=tuple(tensor.shape))
            for name, tensor in model.named_parameters(recurse=False)
        ]
        return Cost(
            batch=batch,
            parameters=_parameters(model),
            macs=counter.get_total_flops() // 2,
            inference_bytes=_peak_bytes(model, images),
            training_bytes=_training_bytes(model, images),
            layers=(*loose, *modules),
        )


def kept_bytes(config: ModelConfig) -> int:
    """Float32 activations of one image that a forward pass keeps for the backward pass."""
    model = build_empty(config)
    with FakeTensorMode(allow_non_fake_inputs=True):
        return _training_bytes(model.to_empty(device="cpu"), torch.empty(1, config.channels, *config.image_size))


def _count_every_token(model: nn.Module, images: Tensor) -> None:
    """Run the network as the paper counts it; ours leaves out tokens of the last block that nothing reads."""
    if isinstance(model, VisionTransformer):
        shortened, model.reads_one_token = model.reads_one_token, False
        model(images)
        model.reads_one_token = shortened
    else:
        model(images)


def _parts(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers people know by name: containers and backbones are opened, dropout is left out."""
    for name, child in model.named_children():
        is_body = isinstance(model, PeerNetwork) and name == "body"
        opened = is_body or isinstance(child, nn.ModuleList | nn.Sequential | ResNet | ConvStem)
        if opened or (isinstance(child, PatchEmbedding) and child.backbone is not None):
            yield from _parts(child, f"{prefix}{name}.")
        elif not isinstance(child, nn.Dropout):
            yield f"{prefix}{name}", child


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _remember(outputs: dict[str, tuple[int, ...]], name: str) -> Any:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        # Parts of other packages' networks may give several.
        outputs[name] = tuple(output.shape) if isinstance(output, Tensor) else ()

    return hook


def _training_bytes(model: nn.Module, images: Tensor) -> int:
    if len(images) == 1 and any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        # Over a single cell it needs two.
        return _saved_bytes(model, torch.cat([images, images])) // 2
    return _saved_bytes(model, images)


def _saved_bytes(model: nn.Module, images: Tensor) -> int:
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    saved: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        key = tensor.untyped_storage()._cdata
        if key not in weights:
            saved[key] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.train()(images)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def _peak_bytes(model: nn.Module, images: Tensor) -> int:
    with torch.no_grad(), LiveMemory() as live:
        model.eval()(images)
    return live.peak + images.untyped_storage().nbytes()
