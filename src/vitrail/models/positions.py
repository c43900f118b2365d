"""Position embeddings: E_pos of equation (1) and the variants of Table 8.

An additive one is a module whose `forward()` gives one row per token, prefix tokens first.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import VitConfig
from vitrail.models.fixed_table import Sincos2d, Sinusoid1d


class Learned1d(nn.Module):
    """One learned row per token in raster order, the paper's default (D.4)."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        height, width = config.grid
        self.table = nn.Parameter(torch.empty(config.prefix_rows + height * width, config.width))
        _start(self, config)

    def forward(self) -> Float[Tensor, "tokens dim"]:
        prefix = self.config.prefix_rows
        return _with_prefix(self.table[:prefix], self.table[prefix:], self.config) if self._gaps else self.table

    @property
    def _gaps(self) -> bool:
        return self.config.prefix_rows != self.config.prefix_tokens


class Learned2d(nn.Module):
    """A table for columns (X) and one for rows (Y), each half as wide, concatenated per patch (D.4)."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        height, width = config.grid
        half = config.width // 2
        self.columns = nn.Parameter(torch.empty(width, half))
        self.rows = nn.Parameter(torch.empty(height, half))
        self.prefix = nn.Parameter(torch.empty(config.prefix_rows, config.width)) if config.prefix_rows else None
        _start(self, config)

    def forward(self) -> Float[Tensor, "tokens dim"]:
        height, width = self.config.grid
        columns = self.columns.expand(height, -1, -1)
        rows = self.rows[:, None].expand(-1, width, -1)
        patches = torch.cat([columns, rows], dim=-1).flatten(0, 1)
        prefix = self.prefix if self.prefix is not None else patches[:0]
        return _with_prefix(prefix, patches, self.config)


class Relative1d(nn.Module):
    """Logits `q_i . r_(i-j)` of every query against the embedding of its distance to every key (D.4).

    Distances are those of the tokens in order, the class token first; each block has a table of its own.
    """

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.heads = config.num_heads
        self.table = nn.Parameter(torch.empty(2 * config.tokens - 1, config.width))
        _start(self, config)

    def forward(self, q: Float[Tensor, "batch heads tokens head_dim"]) -> Float[Tensor, "batch heads tokens tokens"]:
        tokens = q.shape[2]
        keys = self.table.unflatten(1, (self.heads, -1))
        by_distance = torch.einsum("bhqd,rhd->bhqr", q, keys)
        place = torch.arange(tokens, device=q.device)
        distance = place[:, None] - place[None, :] + tokens - 1
        return by_distance.gather(-1, distance.expand_as(by_distance[..., :tokens]))


ADDITIVE: dict[str, Callable[[VitConfig], nn.Module]] = {
    "learned_1d": Learned1d,
    "learned_2d": Learned2d,
    "sincos_2d": Sincos2d,
    "sinusoid_1d": Sinusoid1d,
}


def build_additive(config: VitConfig, count: int) -> list[nn.Module]:
    """Make so many additive position embeddings of the kind the config names; an empty list for other kinds."""
    kind = ADDITIVE.get(config.position)
    return [kind(config) for _ in range(count)] if kind else []


def build_relative(config: VitConfig) -> Relative1d | None:
    """Make the embedding that a block's attention adds to its logits, where the config asks for one."""
    return Relative1d(config) if config.position == "relative" else None


def _start(position: nn.Module, config: VitConfig) -> None:
    for table in position.parameters():
        nn.init.normal_(table, std=config.position_std)


def _with_prefix(prefix: Tensor, patches: Tensor, config: VitConfig) -> Tensor:
    """Rows for all tokens: zeros for the prefix tokens that have none of their own."""
    if config.prefix_rows == config.prefix_tokens:
        return torch.cat([prefix, patches])
    class_rows = int(config.class_token)
    zero = patches.new_zeros(1, config.width)
    has_class_row = bool(class_rows) and config.position_class_row
    pieces = [prefix[:1] if has_class_row else zero.expand(class_rows, -1)]
    registers = prefix[int(has_class_row) :] if config.position_register_rows else zero.expand(config.registers, -1)
    return torch.cat([*pieces, registers, patches])
