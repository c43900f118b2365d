"""Architecture and numerics of one BiT ResNet, the convolutional baseline of the paper (4.1)."""

from dataclasses import dataclass
from typing import Literal

from vitrail.config.backbone import Standardisation, check_normalisation
from vitrail.config.checks import MAX_CHANNELS, MAX_DEPTH, count, pair, positive
from vitrail.errors import choose

PoolPadding = Literal["zero", "minus_infinity"]


@dataclass(frozen=True, kw_only=True)
class BitConfig:
    """A ResNet-v2 with GroupNorm and standardised weights (Kolesnikov et al., 2020)."""

    blocks: tuple[int, int, int, int]
    """Units per stage."""
    width: int = 64
    """Channels of the root; 64 times the factor in names such as R50x3."""
    image_size: tuple[int, int] = (224, 224)
    """Height and width of the input in pixels; the network takes any."""
    channels: int = 3
    """Channels of the input."""
    num_classes: int = 1000
    """Outputs of the head; 0 leaves the head out."""
    group_norm_epsilon: float = 1e-5
    """Added to the variance in every GroupNorm."""
    standardisation: Standardisation = "variance"
    """Weights are divided by std + epsilon or by sqrt(variance + epsilon)."""
    standardisation_epsilon: float = 1e-10
    """The epsilon of the above."""
    pool_padding: PoolPadding = "zero"
    """Around the root's max-pool: zeros in the published networks, minus infinity in big_vision."""
    head_bias: float = 0.0
    """Bias of the head at the start."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_size", pair(self.image_size, "image_size"))
        for units in self.blocks:
            positive("blocks", units, at_most=MAX_DEPTH)
        positive("width", self.width)
        positive("channels", self.channels, at_most=MAX_CHANNELS)
        count("num_classes", self.num_classes)
        check_normalisation(self)
        choose("pool_padding", self.pool_padding, ["zero", "minus_infinity"])

    @property
    def feature_width(self) -> int:
        """Channels of the last feature map, which the head reads."""
        return self.width * 2 ** (len(self.blocks) + 1)

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width of the last feature map."""
        stride = 2 ** (len(self.blocks) + 1)
        height, width = (-(-side // stride) for side in self.image_size)
        return height, width

    @property
    def tokens(self) -> int:
        """Cells of the last feature map."""
        return self.grid[0] * self.grid[1]
