"""The filters that read pixels, as Figure 7 (left) shows them."""

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure

from vitrail.inspection import Filters
from vitrail.reports.figures import Figure, show

_ACROSS = 7
_CELL = 0.72
# What its title takes, in inches.
_TITLE = 2.9


def filters_figure(found: Filters) -> Figure:
    """A grid of principal components, the one that explains most first."""
    count, height, width, channels = found.components.shape
    share = float(found.shares.sum())
    numbers = height * width * channels
    # Centred, so many filters span one dimension less.
    is_all = count >= min(found.count - 1, numbers)
    half = int(np.searchsorted(np.cumsum(found.shares.numpy()), 0.5 * share)) + 1
    told = (
        f"all there are of so few {'pixels' if count == numbers else 'filters'}, the first {half} with half of their "
        "variance"
        if is_all
        else f"{share:.0%} of their variance together (of noise it would be {share_of_noise(found):.0%})"
    )
    kind = "RGB embedding filters" if channels == 3 else "Embedding filters"
    return Figure(
        name="filters",
        title=f"{kind}: first {count} principal components",
        caption=(
            f"The {count} patterns of {height}x{width} pixels that explain most of how the {found.count:,} "
            f"filters of the {found.layer} differ, {told}; a network that has "
            "learnt shows edges, waves and colours, one that has not shows noise. They are the first right "
            "singular vectors V of the filters as centred rows, E − mean(E) = U S Vᵀ, each brought to 0 .. 1 by "
            "its own least and largest number."
        ),
        seen=(
            f"{count} components are all that {found.count:,} filters of {height}x{width} pixels can have"
            if is_all
            else f"{count} components explain {share:.0%} of {found.count:,} filters of {height}x{width} pixels"
        ),
        draw=lambda _: _drawn(found, kind),
        numbers={"filters": found.components.numpy(), "filter_shares": found.shares.numpy()},
        facts={"layer": found.layer, "filters": found.count, "components": count, "explained": share},
    )


def share_of_noise(found: Filters) -> float:
    """What as many components explain of as many filters whose numbers are random."""
    values = np.random.default_rng(0).normal(size=(found.count, found.components[0].numel()))
    values -= values.mean(axis=0)
    narrow = values if values.shape[0] <= values.shape[1] else values.T
    variance = np.linalg.eigvalsh(narrow @ narrow.T)[::-1]
    return float(variance[: len(found.components)].sum() / variance.sum())


def _drawn(found: Filters, kind: str) -> Canvas:
    across = min(_ACROSS, len(found.components))
    rows = -(-len(found.components) // across)
    canvas = Canvas(figsize=(max(across * _CELL, _TITLE), rows * _CELL + 0.5), layout="constrained")
    draw_filters(canvas, found, title=f"{kind}\n(first {len(found.components)} principal components)")
    return canvas


def draw_filters(place: Canvas | SubFigure, found: Filters, title: str) -> None:
    """The grid as one picture, with the paper seen between the filters."""
    axes = place.subplots()
    pictures = found.components.numpy()
    if pictures.shape[-1] not in (1, 3):
        pictures = pictures.mean(axis=-1, keepdims=True)
    show(axes, mosaic(pictures.repeat(3, axis=-1) if pictures.shape[-1] == 1 else pictures), sharp=True)
    axes.set_title(title)


def mosaic(pictures: np.ndarray) -> np.ndarray:
    """Pictures (count, height, width, channels) in rows of at most seven, with thin lines of nothing between them."""
    count, height, width, channels = pictures.shape
    # A line has to be thin beside the filter, whatever the number of its pixels.
    times = max(1, -(-32 // max(height, width)))
    pictures = pictures.repeat(times, axis=1).repeat(times, axis=2)
    height, width, gap = height * times, width * times, max(1, height * times // 16)
    across = min(_ACROSS, count)
    rows = -(-count // across)
    # The fourth number says how much is seen.
    whole = np.zeros((rows * (height + gap) - gap, across * (width + gap) - gap, channels + 1), dtype=np.float32)
    for number, picture in enumerate(pictures):
        top, left = (number // across) * (height + gap), (number % across) * (width + gap)
        whole[top : top + height, left : left + width, :channels] = picture
        whole[top : top + height, left : left + width, channels] = 1
    return whole
