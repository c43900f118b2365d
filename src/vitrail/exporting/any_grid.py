"""Positions for a grid that is known only when an image comes: resized in the graph as the original resizes them."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import VitConfig
from vitrail.models.embedding import PatchEmbedding
from vitrail.models.positions import Learned1d, Learned2d, Relative1d


@dataclasses.dataclass
class Seen:
    """The grid of the images that are on their way through the network."""

    height: int = 0
    width: int = 0


class AnyGridEmbedding(nn.Module):
    """Patches of images of any size; their grid is left for the positions."""

    def __init__(self, embedding: PatchEmbedding, seen: Seen) -> None:
        super().__init__()
        self.backbone, self.projection, self.seen = embedding.backbone, embedding.projection, seen

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch patches dim"]:
        projected = self.projection(images if self.backbone is None else self.backbone(images))
        self.seen.height, self.seen.width = projected.shape[2], projected.shape[3]
        return projected.flatten(2).transpose(1, 2)


class AnyGridPositions(nn.Module):
    """An additive position embedding on whatever grid was seen."""

    def __init__(self, position: nn.Module, config: VitConfig, seen: Seen) -> None:
        super().__init__()
        self.position, self.config, self.seen = position, config, seen

    def forward(self) -> Float[Tensor, "tokens dim"]:
        rows, height, width = self.config.prefix_tokens, self.seen.height, self.seen.width
        if isinstance(self.position, Learned1d):
            table = self.position()
            grid = table[rows:].unflatten(0, self.config.grid)
            resized = resample(resample(grid, height).transpose(0, 1), width).transpose(0, 1)
            return torch.cat([table[:rows], resized.flatten(0, 1)])
        if isinstance(self.position, Learned2d):
            prefix = self.position()[:rows]
            return torch.cat([prefix, _crossed(*self._halves(height, width), height, width)])
        if self.config.position == "sincos_2d":
            quarter = self.config.width // 4
            omega = 10_000.0 ** -(torch.arange(quarter, dtype=torch.float64) / max(quarter - 1, 1))
            columns, lines = (_waves(side, omega) for side in (width, height))
            patches = _crossed(columns.flatten(1), lines.flatten(1), height, width)
            return torch.cat([patches.new_zeros(rows, self.config.width), patches])
        omega = 10_000.0 ** -(torch.arange(0, self.config.width, 2, dtype=torch.float64) / self.config.width)
        return _waves(rows + height * width, omega).transpose(1, 2).flatten(1)

    def _halves(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        position = self.position
        assert isinstance(position, Learned2d)
        return resample(position.columns, width), resample(position.rows, height)


class AnyGridRelative(nn.Module):
    """Relative logits whose table is resampled to the distances that so many tokens have."""

    def __init__(self, relative: Relative1d) -> None:
        super().__init__()
        self.relative = relative

    def forward(self, q: Float[Tensor, "batch heads tokens head_dim"]) -> Float[Tensor, "batch heads tokens tokens"]:
        tokens = q.shape[2]
        keys = resample(self.relative.table, 2 * tokens - 1).unflatten(1, (self.relative.heads, -1))
        by_distance = torch.einsum("bhqd,rhd->bhqr", q, keys)
        place = torch.arange(tokens)
        distance = place[:, None] - place[None, :] + tokens - 1
        return by_distance.gather(-1, distance.expand_as(by_distance[..., :tokens]))


def resample(table: Tensor, length: int) -> Tensor:
    """The first axis brought to another length: linear between neighbours, first and last row kept.

    As a product with the tent functions of the old rows, which every runtime computes alike; where the length is the
    old one the product is the table itself.
    """
    old = table.shape[0]
    new = torch.arange(length, dtype=table.dtype)
    # A single row takes the first of the old ones.
    place = new * (old - 1) / new[-1:].clamp(min=1)
    tents = (1 - (place[:, None] - torch.arange(old, dtype=table.dtype)).abs()).clamp(min=0)
    return (tents @ table.flatten(1)).unflatten(1, table.shape[1:])


def _waves(length: int, omega: Tensor) -> Float[Tensor, "length 2 waves"]:
    """Sines and cosines of places times frequencies, in double precision as the tables of fixed size."""
    angle = torch.arange(length, dtype=torch.float64)[:, None] * omega
    return torch.stack([angle.sin(), angle.cos()], dim=1).float()


def _crossed(columns: Tensor, rows: Tensor, height: int, width: int) -> Float[Tensor, "patches dim"]:
    """What belongs to a patch's column beside what belongs to its row, in raster order."""
    return torch.cat([columns.expand(height, -1, -1), rows[:, None].expand(-1, width, -1)], dim=-1).flatten(0, 1)
