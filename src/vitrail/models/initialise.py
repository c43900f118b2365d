"""How the original's weights start (vit_jax and flax defaults); every module starts its own when it is built."""

import math

from torch import Tensor, nn

# The standard deviation of a unit normal cut off at two; flax divides by it to restore the wanted variance.
_CUT_NORMAL_STD = 0.87962566103423978


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


def start_head(head: nn.Module, bias: float) -> None:
    """A zero kernel, so that the first logits are exactly the bias (3.2)."""
    if isinstance(head, nn.Linear):
        nn.init.zeros_(head.weight)
        nn.init.constant_(head.bias, bias)
