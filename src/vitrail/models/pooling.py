"""Attention pooling: one learned query asks all tokens (the MAP head of big_vision; Zhai et al., 2022)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import VitConfig
from vitrail.models.attention import attend
from vitrail.models.initialise import start_projections
from vitrail.models.mlp import Mlp


class AttentionPooling(nn.Module):
    """`x = MHA(probe, tokens)`, then `x + MLP(LN(x))`."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        width = config.width
        self.num_heads = config.num_heads
        self.probe = nn.Parameter(torch.empty(1, width))
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_epsilon)
        self.mlp = Mlp(width, config.mlp_width, config.gelu)  # big_vision has no dropout here
        nn.init.xavier_uniform_(self.probe)
        start_projections(width, self.query, self.key_value, self.output)

    def forward(self, tokens: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch dim"]:
        q = self.query(self.probe).expand(tokens.shape[0], -1, -1).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = self.key_value(tokens).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = self.output(attend(q, k, v, None, 0.0).transpose(1, 2).flatten(2))
        return (x + self.mlp(self.norm(x))).squeeze(1)
