"""Position embeddings: E_pos of equation (1).

Each is a module whose `forward()` gives one row per token, prefix tokens first, to be added to the tokens.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitrail.config import VitConfig
from vitrail.errors import choose


class Learned1d(nn.Module):
    """One learned row per token in raster order, the paper's default (D.4)."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        height, width = config.grid
        self.rows_without_position = config.prefix_tokens - config.prefix_rows
        self.table = nn.Parameter(torch.empty(config.prefix_rows + height * width, config.width))

    def forward(self) -> Float[Tensor, "tokens dim"]:
        return _after_zero_rows(self.table, self.rows_without_position)


class FixedTable(nn.Module, ABC):
    """A table that the config alone decides, so that it is not stored with the weights."""

    table: Tensor

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("table", self.computed(), persistent=False)

    @abstractmethod
    def computed(self) -> Float[Tensor, "tokens dim"]:
        """The table, on the default device."""

    def fill(self) -> None:
        """Compute the table anew."""
        self.table = self.computed()

    def forward(self) -> Float[Tensor, "tokens dim"]:
        return self.table


class Sincos2d(FixedTable):
    """Fixed sines and cosines of the patch's column and row (big_vision's `sincos2d`); zero for the class token."""

    def computed(self) -> Float[Tensor, "tokens dim"]:
        return _after_zero_rows(sincos_2d(self.config.grid, self.config.width), self.config.prefix_tokens)


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


POSITIONS = {"learned_1d": Learned1d, "sincos_2d": Sincos2d}


def build_position(config: VitConfig) -> nn.Module:
    """Make the position embedding that the config names."""
    return POSITIONS[choose("position", config.position, POSITIONS)](config)


def _after_zero_rows(table: Tensor, rows: int) -> Tensor:
    return functional.pad(table, (0, 0, rows, 0)) if rows else table
