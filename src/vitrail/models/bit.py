"""BiT: the pre-activation ResNet-v2 that the paper compares with (4.1; Kolesnikov et al., 2020)."""

from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitrail.config import BitConfig
from vitrail.config.backbone import GROUPS
from vitrail.models.classifier import Classifier
from vitrail.models.embedding import check_channels
from vitrail.models.initialise import start_head
from vitrail.models.stages import build_stages
from vitrail.models.standardised_conv import StandardisedConv2d

Images = Float[Tensor, "batch channels height width"]
Map = Float[Tensor, "batch features map_height map_width"]


class BitResNet(Classifier[BitConfig]):
    """Root without a norm, four stages of pre-activation units, GroupNorm, ReLU, global average, linear head."""

    def __init__(self, config: BitConfig) -> None:
        super().__init__(config)
        self.root = _convolution(config, config.channels, config.width, 7, 2)
        self.stages = build_stages(config.blocks, config.width, partial(Unit, config))
        self.norm = nn.GroupNorm(GROUPS, config.feature_width, eps=config.group_norm_epsilon)
        self.head = nn.Linear(config.feature_width, config.num_classes) if config.num_classes else nn.Identity()
        start_head(self.head, config.head_bias)

    def root_map(self, images: Images) -> Map:
        """The root convolution and its 3x3 max-pool of stride 2, padded by one."""
        check_channels(images, self.config.channels)
        value = 0.0 if self.config.pool_padding == "zero" else float("-inf")
        return functional.max_pool2d(functional.pad(self.root(images), (1, 1, 1, 1), value=value), 3, 2)

    def feature_map(self, images: Images) -> Map:
        """What is averaged: the last stage's output after GroupNorm and ReLU."""
        return functional.relu(self.norm(self.stages(self.root_map(images))))

    def tokens(self, images: Images) -> Float[Tensor, "batch tokens dim"]:
        return self.feature_map(images).flatten(2).transpose(1, 2)

    def features(self, images: Images) -> Float[Tensor, "batch dim"]:
        return self.feature_map(images).mean(dim=(2, 3))


class Unit(nn.Module):
    """GroupNorm and ReLU before each of 1x1, 3x3 (strided) and 1x1; a projected shortcut starts after the first."""

    def __init__(self, config: BitConfig, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs, epsilon = width * 4, config.group_norm_epsilon
        self.norm1 = nn.GroupNorm(GROUPS, inputs, eps=epsilon)
        self.convolution1 = _convolution(config, inputs, width, 1)
        self.norm2 = nn.GroupNorm(GROUPS, width, eps=epsilon)
        self.convolution2 = _convolution(config, width, width, 3, stride)
        self.norm3 = nn.GroupNorm(GROUPS, width, eps=epsilon)
        self.convolution3 = _convolution(config, width, outputs, 1)
        changes = stride != 1 or inputs != outputs
        self.projection = _convolution(config, inputs, outputs, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(x))
        residual = x if self.projection is None else self.projection(y)
        y = self.convolution1(y)
        y = self.convolution2(functional.relu(self.norm2(y)))
        y = self.convolution3(functional.relu(self.norm3(y)))
        return y + residual


def _convolution(config: BitConfig, inputs: int, outputs: int, kernel_size: int, stride: int = 1) -> StandardisedConv2d:
    return StandardisedConv2d(
        inputs,
        outputs,
        kernel_size,
        stride,
        same=False,
        standardisation=config.standardisation,
        epsilon=config.standardisation_epsilon,
    )
