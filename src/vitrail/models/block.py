"""One encoder block: equations (2) and (3)."""

from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import VitConfig
from vitrail.models.attention import Attention
from vitrail.models.mlp import Mlp
from vitrail.models.positions import build_relative
from vitrail.models.stochastic_depth import StochasticDepth


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and added to what came in (pre-norm residuals)."""

    def __init__(self, config: VitConfig, stochastic_depth: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, eps=config.layer_norm_epsilon)
        relative = build_relative(config)
        self.attention = Attention(
            config.width, config.num_heads, config.attention_dropout, relative, config.attention_start
        )
        self.mlp_norm = nn.LayerNorm(config.width, eps=config.layer_norm_epsilon)
        self.mlp = Mlp(config.width, config.mlp_width, config.gelu, config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.skip = StochasticDepth(stochastic_depth)

    def forward(self, z: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens dim"]:
        z = z + self.skip(self.dropout(self.attention(self.attention_norm(z))))  # (2)
        return z + self.skip(self.mlp(self.mlp_norm(z)))  # (3)

    def first_token(self, z: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch 1 dim"]:
        """What `forward` gives for the first token alone, without the work for the others."""
        first = z[:, :1] + self.skip(self.dropout(self.attention.first_token(self.attention_norm(z))))
        return first + self.skip(self.mlp(self.mlp_norm(first)))

    def attention_weights(self, z: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens tokens"]:
        """The attention matrix that `forward` applies to the same input."""
        return self.attention.weights(self.attention_norm(z))
