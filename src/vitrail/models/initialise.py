"""How weights start: as in the original (vit_jax and flax defaults); every module starts its own when it is built."""

import math

import torch
from torch import Tensor, nn

from vitrail.runtime.threads import one_thread

# The standard deviation of a unit normal cut off at two; flax divides by it to restore the wanted variance.
_CUT_NORMAL_STD = 0.87962566103423978
# Shares of chance and of the identity in the two products of an attention layer (Trockman and Kolter, 2023).
_LOOK, _COPY = 0.7, 0.4


def lecun_normal(weight: Tensor) -> None:
    """Fill a kernel from a normal with variance 1 / fan_in, cut off at two standard deviations (flax's default)."""
    fan_in = weight[0].numel()
    std = math.sqrt(1.0 / fan_in) / _CUT_NORMAL_STD
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def xavier_uniform(weight: Tensor, fan_in: int, fan_out: int) -> None:
    """Fill joined kernels with the bound of one of them: `U(-b, b)`, `b = sqrt(6 / (fan_in + fan_out))`."""
    bound = math.sqrt(6.0 / (fan_in + fan_out))
    nn.init.uniform_(weight, -bound, bound)


def start_dense(layer: nn.Linear | nn.Conv2d) -> None:
    """The flax default of a kernel, and a zero bias."""
    lecun_normal(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def start_projections(width: int, *layers: nn.Linear) -> None:
    """Attention kernels: Xavier-uniform with the fans of one width x width map, also where several are joined."""
    for layer in layers:
        xavier_uniform(layer.weight, width, width)
        nn.init.zeros_(layer.bias)


def start_like_trained(qkv: nn.Linear, output: nn.Linear, num_heads: int) -> None:
    """Attention whose products look as training leaves them (Trockman and Kolter, 2023): `W_q W_k^T ~ I` in each head,
    so that a token first looks at tokens like itself, at near positions that is, and `W_v W_o ~ -I`.
    """
    width = output.in_features
    # The result of several threads would depend on their number, and so on the machine.
    with one_thread():
        look = torch.linalg.svd(_chance_and_identity(width, num_heads, _LOOK, qkv.weight.device))
        copy = torch.linalg.svd(_chance_and_identity(width, 1, -_COPY, qkv.weight.device))
    rank = width // num_heads
    with torch.no_grad():
        for weight in (qkv, output):
            nn.init.zeros_(weight.bias)
        half = look.S[:, :rank].sqrt()
        q, k, v = qkv.weight.chunk(3)
        q.copy_((look.U[:, :, :rank] * half[:, None]).mT.flatten(0, 1))
        k.copy_((look.Vh[:, :rank] * half[:, :, None]).flatten(0, 1))
        v.copy_((copy.U[0] * copy.S[0].sqrt()).mT)
        output.weight.copy_((copy.S[0].sqrt()[:, None] * copy.Vh[0]).mT)


def _chance_and_identity(width: int, count: int, share: float, device: torch.device) -> Tensor:
    # Decomposed in float32, whatever the weights are kept in.
    chance = torch.randn(count, width, width, device=device, dtype=torch.float32) * width**-0.5
    return abs(share) * chance + share * torch.eye(width, device=device, dtype=torch.float32)


def start_head(head: nn.Module, bias: float) -> None:
    """A zero kernel, so that the first logits are exactly the bias (3.2)."""
    if isinstance(head, nn.Linear):
        nn.init.zeros_(head.weight)
        nn.init.constant_(head.bias, bias)
