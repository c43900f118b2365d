"""Each image beside what is shown of it, in rows of pairs, with its name and answer below."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from vitrail.reports.figures import show
from vitrail.reports.glyphs import Naming
from vitrail.reports.shown import Shown

_ACROSS = 3
# Of a picture, in inches.
_SIDE = 1.25
# Of half of the two lines below it.
_LINES = 0.17


def draw_pairs(shown: Shown, title: str, beside: Sequence[np.ndarray], naming: Naming, words: Sequence[str]) -> Canvas:
    """The input at the left of each pair, what lies `beside` it at the right, with some `words` below that."""
    pictures = shown.pictures
    across = min(_ACROSS, len(pictures))
    canvas, places = _room(-(-len(pictures) // across), across, pictures.shape[1] / pictures.shape[2])
    for number, (picture, other, said) in enumerate(zip(pictures, beside, words, strict=True)):
        row, column = divmod(number, across)
        left, right = places[row, 3 * column], places[row, 3 * column + 1]
        show(left, picture)
        show(right, other)
        if row == 0:
            left.set_title("Input", fontsize=8)
            right.set_title(title, fontsize=8)
        _below(left, f"{shown.file(number)}\n{shown.answer(number, naming)}".rstrip())
        _below(right, said, at_the_right=True)
    return canvas


def _room(rows: int, across: int, tall: float) -> tuple[Canvas, np.ndarray]:
    """Room for pairs of pictures, with air between the pairs; every third column is empty."""
    height = rows * (_SIDE * tall + 2 * _LINES) + 0.2
    canvas = Canvas(figsize=(across * 2.12 * _SIDE, height), layout="constrained")
    # Words below take no part in the layout, so the room for them is said here: between rows, and below the last.
    rest = (0, _LINES / height, 1, 1 - _LINES / height)
    canvas.get_layout_engine().set(w_pad=0.015, h_pad=0.9 * _LINES, wspace=0, hspace=0, rect=rest)  # type: ignore[union-attr]
    places = canvas.subplots(rows, 3 * across - 1, squeeze=False, width_ratios=([1, 1, 0.06] * across)[:-1])
    for axes in places.flat:
        axes.set_axis_off()
    return canvas, places


def _below(axes: Axes, words: str, *, at_the_right: bool = False) -> None:
    """A line or two under a picture, which may be longer than the picture is wide."""
    place, side = (1, "right") if at_the_right else (0, "left")
    text = axes.text(place, -0.04, words, transform=axes.transAxes, va="top", ha=side, fontsize=6.5, linespacing=1.3)
    text.set_in_layout(False)
