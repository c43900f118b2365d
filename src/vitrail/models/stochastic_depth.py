"""Skip a residual branch for some samples while training (Huang et al., 2016), as AugReg uses it."""

import torch
from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """Multiply a residual branch by 0 with chance `rate`, else by 1 / (1 - rate), one draw per sample."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return branch
        keep = 1.0 - self.rate
        draw_shape = (branch.shape[0],) + (1,) * (branch.ndim - 1)
        kept = torch.rand(draw_shape, device=branch.device) < keep
        return branch * (kept.to(branch.dtype) / keep)

    def extra_repr(self) -> str:
        return f"rate={self.rate:g}"


def depth_rates(depth: int, last: float) -> list[float]:
    """Rates that grow linearly from 0 at the first block to `last` at the last."""
    return [last * index / max(depth - 1, 1) for index in range(depth)]
