"""How the original's weights start (vit_jax and flax defaults)."""

import math

from torch import Tensor, nn

from vitrail.models.attention import Attention
from vitrail.models.mlp import Mlp

# The standard deviation of a unit normal cut off at two; flax divides by it to restore the wanted variance.
_CUT_NORMAL_STD = 0.87962566103423978


def lecun_normal(weight: Tensor) -> None:
    """Fill a kernel from a normal with variance 1 / fan_in, cut off at two standard deviations (flax's default)."""
    fan_in = weight[0].numel()
    std = math.sqrt(1.0 / fan_in) / _CUT_NORMAL_STD
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def initialise_attention(attention: Attention) -> None:
    """Xavier-uniform for q, k, v and the output, with the fans of each D x D kernel; zero biases."""
    width = attention.output.in_features
    bound = math.sqrt(6.0 / (width + width))
    for layer in (attention.qkv, attention.output):
        nn.init.uniform_(layer.weight, -bound, bound)
        nn.init.zeros_(layer.bias)


def initialise_mlp(mlp: Mlp) -> None:
    """Xavier-uniform kernels and biases from N(0, 1e-6)."""
    for layer in (mlp.expand, mlp.contract):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.normal_(layer.bias, std=1e-6)


def initialise_dense(layer: nn.Linear | nn.Conv2d) -> None:
    """The flax default of a kernel and a zero bias."""
    lecun_normal(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def initialise_head(head: nn.Linear, bias: float) -> None:
    """A zero kernel, so that the first logits are exactly the bias (3.2)."""
    nn.init.zeros_(head.weight)
    nn.init.constant_(head.bias, bias)
