"""A network as it is exported: logits and features, with constants computed ahead and in a form that runtimes like."""

import copy
import functools

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import UsageError, setting
from vitrail.exporting.any_grid import AnyGridEmbedding, AnyGridPositions, AnyGridRelative, Seen
from vitrail.models import Classifier
from vitrail.models.attention import Attention
from vitrail.models.bit import BitResNet
from vitrail.models.standardised_conv import StandardisedConv2d, pad_same
from vitrail.models.vit import VisionTransformer


class TwoOutputs(nn.Module):
    """`(logits, features)`; a network without classes gives its features twice."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.model.features(images)
        return self.model.head(features) if self.model.config.num_classes else features.clone(), features


class SplitAttention(nn.Module):
    """The attention of a block with a product each for q, k and v, and the softmax written out.

    Runtimes join these products with their transposes into one kernel, where the slices of one joined product would be
    copied. The scale of the logits is in the weights of q.
    """

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.heads, self.relative, self.output = attention.num_heads, attention.relative, attention.output
        weights, biases = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
        scale = (weights[0].shape[0] // self.heads) ** -0.5
        self.query = _linear(weights[0] * scale, biases[0] * scale)
        self.key, self.value = (_linear(weights[part], biases[part]) for part in (1, 2))

    def forward(self, z: Tensor) -> Tensor:
        return self._attend(z, z)

    def first_token(self, z: Tensor) -> Tensor:
        """What `forward` gives for the first token alone."""
        return self._attend(z[:, :1], z)

    def _attend(self, asking: Tensor, z: Tensor) -> Tensor:
        q, k, v = (
            layer(tokens).unflatten(-1, (self.heads, -1)).permute(axes)
            for layer, tokens, axes in (
                (self.query, asking, (0, 2, 1, 3)),
                (self.key, z, (0, 2, 3, 1)),
                (self.value, z, (0, 2, 1, 3)),
            )
        )
        logits = q @ k
        if self.relative is not None:
            logits = logits + self.relative(q)
        return self.output((torch.softmax(logits, dim=-1) @ v).transpose(1, 2).flatten(2))


class FixedConv(nn.Module):
    """A convolution whose kernel is standardised once and for all."""

    def __init__(self, convolution: StandardisedConv2d) -> None:
        super().__init__()
        self.weight = nn.Parameter(convolution.standardised().detach(), requires_grad=False)
        self.same, self.stride, self.padding = convolution.same, convolution.stride, convolution.padding

    def forward(self, x: Tensor) -> Tensor:
        if self.same:
            x = pad_same(x, self.weight.shape[-1], self.stride[0])
        return functional.conv2d(x, self.weight, None, self.stride, self.padding)


def exportable(model: Classifier, *, any_size: bool, split_attention: bool) -> TwoOutputs:
    """A copy on the CPU that computes the same in a form that can be exported."""
    model = copy.deepcopy(getattr(model, "_orig_mod", model)).float().cpu().eval().requires_grad_(False)
    if isinstance(model, VisionTransformer) and any_size:
        _free_grid(model)
    if isinstance(model, BitResNet):
        model.root_map = functools.partial(_root_map, model)
    _replace(model, StandardisedConv2d, FixedConv)
    if split_attention:
        _replace(model, Attention, SplitAttention)
    return TwoOutputs(model).eval()


def _free_grid(model: VisionTransformer) -> None:
    """Make the network take images of any size."""
    if model.has_own_position:
        raise UsageError(
            "the network has a position embedding of its own, which cannot be resized",
            fix=f"Export without {setting('any_size', True)}.",
        )
    seen = Seen()
    model.embedding = AnyGridEmbedding(model.embedding, seen)  # type: ignore[assignment]
    model.positions = nn.ModuleList(AnyGridPositions(position, model.config, seen) for position in model.positions)
    for block in model.blocks:
        if block.attention.relative is not None:  # type: ignore[union-attr]
            block.attention.relative = AnyGridRelative(block.attention.relative)  # type: ignore[union-attr,arg-type]


def _root_map(model: BitResNet, images: Tensor) -> Tensor:
    """The root of a BiT with its padding apart from its pooling.

    onnxruntime joins the two (seen in 1.31), and then pads with minus infinity what was padded with zeros.
    """
    value = 0.0 if model.config.pool_padding == "zero" else float("-inf")
    padded = functional.pad(model.root(images).unsqueeze(1), (1, 1, 1, 1), value=value)
    return functional.max_pool2d(padded.squeeze(1), 3, 2)


def _replace(module: nn.Module, old: type[nn.Module], new: type[nn.Module]) -> None:
    for name, child in module.named_children():
        if isinstance(child, old):
            setattr(module, name, new(child))
        else:
            _replace(child, old, new)


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight, layer.bias = (nn.Parameter(tensor.detach(), requires_grad=False) for tensor in (weight, bias))
    return layer
