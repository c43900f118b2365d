"""Figure 7 of the paper from one model: filters, position similarity and attention distance side by side."""

import numpy as np
from matplotlib.figure import Figure as Canvas

from vitrail.inspection import Filters
from vitrail.reports.distance import Distances, draw_distance
from vitrail.reports.figures import Figure
from vitrail.reports.filters import draw_filters
from vitrail.reports.positions import draw_positions, shown_places

# As in the paper, whose ViT-L/32 has a grid of 7x7; more tiles are too small beside two other panels.
_TILES = 7


def three_panels(filters: Filters, similarity: np.ndarray, distances: Distances) -> Figure:
    """The three that the paper shows together (4.5)."""
    rows, columns = (len(shown_places(count, _TILES)) for count in similarity.shape[:2])
    grid = similarity.shape[:2]
    which = "each patch" if (rows, columns) == grid else f"each of {rows}x{columns} of the {grid[0]}x{grid[1]} patches"
    return Figure(
        name="figure-7",
        title="Filters, position embedding similarity and attention distance",
        caption=(
            f"Left, the principal components of the filters that read pixels; centre, for {which} how alike "
            "its position embedding is to all others; right, how far each head looks on average in each layer. "
            "They are the right singular vectors of E − mean(E), the cosines of the rows of E_pos, and meanᵢ Σⱼ "
            "Aᵢⱼ dᵢⱼ over patches in pixels, as in Figure 7 of the paper."
        ),
        seen="filters, positions and distance side by side, as in the paper",
        draw=lambda _: _drawn(filters, similarity, distances),
    )


def _drawn(filters: Filters, similarity: np.ndarray, distances: Distances) -> Canvas:
    canvas = Canvas(figsize=(10.8, 3.1), layout="constrained")
    panels = canvas.subfigures(1, 3, squeeze=False, width_ratios=(1.45, 1.15, 1.2), wspace=0.03)
    left, centre, right = panels[0]
    draw_filters(left, filters, f"Embedding filters\n(first {len(filters.components)} principal components)")
    draw_positions(centre, similarity, _TILES)
    draw_distance(right, distances)
    return canvas
