"""The principal components of the filters that read pixels (Figure 7, left)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitrail.config.checks import positive
from vitrail.errors import UsageError
from vitrail.inspection.looking import finite
from vitrail.models import BitResNet, PeerNetwork, VisionTransformer
from vitrail.models.conv_stem import ConvStem
from vitrail.models.resnet import ResNet
from vitrail.models.standardised_conv import StandardisedConv2d


@dataclass(frozen=True)
class Filters:
    """The first principal components of a layer's filters."""

    components: Tensor
    """(components, height, width, channels), each brought to [0, 1] by its own least and largest number."""
    shares: Tensor
    """The share of the filters' variance that each explains, falling."""
    layer: str
    """Whose filters they are, in words."""
    count: int
    """How many filters there are."""


def embedding_filters(model: nn.Module, components: int = 28) -> Tensor:
    """Principal components of the filters that read pixels: (components, patch_h, patch_w, channels) in [0, 1].

    The patch projection E of equation (1); in hybrids, convolutional stems and BiT the first convolution, as it is
    applied. Fewer where there are no more: a 4x4 grey patch has 16 numbers, hence 16 components.
    """
    return principal_filters(model, components).components


def principal_filters(model: nn.Module, components: int = 28) -> Filters:
    """The same with what each component explains: the filters as vectors, centred, and their right singular vectors."""
    positive("components", components)
    layer, weights = _first_layer(model)
    filters = finite(weights.detach().double().cpu(), "the first layer")
    vectors = filters.flatten(1) - filters.flatten(1).mean(dim=0)
    _, scales, directions = torch.linalg.svd(vectors, full_matrices=False)
    # Centred, so many filters span one dimension less.
    kept = min(components, max(1, len(filters) - 1), vectors.shape[1])
    found = directions[:kept]
    # The sign of a singular vector is anybody's choice: here the largest number is positive.
    largest = found.gather(1, found.abs().argmax(dim=1, keepdim=True))
    found = found * torch.where(largest < 0, -1.0, 1.0)
    low, high = found.min(dim=1, keepdim=True).values, found.max(dim=1, keepdim=True).values
    scaled = (found - low) / (high - low).clamp(min=torch.finfo(found.dtype).tiny)
    variance = scales.square()
    return Filters(
        components=scaled.unflatten(1, filters.shape[1:]).permute(0, 2, 3, 1).float().contiguous(),
        shares=(variance / variance.sum().clamp(min=torch.finfo(variance.dtype).tiny))[:kept].float(),
        layer=layer,
        count=len(filters),
    )


def _first_layer(model: nn.Module) -> tuple[str, Tensor]:
    """The filters that read pixels, and their name."""
    if isinstance(model, BitResNet):
        return "root convolution", _applied(model.root)
    if isinstance(model, PeerNetwork):
        return "first convolution", _first_convolution(model)
    if not isinstance(model, VisionTransformer):
        raise UsageError(f"{type(model).__name__} is no network of ours", wanted="a Vision Transformer, hybrid or BiT")
    backbone = model.embedding.backbone
    if isinstance(backbone, ResNet):
        return "root convolution of the ResNet", _applied(backbone.root.convolution)
    if isinstance(backbone, ConvStem):
        return "first convolution of the stem", backbone.layers[0].convolution.weight  # type: ignore[union-attr]
    return "patch embedding", model.embedding.projection.weight


def _first_convolution(model: PeerNetwork) -> Tensor:
    found = next((part for part in model.body.modules() if isinstance(part, nn.Conv2d)), None)
    if found is None or found.in_channels != model.config.channels:
        raise UsageError(f"{model.config.title} does not begin with a convolution", wanted="filters that read pixels")
    return found.weight


def _applied(convolution: nn.Module) -> Tensor:
    assert isinstance(convolution, StandardisedConv2d)
    return convolution.standardised()
