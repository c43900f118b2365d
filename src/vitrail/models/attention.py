"""Multi-head self-attention, equations (5)-(8) of the paper's Appendix A."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitrail.config.vit import AttentionStart
from vitrail.models.initialise import start_like_trained, start_projections

# cuDNN's backward pass (torch 2.11 on, Hopper) gives NaN for so many keys beyond a multiple of 128, once all logits of
# a query are below -88: the empty half of its last tile overflows (pytorch issue 196678).
_TILE, _UNSAFE_REST = 128, 64
_WITHOUT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Attention(nn.Module):
    """`MSA(z) = [SA_1(z); ...; SA_k(z)] U_msa`, with `SA(z) = softmax(q k^T / sqrt(head_dim)) v` (A.5-A.8).

    The fused kernel never builds the (tokens x tokens) matrix; `weights` builds it for whoever wants to look.
    `relative(q)` gives logits of the distances between tokens (D.4), which no fused kernel can spare.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        dropout: float = 0.0,
        relative: nn.Module | None = None,
        start: AttentionStart = "xavier",
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.relative = relative
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        if start == "mimetic":
            start_like_trained(self.qkv, self.output, num_heads)
        else:
            start_projections(width, self.qkv, self.output)

    def forward(self, z: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens dim"]:
        q, k, v = self.project(z)
        dropout = self.dropout if self.training else 0.0
        bias = None if self.relative is None else self.relative(q) * q.shape[-1] ** -0.5
        return self.output(attend(q, k, v, bias, dropout).transpose(1, 2).flatten(2))

    def first_token(self, z: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch 1 dim"]:
        """What `forward` gives for the first token alone: one query against all keys and values."""
        width = self.output.in_features
        weight, bias = self.qkv.weight, self.qkv.bias
        q = functional.linear(z[:, :1], weight[:width], bias[:width]).unflatten(-1, (self.num_heads, -1))
        joined = functional.linear(z, weight[width:], bias[width:]).unflatten(-1, (2, self.num_heads, -1))
        k, v = joined.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout if self.training else 0.0
        return self.output(attend(q.transpose(1, 2), k, v, None, dropout).transpose(1, 2).flatten(2))

    def project(self, z: Float[Tensor, "batch tokens dim"]) -> tuple[Tensor, Tensor, Tensor]:
        """`[q, k, v] = z U_qkv` (A.5): views of one matrix product, each (batch, heads, tokens, head_dim)."""
        joined = self.qkv(z).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = joined.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def weights(self, z: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens tokens"]:
        """`A = softmax(q k^T / sqrt(head_dim))` (A.6), with the relative logits where there are some."""
        q, k, _ = self.project(z)
        logits = q @ k.transpose(-2, -1)
        if self.relative is not None:
            logits = logits + self.relative(q)
        return torch.softmax(logits * q.shape[-1] ** -0.5, dim=-1)


def attend(
    q: Float[Tensor, "batch heads queries head_dim"],
    k: Float[Tensor, "batch heads keys head_dim"],
    v: Float[Tensor, "batch heads keys head_dim"],
    bias: Tensor | None,
    dropout: float,
) -> Float[Tensor, "batch heads queries head_dim"]:
    """`softmax(q k^T / sqrt(head_dim) + bias) v` by a fused kernel that is right for this number of keys."""
    if q.is_cuda and k.shape[2] % _TILE == _UNSAFE_REST:
        with sdpa_kernel(_WITHOUT_CUDNN):
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
