"""Architecture and numerics of one Vision Transformer or hybrid (Table 1 of the paper)."""

from dataclasses import dataclass
from typing import Literal, get_args

from vitrail.config.backbone import Backbone
from vitrail.config.checks import (
    MAX_CHANNELS,
    MAX_DEPTH,
    MAX_TOKENS,
    chance,
    count,
    pair,
    positive,
    small_number,
    times,
)
from vitrail.errors import UsageError, choose

Pool = Literal["token", "mean", "map"]
Position = Literal["none", "learned_1d", "learned_2d", "relative", "sincos_2d", "sinusoid_1d"]
PositionAt = Literal["stem", "every_layer", "every_layer_shared"]
Gelu = Literal["tanh", "erf"]
AttentionStart = Literal["xavier", "mimetic"]

POOLS: tuple[Pool, ...] = get_args(Pool)
POSITIONS: tuple[Position, ...] = get_args(Position)
POSITION_PLACES: tuple[PositionAt, ...] = get_args(PositionAt)
GELUS: tuple[Gelu, ...] = get_args(Gelu)
ATTENTION_STARTS: tuple[AttentionStart, ...] = get_args(AttentionStart)
ADDITIVE_POSITIONS: tuple[Position, ...] = ("learned_1d", "learned_2d", "sincos_2d", "sinusoid_1d")


@dataclass(frozen=True, kw_only=True)
class VitConfig:
    """Everything that decides which function a Vision Transformer computes, and how its weights start."""

    width: int
    """D, the length of every token."""
    depth: int
    """L, the number of encoder blocks."""
    num_heads: int
    """Attention heads per block; each has width / num_heads numbers."""
    mlp_width: int
    """Hidden width of the MLP of each block."""
    patch_size: tuple[int, int] = (16, 16)
    """P, height and width of a patch, in pixels or in cells of the backbone's feature map."""
    image_size: tuple[int, int] = (224, 224)
    """Height and width of the input in pixels."""
    channels: int = 3
    """Channels of the input."""
    backbone: Backbone | None = None
    """ResNet of a hybrid, or convolutional stem; none cuts the image itself into patches."""
    num_classes: int = 1000
    """Outputs of the head; 0 leaves the head out, so that the network returns its features."""
    pool: Pool = "token"
    """What the head reads: the class token, the mean of the patch tokens, or attention pooling (MAP)."""
    registers: int = 0
    """Extra learned tokens after the class token, which nothing reads (Darcet et al., 2024)."""
    pre_logits: int | None = None
    """Width of the hidden tanh layer of the 2020 pre-training head; none for a linear head."""
    position: Position = "learned_1d"
    """Kind of position embedding (D.4)."""
    position_at: PositionAt = "stem"
    """Where an additive one is added: after the patch projection, or before every block, with a table each or one."""
    position_class_row: bool = True
    """Whether the class token has a row in a learned table, as in the original; big_vision has none."""
    position_register_rows: bool = False
    """Whether register tokens have rows in a learned table, after the class token's."""
    position_std: float = 0.02
    """Standard deviation of a learned position table at the start."""
    attention_start: AttentionStart = "xavier"
    """First weights of the attention: the original's, or ones that look trained (Trockman and Kolter, 2023)."""
    dropout: float = 0.0
    """After the position embedding, after each attention output and after both layers of each MLP (B.1)."""
    attention_dropout: float = 0.0
    """On the attention weights; 0 in every published configuration."""
    stochastic_depth: float = 0.0
    """Chance that the last block is skipped for a sample; it grows linearly from 0 at the first block (AugReg)."""
    gelu: Gelu = "tanh"
    """The original uses the tanh approximation; timm, torchvision and Hugging Face the exact erf form."""
    layer_norm_epsilon: float = 1e-6
    """Added to the variance in every LayerNorm."""
    head_bias: float = 0.0
    """Bias of the head at the start; -10 for sigmoid pre-training on ImageNet-21k."""

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size"):
            object.__setattr__(self, name, pair(getattr(self, name), name))
        for name in ("width", "num_heads", "mlp_width"):
            positive(name, getattr(self, name))
        positive("channels", self.channels, at_most=MAX_CHANNELS)
        positive("depth", self.depth, at_most=MAX_DEPTH)
        for name in ("num_classes", "registers"):
            count(name, getattr(self, name))
        for name in ("layer_norm_epsilon", "position_std"):
            small_number(name, getattr(self, name))
        if self.pre_logits is not None:
            positive("pre_logits", self.pre_logits)
        if self.width % self.num_heads:
            raise UsageError(f"width {self.width} is not divisible by num_heads {self.num_heads}")
        choose("pool", self.pool, POOLS)
        choose("gelu", self.gelu, GELUS)
        choose("attention_start", self.attention_start, ATTENTION_STARTS)
        self._check_position()
        for name in ("dropout", "attention_dropout", "stochastic_depth"):
            chance(name, getattr(self, name))
        positive("the number of tokens", max(self.tokens, 1), at_most=MAX_TOKENS)
        if min(self.grid) < 1:
            what = f"the {times(self.feature_size)} feature map of an" if self.backbone else "an"
            raise UsageError(
                f"{what} image of {times(self.image_size)} pixels is smaller than a {times(self.patch_size)} patch",
                wanted=f"an image_size of at least {times(self.pixels_per_patch)}",
            )

    def _check_position(self) -> None:
        choose("position", self.position, POSITIONS)
        choose("position_at", self.position_at, POSITION_PLACES)
        divisor = {"sincos_2d": 4, "learned_2d": 2, "sinusoid_1d": 2}.get(self.position, 1)
        if self.width % divisor:
            raise UsageError(f"position {self.position!r} with width {self.width}", wanted=f"a multiple of {divisor}")
        if self.position_at != "stem" and self.position not in ADDITIVE_POSITIONS:
            raise UsageError(
                f"position_at {self.position_at!r} with position {self.position!r}",
                wanted=f"one of {', '.join(ADDITIVE_POSITIONS)}",
            )

    @property
    def feature_size(self) -> tuple[int, int]:
        """Height and width of what is cut into patches."""
        return self.backbone.feature_size(self.image_size) if self.backbone else self.image_size

    @property
    def pixels_per_patch(self) -> tuple[int, int]:
        """Height and width of the image that one patch stands for."""
        stride = self.backbone.stride if self.backbone else 1
        return self.patch_size[0] * stride, self.patch_size[1] * stride

    @property
    def grid(self) -> tuple[int, int]:
        """Patches per column and per row; what does not fill a patch is dropped, as in the original."""
        height, width = self.feature_size
        return height // self.patch_size[0], width // self.patch_size[1]

    @property
    def class_token(self) -> bool:
        """Whether there is a class token."""
        return self.pool == "token"

    @property
    def prefix_tokens(self) -> int:
        """Tokens in front of the patch tokens: class token, then registers."""
        return int(self.class_token) + self.registers

    @property
    def tokens(self) -> int:
        """Tokens that go through the encoder."""
        return self.prefix_tokens + self.grid[0] * self.grid[1]

    @property
    def prefix_rows(self) -> int:
        """Rows of a learned position table that belong to prefix tokens."""
        class_row = self.class_token and self.position_class_row
        return int(class_row) + (self.registers if self.position_register_rows else 0)
