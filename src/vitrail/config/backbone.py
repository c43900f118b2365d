"""What may stand between the image and the patches of a Vision Transformer: a ResNet or a few convolutions."""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from vitrail.config.checks import MAX_DEPTH, positive, small_number
from vitrail.errors import UsageError, choose

Standardisation = Literal["std", "variance"]
Size = tuple[int, int]

GROUPS = 32
MAX_STAGES = 8


class Normalised(Protocol):
    """A network with GroupNorm and standardised convolutions."""

    @property
    def width(self) -> int: ...
    @property
    def group_norm_epsilon(self) -> float: ...
    @property
    def standardisation(self) -> Standardisation: ...
    @property
    def standardisation_epsilon(self) -> float: ...


def check_normalisation(config: Normalised) -> None:
    """Refuse numerics that make no sense, before a network is built with them."""
    if config.width % GROUPS:
        raise UsageError(f"width is {config.width}", wanted=f"a multiple of the {GROUPS} groups of GroupNorm")
    small_number("group_norm_epsilon", config.group_norm_epsilon)
    small_number("standardisation_epsilon", config.standardisation_epsilon)
    choose("standardisation", config.standardisation, get_args(Standardisation))


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
        if len(self.blocks) > MAX_STAGES:
            raise UsageError(f"the backbone has {len(self.blocks)} stages", wanted=f"at most {MAX_STAGES}")
        check_normalisation(self)

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

    def __post_init__(self) -> None:
        if not 1 <= len(self.layers) <= MAX_STAGES:
            raise UsageError(f"the stem has {len(self.layers)} layers", wanted=f"1 to {MAX_STAGES}")
        small_number("batch_norm_epsilon", self.batch_norm_epsilon)

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
