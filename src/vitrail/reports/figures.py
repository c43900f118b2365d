"""A figure in print quality: drawn once, written as SVG with text that stays text, or as PNG."""

import html
import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from vitrail.reports.glyphs import Naming, font_families, is_drawable, one_line

INK, SOFT, PAPER = "#1b2130", "#5d6675", "#ffffff"
"""Lines and letters, what is less important, and what lies behind."""

# Smaller pictures are enlarged cell by cell, so that no viewer blurs them.
_SMALL = 160
# Of photos inside an SVG; everything else in it is drawn and has none.
_SVG_DPI = 200
_THEME = {INK: f"var(--ink, {INK})", SOFT: f"var(--soft, {SOFT})", PAPER: f"var(--card, {PAPER})"}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing with what it shows in words and in numbers."""

    name: str
    """Of its files, such as `rollout`."""
    title: str
    caption: str
    """Two sentences: what one sees, and how it is computed."""
    seen: str
    """The numbers in one line."""
    draw: Callable[[Naming], Canvas] = field(repr=False)
    """Draws it; classes are named by the function it is given."""
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    """What is drawn, as arrays."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What is worth saying about it, for JSON."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """Names of the classes that the drawing names."""


def as_svg(figure: Figure, *, themed: bool = False) -> str:
    """The figure as one `<svg>` element with text as text; ids begin with its name, so that a page can hold many.

    Themed, its ink and paper follow `--ink`, `--soft` and `--card` of the page around it, light or dark.
    """
    file = io.StringIO()
    with _style(figure, "svg"):
        figure.draw(Naming(figure.labels, only_drawable=False)).savefig(
            file, format="svg", dpi=_SVG_DPI, metadata={"Date": None}
        )
    drawn = file.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    # Tags alone: a name between them may look like anything.
    drawn = re.sub(r"<[a-z][^>]*>", lambda tag: _own(tag[0], figure.name, themed), drawn)
    told = html.escape(f"{figure.title}. {figure.caption}")
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{told}" ', 1)


def _own(tag: str, name: str, themed: bool) -> str:
    """A tag with the ids of one figure and, themed, with the colours of the page."""
    tag = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', tag)
    tag = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", tag)
    for colour, variable in _THEME.items() if themed else ():
        tag = tag.replace(f": {colour}", f": {variable}")
    return tag


def as_png(figure: Figure, dpi: int = 300) -> bytes:
    """The figure as a PNG; a class whose letters no installed font has is named by its number."""
    file = io.BytesIO()
    with _style(figure, "png"):
        figure.draw(Naming(figure.labels, only_drawable=True)).savefig(
            file,
            format="png",
            dpi=dpi,
            metadata={"Software": None, "Title": figure.title, "Description": figure.caption},
        )
    return file.getvalue()


def png_caption(figure: Figure) -> str:
    """The caption of the PNG: that of the figure, and the names of classes that could only be numbered."""
    numbered = [
        f"class {number} is {name}"
        for number, label in sorted(figure.labels.items())
        if (name := one_line(label)) and not is_drawable(name)
    ]
    return (
        f"{figure.caption} Names that the installed fonts cannot draw: {'; '.join(numbered)}."
        if numbered
        else figure.caption
    )


def show(axes: Axes, picture: np.ndarray, *, sharp: bool = False, **how: Any) -> None:
    """A picture without axes around it; cells of a small one stay squares with sharp edges, a photo stays smooth."""
    times = max(1, -(-_SMALL // max(picture.shape[:2])))
    large = picture.repeat(times, axis=0).repeat(times, axis=1)
    axes.imshow(large, interpolation="none" if sharp or times > 1 else "bilinear", **how)
    axes.set_axis_off()


def distinct_colours(count: int) -> np.ndarray:
    """Colours for so many things, none of them too dark for a black page or too pale for a white one."""
    return colormaps["turbo"](np.linspace(0.13, 0.87, max(count, 2)))[:count]


@contextmanager
def _style(figure: Figure, format: str) -> Iterator[None]:
    """Our look, and no surprises: names are never read as formulas."""
    names = [one_line(label) for label in figure.labels.values()]
    families = [*font_families(names), "sans-serif"] if format == "svg" else font_families(filter(is_drawable, names))
    look: dict[Any, Any] = {
        "axes.edgecolor": SOFT,
        "axes.labelcolor": INK,
        "axes.linewidth": 0.6,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 9,
        "figure.facecolor": PAPER,
        "axes.facecolor": "none",
        "font.family": families,
        "font.size": 8,
        "legend.frameon": False,
        "savefig.facecolor": PAPER,
        "svg.fonttype": "none",
        "svg.hashsalt": "vitrail",
        "text.color": INK,
        "text.parse_math": False,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
    }
    with matplotlib.rc_context(look), warnings.catch_warnings():
        # An SVG is read with the fonts of its reader; that one is missing here is no news.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        warnings.filterwarnings("ignore", message=".*findfont.*")
        yield
