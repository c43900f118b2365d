"""Position tables on another grid."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional

from vitrail.config import pair, times
from vitrail.errors import UsageError, choose

Grid = tuple[int, int]
Array = TypeVar("Array", Tensor, np.ndarray)


def resize_positions(
    table: Array, old_grid: int | Grid, new_grid: int | Grid, prefix: int = 1, mode: str = "google"
) -> Array:
    """Resample a position table to another grid; its first `prefix` rows (class token, registers) are kept.

    The table is (rows, dim) or (1, rows, dim), and comes back in the kind, type and form it was given in.
    """
    resample = MODES[choose("resize mode", mode, MODES)]
    old_grid, new_grid = pair(old_grid, "old_grid"), pair(new_grid, "new_grid")
    if isinstance(table, np.ndarray):
        return resize_positions(torch.from_numpy(table), old_grid, new_grid, prefix, mode).numpy()
    rows = old_grid[0] * old_grid[1]
    if table.ndim not in (2, 3) or table.shape[-2] != prefix + rows:
        raise UsageError(
            f"the position table has shape {tuple(table.shape)}",
            wanted=f"{prefix} prefix rows and {rows} rows for a {times(old_grid)} grid",
        )
    if old_grid == new_grid:
        return table
    kept, patches = table[..., :prefix, :], table[..., prefix:, :]
    image = rearrange(patches, "... (height width) dim -> (...) dim height width", height=old_grid[0])
    resized = rearrange(resample(image, new_grid), "one dim height width -> one (height width) dim")
    return torch.cat([kept, resized.reshape(*table.shape[:-2], -1, table.shape[-1]).to(table.dtype)], dim=-2)


def _google(image: Tensor, grid: Grid) -> Tensor:
    """Bilinear with the corners aligned, in double precision: `scipy.ndimage.zoom(order=1)` in the original."""
    return functional.interpolate(image.double(), grid, mode="bilinear", align_corners=True)


def _timm(image: Tensor, grid: Grid) -> Tensor:
    """Bicubic with a low-pass filter, as `timm.layers.resample_abs_pos_embed`."""
    return functional.interpolate(image.float(), grid, mode="bicubic", antialias=True)


def _torchvision(image: Tensor, grid: Grid) -> Tensor:
    """Bicubic with the corners aligned, as torchvision's `interpolate_embeddings`."""
    return functional.interpolate(image.float(), grid, mode="bicubic", align_corners=True)


def _huggingface(image: Tensor, grid: Grid) -> Tensor:
    """Bicubic without a filter, as Hugging Face's `interpolate_pos_encoding`."""
    return functional.interpolate(image.float(), grid, mode="bicubic", align_corners=False)


MODES: dict[str, Callable[[Tensor, Grid], Tensor]] = {
    "google": _google,
    "timm": _timm,
    "torchvision": _torchvision,
    "huggingface": _huggingface,
}
