"""The ResNet in front of a hybrid: post-activation bottlenecks with GroupNorm, as in the original (3.1)."""

from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitrail.config import ResNetConfig
from vitrail.config.backbone import GROUPS
from vitrail.models.stages import build_stages
from vitrail.models.standardised_conv import StandardisedConv2d, pad_same


class ResNet(nn.Module):
    """Root and stages; the feature map has 1 / stride of the image's sides, rounded up."""

    def __init__(self, config: ResNetConfig, channels: int) -> None:
        super().__init__()
        self.root = Root(config, channels)
        self.stages = build_stages(config.blocks, config.width, partial(Unit, config))

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features map_height map_width"]:
        return self.stages(self.root(images))


class Root(nn.Module):
    """7x7 convolution of stride 2, GroupNorm, ReLU, and 3x3 max-pool of stride 2 padded with minus infinity."""

    def __init__(self, config: ResNetConfig, channels: int) -> None:
        super().__init__()
        self.convolution = _convolution(config, channels, config.width, 7, 2)
        self.norm = nn.GroupNorm(GROUPS, config.width, eps=config.group_norm_epsilon)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.convolution(images)))
        return functional.max_pool2d(pad_same(x, 3, 2, value=float("-inf")), 3, 2)


class Unit(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions, each normed, added to the input before the last ReLU."""

    def __init__(self, config: ResNetConfig, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs, epsilon = width * 4, config.group_norm_epsilon
        self.convolution1 = _convolution(config, inputs, width, 1)
        self.norm1 = nn.GroupNorm(GROUPS, width, eps=epsilon)
        self.convolution2 = _convolution(config, width, width, 3, stride)
        self.norm2 = nn.GroupNorm(GROUPS, width, eps=epsilon)
        self.convolution3 = _convolution(config, width, outputs, 1)
        self.norm3 = nn.GroupNorm(GROUPS, outputs, eps=epsilon)
        nn.init.zeros_(self.norm3.weight)  # every unit begins as identity
        changes = stride != 1 or inputs != outputs
        self.projection = _convolution(config, inputs, outputs, 1, stride) if changes else None
        self.projection_norm = nn.GroupNorm(GROUPS, outputs, eps=epsilon) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        if self.projection is not None and self.projection_norm is not None:
            residual = self.projection_norm(self.projection(x))
        y = functional.relu(self.norm1(self.convolution1(x)))
        y = functional.relu(self.norm2(self.convolution2(y)))
        return functional.relu(residual + self.norm3(self.convolution3(y)))


def _convolution(
    config: ResNetConfig, inputs: int, outputs: int, kernel_size: int, stride: int = 1
) -> StandardisedConv2d:
    return StandardisedConv2d(
        inputs,
        outputs,
        kernel_size,
        stride,
        same=True,
        standardisation=config.standardisation,
        epsilon=config.standardisation_epsilon,
    )
