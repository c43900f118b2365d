"""Which grid a stored position table was made for: positions live on grids, not in token counts."""

import math
from collections.abc import Callable

from vitrail.config import Backbone, pair, times
from vitrail.errors import DataError

Size = int | tuple[int, int]
Grid = tuple[int, int]

_FIX = "Say which image size it was made for with source_image_size=(height, width)."


def grid_rule(patch_size: Grid, backbone: Backbone | None) -> Callable[[Grid], Grid]:
    """From an image size to the grid of patches: hybrids round up in the backbone, patches round down."""

    def grid(size: Grid) -> Grid:
        height, width = backbone.feature_size(size) if backbone else size
        return height // patch_size[0], width // patch_size[1]

    return grid


def stored_grid(
    rows: int,
    grid_of: Callable[[Grid], Grid],
    *,
    image_size: Size | None,
    source_image_size: Size | None,
    where: str,
) -> Grid:
    """The grid of `rows` patches: what the caller says, else a square, else the one the wanted image size gives."""
    if rows < 1:
        raise DataError(f"the position table has {rows} rows for patches", wanted="at least one", where=where)
    if source_image_size is not None:
        return _checked(source_image_size, "source_image_size", rows, grid_of, where)
    side = math.isqrt(rows)
    if side * side == rows:
        return side, side
    if image_size is not None:
        return _checked(image_size, "image_size", rows, grid_of, where)
    raise DataError(f"the position table has {rows} rows for patches, which make no square", where=where, fix=_FIX)


def _checked(size: Size, name: str, rows: int, grid_of: Callable[[Grid], Grid], where: str) -> Grid:
    grid = grid_of(pair(size, name))
    count = grid[0] * grid[1]
    if count != rows:
        came = f"{name} {times(pair(size, name))} gives a {times(grid)} grid of {count} patches"
        raise DataError(came, wanted=f"the {rows} of the position table", where=where, fix=_FIX)
    return grid
