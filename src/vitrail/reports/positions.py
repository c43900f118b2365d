"""How alike the position embeddings are, as Figure 7 (centre) and Figure 10 show it."""

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure

from vitrail.reports.figures import Figure, show

# More tiles side by side could not be told apart.
_MOST = 14
# How much more alike neighbours are than others, in cosines.
_CLEAR, _FAINT = 0.3, 0.05


def positions_figure(similarity: np.ndarray, layer: int | None = None) -> Figure:
    """A tile for each patch; `layer` is said where each layer has a table of its own."""
    grid = similarity.shape[:2]
    rows, columns = shown_places(grid[0]), shown_places(grid[1])
    some = (
        ""
        if (len(rows), len(columns)) == grid
        else f" ({len(rows)}x{len(columns)} of the {grid[0]}x{grid[1]} are drawn)"
    )
    whose = "" if layer is None else f" of layer {layer}"
    apart = neighbour_likeness(similarity)
    return Figure(
        name="positions",
        title=f"Position embedding similarity{whose}",
        caption=(
            f"Each tile{some} stands for one patch and shows how alike its position embedding{whose} is to that "
            "of every patch, at that patch's place: after training, near patches are alike, and so are patches "
            f"of one row or one column{_meaning(apart)}. The value is the cosine cos(E[r, c], E[i, j]) = "
            "E[r, c]·E[i, j] / (|E[r, c]| |E[i, j]|) of rows of E_pos in equation (1), without class token "
            "and registers."
        ),
        seen="mean cosine: "
        + ", ".join(f"{name.replace('_', ' ')} {round(value, 2) + 0.0:.2f}" for name, value in apart.items()),
        draw=lambda _: _drawn(similarity),
        numbers={"position_similarity": similarity},
        facts={"grid": list(grid), **apart},
    )


def _meaning(apart: dict[str, float]) -> str:
    """What the numbers of this network come to."""
    if not {"neighbours", "other"} <= apart.keys():
        return ""
    near, far = round(apart["neighbours"], 2) + 0.0, round(apart["other"], 2) + 0.0
    rest = (
        "so its places are in order"
        if near - far > _CLEAR
        else "so hardly anything of that is seen here"
        if near - far < _FAINT
        else "so that has only begun here"
    )
    return f"; the mean cosine is {near:.2f} between neighbours and {far:.2f} off the row and the column, {rest}"


def neighbour_likeness(similarity: np.ndarray) -> dict[str, float]:
    """Mean cosines of what one looks for: neighbours, patches of the same row or column, all others."""
    rows, columns = similarity.shape[:2]
    down = np.abs(np.arange(rows)[:, None] - np.arange(rows))[:, None, :, None]
    across = np.abs(np.arange(columns)[:, None] - np.arange(columns))[None, :, None, :]
    down, across = np.broadcast_arrays(down, across)
    kinds = {
        "neighbours": down + across == 1,
        "same_row_or_column": ((down == 0) ^ (across == 0)) & (down + across > 1),
        "other": (down > 0) & (across > 0),
    }
    return {name: float(similarity[mask].mean()) for name, mask in kinds.items() if mask.any()}


def _drawn(similarity: np.ndarray) -> Canvas:
    canvas = Canvas(figsize=(4.4, 3.7), layout="constrained")
    draw_positions(canvas, similarity)
    return canvas


def draw_positions(place: Canvas | SubFigure, similarity: np.ndarray, most: int = _MOST) -> None:
    """Tiles as one picture with the numbers of rows and columns beside it, at most so many side by side."""
    axes = place.subplots()
    rows, columns = shown_places(similarity.shape[0], most), shown_places(similarity.shape[1], most)
    height, width = similarity.shape[2:]
    gap = max(1, round(max(height, width) / 10))
    whole = np.full((len(rows) * (height + gap) - gap, len(columns) * (width + gap) - gap), np.nan, dtype=np.float32)
    for down, row in enumerate(rows):
        for across, column in enumerate(columns):
            top, left = down * (height + gap), across * (width + gap)
            whole[top : top + height, left : left + width] = similarity[row, column]
    bottom, right = whole.shape
    show(axes, whole, sharp=True, vmin=-1, vmax=1, cmap="viridis", extent=(0, right, bottom, 0))
    axes.set_axis_on()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_yticks([place * (height + gap) + height / 2 for place in range(len(rows))], [str(row + 1) for row in rows])
    axes.set_xticks(
        [place * (width + gap) + width / 2 for place in range(len(columns))], [str(column + 1) for column in columns]
    )
    axes.set_ylabel("Input patch row")
    axes.set_xlabel("Input patch column")
    axes.set_title("Position embedding similarity")
    bar = place.colorbar(axes.images[0], ax=axes, ticks=[-1, 0, 1], fraction=0.046, pad=0.03)
    bar.set_label("Cosine similarity", labelpad=-2)
    bar.outline.set_visible(False)


def shown_places(count: int, most: int = _MOST) -> list[int]:
    """Which rows or columns of patches get a tile: all, or so many evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(place) for place in np.linspace(0, count - 1, most)})
