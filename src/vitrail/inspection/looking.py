"""Looking at a network without changing it: which kinds can be looked at, which layers, how many images at a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vitrail.errors import DataError, UsageError
from vitrail.models import Classifier, PeerNetwork, VisionTransformer

# Numbers that the tokens of all layers may take at a time: a quarter of a gigabyte of float32.
_MOST_NUMBERS = 2**26
# What a block holds beside its input and output, in widths of a token: normed tokens, q, k and v, the wide MLP.
_WIDTHS_OF_A_BLOCK = 12

# Images at a time through a network whose widths are not known here.
_OF_ANOTHER_PACKAGE = 32


class NoAttention(UsageError):
    """A network without attention that was asked for something that needs it."""


def transformer(model: nn.Module, what: str) -> VisionTransformer:
    """The model, where it is one with attention; `what` is the thing that needs it."""
    if not isinstance(model, VisionTransformer):
        shows = f"{model.config.title} shows no" if isinstance(model, PeerNetwork) else f"{type(model).__name__} has no"
        raise NoAttention(
            f"{shows} attention, so there is no {what}",
            wanted="a Vision Transformer or a hybrid",
            fix="The filters of its first convolution can be seen, and occlusion works with every network.",
        )
    return model


def chosen_layers(model: VisionTransformer, layers: Iterable[int] | None) -> list[int]:
    """Layers as numbers from 0, in the order asked for; negative ones count from the end, none means all."""
    depth = model.config.depth
    if layers is None:
        return list(range(depth))
    found = []
    for layer in layers:
        if not -depth <= layer < depth:
            raise UsageError(
                f"layer {layer} is not there",
                wanted=f"a number from 0 to {depth - 1}, or from -{depth} to -1 counted from the end",
            )
        found.append(layer % depth)
    if not found:
        raise UsageError("there are no layers to look at", wanted="at least one")
    return found


@contextmanager
def looking(model: nn.Module) -> Iterator[None]:
    """Without dropout and without gradients; afterwards every module trains as it did before."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def in_parts(model: Classifier, images: Tensor) -> Iterator[Tensor]:
    """The images on the network's device, few enough at a time that the tokens of all layers fit."""
    if images.ndim != 4 or not len(images):
        raise UsageError(
            f"the images have the shape {tuple(images.shape)}", wanted="(batch, channels, height, width), one or more"
        )
    weight = next(model.parameters())
    for part in images.split(images_at_a_time(model)):
        yield part.to(weight.device, weight.dtype)


def images_at_a_time(model: Classifier) -> int:
    """How many images go through the network together."""
    if isinstance(model, PeerNetwork):
        return _OF_ANOTHER_PACKAGE
    config = model.config
    layers = config.depth if isinstance(model, VisionTransformer) else 1
    return max(1, _MOST_NUMBERS // (config.tokens * config.width * (layers + _WIDTHS_OF_A_BLOCK)))


def states(model: VisionTransformer, images: Tensor) -> Iterator[Tensor]:
    """The tokens `z_0` to `z_L` (1-3), each computed when it is asked for."""
    z = model.embed(images)
    yield z
    for layer, block in enumerate(model.blocks):
        z = block(model.enter(layer, z))
        yield z


def probabilities(model: nn.Module, logits: Tensor) -> Tensor:
    """Softmax over classes, or a sigmoid of each where the network learnt each by itself, as evaluation reads it."""
    is_sigmoid = getattr(model, "provenance", {}).get("loss") == "sigmoid"
    return logits.float().sigmoid() if is_sigmoid else torch.softmax(logits.float(), dim=-1)


def finite(found: Tensor, what: str) -> Tensor:
    """The numbers, when they are some."""
    # A sum is finite when its terms are, and takes no copy of what may be gigabytes.
    if not torch.isfinite(found.sum()):
        raise DataError(f"{what} is not finite", wanted="numbers", fix="Look at the weights: a run may have diverged.")
    return found
