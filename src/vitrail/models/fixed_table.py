"""Tables that a config alone decides: computed, not learnt, and not stored with the weights."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitrail.config import VitConfig


class FixedTable(nn.Module, ABC):
    """A position embedding without weights."""

    table: Tensor

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("table", self.computed(), persistent=False)

    @abstractmethod
    def computed(self) -> Float[Tensor, "tokens dim"]:
        """The table, on the default device."""

    def fill(self, device: torch.device) -> None:
        """Compute the table anew, after the network was built without memory."""
        with torch.device(device):
            self.table = self.computed()

    def forward(self) -> Float[Tensor, "tokens dim"]:
        return self.table


class Sincos2d(FixedTable):
    """Sines and cosines of the patch's column and row (big_vision's `sincos2d`); zero for prefix tokens."""

    def computed(self) -> Float[Tensor, "tokens dim"]:
        table = sincos_2d(self.config.grid, self.config.width)
        return functional.pad(table, (0, 0, self.config.prefix_tokens, 0))


class Sinusoid1d(FixedTable):
    """`P(i, 2j) = sin(i / 10000^(2j/d))`, `P(i, 2j+1) = cos(...)` over all tokens in order (Vaswani et al., 2017)."""

    def computed(self) -> Float[Tensor, "tokens dim"]:
        return sinusoid_1d(self.config.tokens, self.config.width)


def sincos_2d(grid: tuple[int, int], width: int) -> Float[Tensor, "patches dim"]:
    """`[sin(x w), cos(x w), sin(y w), cos(y w)]` with `w_i = 10000^(-i / (D/4 - 1))`, raster order."""
    quarter = width // 4
    # Double precision, because a single-precision 10000 ** x is already off by more than the table's own rounding.
    exponent = torch.arange(quarter, dtype=torch.float64) / max(quarter - 1, 1)
    omega = 10_000.0**-exponent
    row, column = torch.meshgrid(
        torch.arange(grid[0], dtype=torch.float64), torch.arange(grid[1], dtype=torch.float64), indexing="ij"
    )
    x, y = column.flatten()[:, None] * omega, row.flatten()[:, None] * omega
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1).float()


def sinusoid_1d(rows: int, width: int) -> Float[Tensor, "rows dim"]:
    """The table of "Attention Is All You Need"."""
    exponent = torch.arange(0, width, 2, dtype=torch.float64) / width
    angle = torch.arange(rows, dtype=torch.float64)[:, None] * 10_000.0**-exponent
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()
