"""What may stand between the image and the patches of a Vision Transformer: a ResNet or a few convolutions."""

from dataclasses import dataclass
from typing import Literal

from vitrail.config.checks import MAX_DEPTH, positive

Standardisation = Literal["std", "variance"]
Size = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class ResNetConfig:
    """The ResNet of a hybrid: root, then stages of bottleneck units; its feature map is cut into patches (3.1)."""

    blocks: tuple[int, ...]
    """Units per stage; none leaves the root alone."""
    width: int = 64
    """Channels of the root; a stage has 4, 8, 16 ... times as many."""
    kind: Literal["resnet"] = "resnet"
    """Tag in the file."""
    group_norm_epsilon: float = 1e-6
    """Added to the variance in every GroupNorm."""
    standardisation: Standardisation = "std"
    """Weights are divided by std + epsilon (original) or by sqrt(variance + epsilon) (BiT, timm)."""
    standardisation_epsilon: float = 1e-5
    """The epsilon of the above."""

    def __post_init__(self) -> None:
        positive("backbone width", self.width)
        for units in self.blocks:
            positive("backbone blocks", units, at_most=MAX_DEPTH)

    @property
    def stride(self) -> int:
        """Pixels per cell of the feature map: the root has two strides of 2, every stage but the first one more."""
        return 4 * 2 ** max(len(self.blocks) - 1, 0)

    @property
    def channels(self) -> int:
        """Channels of the feature map."""
        return self.width * 4 * 2 ** (len(self.blocks) - 1) if self.blocks else self.width

    def feature_size(self, image_size: Size) -> Size:
        """Height and width of the feature map; SAME padding rounds up."""
        height, width = (-(-side // self.stride) for side in image_size)
        return height, width


@dataclass(frozen=True, kw_only=True)
class ConvLayerConfig:
    """One convolution of a stem."""

    channels: int
    kernel_size: int = 3
    stride: int = 2

    def __post_init__(self) -> None:
        positive("stem channels", self.channels)
        positive("stem kernel_size", self.kernel_size, at_most=99)
        positive("stem stride", self.stride, at_most=99)


@dataclass(frozen=True, kw_only=True)
class ConvStemConfig:
    """Convolution, BatchNorm and ReLU, a few times, as torchvision's convolutional stem (Xiao et al., 2021)."""

    layers: tuple[ConvLayerConfig, ...]
    """In order; the patch projection after them is the stem's last, 1x1 convolution."""
    kind: Literal["conv_stem"] = "conv_stem"
    """Tag in the file."""
    batch_norm_epsilon: float = 1e-5
    """Added to the variance in every BatchNorm."""

    @property
    def stride(self) -> int:
        """Pixels per cell of the feature map."""
        product = 1
        for layer in self.layers:
            product *= layer.stride
        return product

    @property
    def channels(self) -> int:
        """Channels of the feature map."""
        return self.layers[-1].channels

    def feature_size(self, image_size: Size) -> Size:
        """Height and width of the feature map, with each layer padded by half its kernel."""
        height, width = image_size
        for layer in self.layers:
            around = 2 * ((layer.kernel_size - 1) // 2) - layer.kernel_size
            height, width = (height + around) // layer.stride + 1, (width + around) // layer.stride + 1
        return height, width


Backbone = ResNetConfig | ConvStemConfig
