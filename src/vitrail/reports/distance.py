"""Mean attention distance of every head against depth, as Figures 7 (right) and 11 show it."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from vitrail.data.check.words import counted
from vitrail.reports.figures import SOFT, Figure, distinct_colours

_NAMED = 4
# Shares of what equal attention gives: heads that cannot be told from it, and heads that look near.
_ALIKE, _LOCAL = 0.06, 0.5


@dataclass(frozen=True)
class Distances:
    """What was measured over some images."""

    per_image: np.ndarray
    """(images, layers, heads) in pixels."""
    layers: tuple[int, ...]
    uniform: float
    """What equal attention to all patches would give."""
    patch: tuple[int, int]
    """Pixels that a patch stands for."""

    @property
    def mean(self) -> np.ndarray:
        """(layers, heads)."""
        return self.per_image.mean(axis=0)


def distance_figure(found: Distances) -> Figure:
    """A dot for each head of each layer."""
    mean, images = found.mean, len(found.per_image)
    low, high = mean.min(axis=1), mean.max(axis=1)
    ends = [0, -1] if len(found.layers) > 1 else [0]
    told = [f"{_span(low[end], high[end])} in layer {found.layers[end]}" for end in ends]
    return Figure(
        name="distance",
        title="Mean attention distance by head and depth",
        caption=(
            f"Each dot is a head: how many pixels away it looks on average over {counted(images, 'image')}, "
            f"{' and '.join(told)}; equal attention to all patches would give {pixels(found.uniform)} (dashed)"
            f"{_meaning(mean, found.uniform)}. It is meanᵢ Σⱼ Aᵢⱼ dᵢⱼ over patches i and j, with A = softmax(q kᵀ / "
            "√d) without the rows and columns of class token and registers and not rescaled, and dᵢⱼ the "
            "distance between the centres of two patches in pixels."
        ),
        seen="; ".join(
            [
                *(f"layer {found.layers[end]}: {_span(low[end], high[end])} px" for end in ends),
                f"equal attention: {pixels(found.uniform)} px",
            ]
        ),
        draw=lambda _: _drawn(found),
        numbers={
            "distance": mean.astype(np.float32),
            "distance_of_images": found.per_image.astype(np.float32),
            "distance_layers": np.array(found.layers),
        },
        facts={
            "images": images,
            "layers": list(found.layers),
            "uniform": found.uniform,
            "lowest": low.tolist(),
            "highest": high.tolist(),
            "mean": mean.tolist(),
        },
    )


def pixels(value: float) -> str:
    """A number of pixels: whole ones, and two digits where there are few."""
    return f"{value:.{2 if value < 1 else 1 if value < 10 else 0}f}"


def _span(low: float, high: float) -> str:
    return pixels(low) if pixels(low) == pixels(high) else f"{pixels(low)} to {pixels(high)}"


def _meaning(mean: np.ndarray, uniform: float) -> str:
    """What the numbers of this network come to."""
    if not uniform:
        return ""
    share = mean / uniform
    if np.abs(share - 1).max() < _ALIKE:
        return ", and every head looks about as far as that: none has learnt to look near or far"
    local, heads = int((share < _LOCAL).sum()), share.size
    return f"; {local} of {counted(heads, 'head')} {'looks' if local == 1 else 'look'} less than half as far as that"


def _drawn(found: Distances) -> Canvas:
    canvas = Canvas(figsize=(4.4, 3.3), layout="constrained")
    draw_distance(canvas, found)
    return canvas


def draw_distance(place: Canvas | SubFigure, found: Distances) -> None:
    """Dots coloured by head; the first few heads are named, as in the paper."""
    axes, mean = place.subplots(), found.mean
    heads = mean.shape[1]
    colours = distinct_colours(heads)
    for head in range(heads):
        name = f"Head {head + 1}" if head < _NAMED or heads <= _NAMED + 2 else "…" if head == _NAMED else None
        axes.scatter(
            found.layers, mean[:, head], s=16, color=colours[head], linewidths=0, alpha=0.85, label=name, zorder=2
        )
    axes.axhline(found.uniform, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1, label="equal attention")
    # A grid of one patch has no distances at all.
    axes.set_ylim(0, max(found.uniform, float(mean.max()), 1.0) * 1.12)
    axes.set_xlim(min(found.layers) - 0.6, max(found.layers) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("Network depth (layer)")
    axes.set_ylabel("Mean attention distance (pixels)")
    axes.set_title("Mean attention distance")
    axes.legend(loc="lower right", fontsize=7, handletextpad=0.2, borderaxespad=0.2)
