"""Architecture and numerics of one Vision Transformer (Table 1 of the paper)."""

from dataclasses import dataclass
from typing import Literal

from vitrail.errors import UsageError, choose

Pool = Literal["token", "mean"]
Position = Literal["learned_1d", "sincos_2d"]
Gelu = Literal["tanh", "erf"]

POOLS: tuple[str, ...] = ("token", "mean")
POSITIONS: tuple[str, ...] = ("learned_1d", "sincos_2d")
# Bounds on what a file may ask for, so that a hostile one is refused at once and not after minutes of building.
MAX_DEPTH = 1000
MAX_WIDTH = 2**24
MAX_PIXELS = 2**16

GELUS: tuple[str, ...] = ("tanh", "erf")


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
    """P, height and width of a patch in pixels."""
    image_size: tuple[int, int] = (224, 224)
    """Height and width of the input in pixels."""
    channels: int = 3
    """Channels of the input."""
    num_classes: int = 1000
    """Outputs of the head; 0 leaves the head out, so that the network returns its features."""
    pool: Pool = "token"
    """What the head reads: the class token, or the mean of the patch tokens (then there is no class token)."""
    pre_logits: int | None = None
    """Width of the hidden tanh layer of the 2020 pre-training head; none for a linear head."""
    position: Position = "learned_1d"
    """Kind of position embedding."""
    position_class_row: bool = True
    """Whether the class token has a row in the position table, as in the original; big_vision has none."""
    position_std: float = 0.02
    """Standard deviation of a learned position table at the start."""
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
        for name in ("width", "num_heads", "mlp_width", "channels"):
            positive(name, getattr(self, name))
        positive("depth", self.depth, at_most=MAX_DEPTH)
        if self.num_classes < 0:
            raise UsageError(f"num_classes is {self.num_classes}", wanted="0 or more")
        if self.pre_logits is not None:
            positive("pre_logits", self.pre_logits)
        if self.width % self.num_heads:
            raise UsageError(f"width {self.width} is not divisible by num_heads {self.num_heads}")
        choose("pool", self.pool, POOLS)
        choose("position", self.position, POSITIONS)
        choose("gelu", self.gelu, GELUS)
        if self.position == "sincos_2d" and self.width % 4:
            raise UsageError(f"position 'sincos_2d' with width {self.width}", wanted="a width divisible by 4")
        for name in ("dropout", "attention_dropout", "stochastic_depth"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}", wanted="a chance in [0, 1)")
        for image, patch, side in zip(self.image_size, self.patch_size, ("height", "width"), strict=True):
            if image < patch:
                raise UsageError(
                    f"image_size {times(self.image_size)} is smaller than a {times(self.patch_size)} patch",
                    wanted=f"a {side} of at least {patch}",
                )

    @property
    def grid(self) -> tuple[int, int]:
        """Patches per column and per row; pixels that do not fill a patch are dropped, as in the original."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def prefix_tokens(self) -> int:
        """Tokens in front of the patch tokens."""
        return 1 if self.pool == "token" else 0

    @property
    def tokens(self) -> int:
        """Tokens that go through the encoder."""
        return self.prefix_tokens + self.grid[0] * self.grid[1]

    @property
    def prefix_rows(self) -> int:
        """Rows of a learned position table that belong to prefix tokens."""
        return self.prefix_tokens if self.position_class_row else 0


def pair(value: int | tuple[int, int] | list[int], name: str) -> tuple[int, int]:
    """Read a size given as one number or as (height, width)."""
    sides = (value, value) if isinstance(value, int) else tuple(value)
    if len(sides) != 2:
        raise UsageError(f"{name} is {value!r}", wanted="one number or (height, width)")
    for side in sides:
        positive(name, side, at_most=MAX_PIXELS)
    return sides[0], sides[1]


def positive(name: str, value: int, at_most: int = MAX_WIDTH) -> None:
    """Refuse a count below one or beyond reason."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= at_most:
        raise UsageError(f"{name} is {value!r}", wanted=f"a whole number from 1 to {at_most:,}")


def times(size: tuple[int, int]) -> str:
    """Write a size for people: 224x224."""
    return f"{size[0]}x{size[1]}"
