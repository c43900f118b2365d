"""Which grid a stored position table was made for: positions live on grids, not in token counts."""

import math

from vitrail.config import pair, times
from vitrail.errors import DataError

Size = int | tuple[int, int]


def stored_grid(
    rows: int,
    cell: tuple[int, int],
    *,
    image_size: Size | None,
    source_image_size: Size | None,
    where: str,
) -> tuple[int, int]:
    """The grid of `rows` patches: what the caller says, else a square, else the one the wanted image size gives.

    `cell` is the height and width in pixels that one patch stands for.
    """
    if source_image_size is not None:
        return _grid_of(source_image_size, "source_image_size", rows, cell, where)
    side = math.isqrt(rows)
    if side * side == rows and rows:
        return side, side
    if image_size is not None:
        return _grid_of(image_size, "image_size", rows, cell, where)
    raise DataError(
        f"the position table has {rows} rows for patches, which make no square",
        where=where,
        fix="Say which image size it was made for with source_image_size=(height, width).",
    )


def _grid_of(size: Size, name: str, rows: int, cell: tuple[int, int], where: str) -> tuple[int, int]:
    height, width = pair(size, name)
    grid = height // cell[0], width // cell[1]
    if grid[0] * grid[1] != rows:
        came = f"{name} {times((height, width))} gives a {times(grid)} grid of {grid[0] * grid[1]} patches"
        fix = "Say which image size it was made for with source_image_size=(height, width)."
        raise DataError(came, wanted=f"the {rows} of the position table", where=where, fix=fix)
    return grid
