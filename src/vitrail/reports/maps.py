"""How every head of some layers looks at one image."""

import numpy as np
from matplotlib.figure import Figure as Canvas

from vitrail.data.check.words import counted
from vitrail.reports.figures import Figure, show
from vitrail.reports.shown import Shown

_MOST_HEADS = 16
_SIDE = 0.62


def maps_figure(maps: np.ndarray, layers: tuple[int, ...], shown: Shown, read: str) -> Figure:
    """A row for each layer, a column for each head; `maps` is (layers, heads, grid_h, grid_w) of the first image."""
    heads = maps.shape[1]
    which = "layer" if len(layers) == 1 else "layers"
    some = f", of which the first {_MOST_HEADS} are drawn" if heads > _MOST_HEADS else ""
    return Figure(
        name="maps",
        title="Attention of single heads",
        caption=(
            f"{shown.file(0)}, and where each of the {counted(heads, 'head')}{some} of "
            f"{counted(len(layers), 'layer')} looks, brighter for more; each map has a scale of its own. It is "
            f"the row of {read} in A = softmax(q kᵀ / √d), without "
            "the columns of class token and registers."
        ),
        seen=f"{counted(heads, 'head')} of {which} {', '.join(map(str, layers))} on {shown.file(0)}",
        draw=lambda _: _drawn(maps[:, :_MOST_HEADS], layers, shown.pictures[0]),
        numbers={"maps": maps.astype(np.float32), "maps_layers": np.array(layers)},
        facts={"image": shown.names[0], "layers": list(layers), "heads": heads, "read": read},
    )


def _drawn(maps: np.ndarray, layers: tuple[int, ...], picture: np.ndarray) -> Canvas:
    rows, heads = maps.shape[:2]
    tall = picture.shape[0] / picture.shape[1]
    canvas = Canvas(figsize=((heads + 1) * _SIDE + 0.5, rows * (_SIDE * tall + 0.04) + 0.3), layout="constrained")
    canvas.get_layout_engine().set(w_pad=0.01, h_pad=0.01, wspace=0.01, hspace=0.01)  # type: ignore[union-attr]
    places = canvas.subplots(rows, heads + 1, squeeze=False)
    for row in range(rows):
        show(places[row, 0], picture)
        places[row, 0].text(
            -0.08, 0.5, f"layer {layers[row]}", transform=places[row, 0].transAxes, ha="right", va="center", fontsize=7
        )
        for head in range(heads):
            show(places[row, head + 1], maps[row, head], sharp=True, cmap="magma", vmin=0)
            if row == 0:
                places[row, head + 1].set_title(f"head {head + 1}" if heads <= 8 else str(head + 1), fontsize=7)
    return canvas
