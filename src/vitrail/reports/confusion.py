"""What is taken for what: a heat map for a few classes, the worst pairs in words for any number."""

import math
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vitrail.data.check.words import counted, number, text
from vitrail.reports.numbers import percent

MOST_CLASSES = 40
_PAIRS = 20
_NAME = 22
_HEIGHT = 11.0

Link = Callable[[tuple[int, int]], str | None]
"""Where the cell of (is, was taken for) leads to, if anywhere."""


@dataclass(frozen=True)
class Pair:
    """Images of one class that were taken for another."""

    true: int
    guess: int
    images: int
    share: float
    """Of the images of the true class."""


def worst_pairs(table: np.ndarray) -> list[Pair]:
    """The most frequent confusions, and among equals those of smaller classes."""
    wrong = table.copy()
    np.fill_diagonal(wrong, 0)
    totals = table.sum(axis=1)
    rows, columns = np.nonzero(wrong)
    found = [
        Pair(int(row), int(column), int(wrong[row, column]), float(wrong[row, column] / totals[row]))
        for row, column in zip(rows, columns, strict=True)
    ]
    return sorted(found, key=lambda pair: (-pair.images, -pair.share, pair.true, pair.guess))[:_PAIRS]


def _nowhere(_place: tuple[int, int]) -> None:
    return None


def pairs_table(pairs: list[Pair], classes: tuple[str, ...], link: Link = _nowhere) -> str:
    """The pairs, a line each."""

    def shown(pair: Pair) -> str:
        address = link((pair.true, pair.guess))
        told = f"{counted(pair.images, 'image')} of {classes[pair.true]} taken for {classes[pair.guess]}"
        images = number(pair.images)
        return f'<a href="{address}" aria-label="{text(told)}">{images}</a>' if address else images

    rows = "".join(
        f"<tr><td><b>{text(classes[pair.true])}</b></td><td><b>{text(classes[pair.guess])}</b></td>"
        f'<td class="n">{shown(pair)}</td><td class="n">{percent(pair.share)}</td></tr>'
        for pair in pairs
    )
    heads = '<th>is<th>was taken for<th class="n">images<th class="n">of its class'
    return f'<table class="pairs"><tr>{heads}</tr>{rows}</table>'


def heat_map(table: np.ndarray, classes: tuple[str, ...], link: Link = _nowhere) -> str:
    """Rows are what an image is, columns what it was taken for; the stronger, the larger the share of the row."""
    side = 38.0 if len(classes) <= 12 else 28.0 if len(classes) <= 20 else 18.0
    rows = [shortened(name, _NAME) for name in classes]
    left = 12 + max(map(_width, rows))
    turned = max(map(_width, rows)) > side - 4
    top = 34 + (0.72 * max(map(_width, rows)) if turned else _HEIGHT)
    extent = side * len(classes)
    right = 0.72 * _width(rows[-1]) if turned else 0
    totals = table.sum(axis=1)
    cells = "".join(
        _linked(
            (int(row), int(column)),
            link((int(row), int(column))),
            _told((int(row), int(column)), int(table[row, column]), int(totals[row]), classes),
            _cell((int(row), int(column)), int(table[row, column]), int(totals[row]), (left, top, side)),
        )
        for row, column in zip(*np.nonzero(table), strict=True)
    )
    names = "".join(
        f'<text x="{left - 8:.1f}" y="{top + (place + 0.5) * side + 4:.1f}" text-anchor="end">{text(name)}'
        f"<title>{text(classes[place])}</title></text>{_column_name(name, left + (place + 0.5) * side, top, turned)}"
        for place, name in enumerate(rows)
    )
    lines = "".join(
        f'<path class="grid" d="M{left:.1f} {top + place * side:.1f}h{extent:g}M{left + place * side:.1f} {top:.1f}'
        f'v{extent:g}"/>'
        for place in range(len(classes) + 1)
    )
    titles = (
        f'<text class="epoch" x="{left - 8:.1f}" y="{top - 7:.1f}" text-anchor="end">is</text>'
        f'<text class="epoch" x="{left + extent / 2:.1f}" y="12" text-anchor="middle">was taken for</text>'
    )
    width, height = left + extent + right + 2, top + extent + 2
    # A picture has no parts that can be chosen.
    role = "group" if "<a " in cells else "img"
    return (
        f'<svg class="plot matrix" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="{role}" aria-label="Confusion matrix">{lines}{cells}{names}{titles}</svg>'
    )


def shortened(name: str, columns: int) -> str:
    """A name cut to a number of columns; letters of East Asian scripts take two."""
    if _columns(name) <= columns:
        return name
    kept = ""
    for letter in name:
        if _columns(kept + letter) >= columns:
            break
        kept += letter
    return f"{kept}…"


def _told(place: tuple[int, int], images: int, total: int, classes: tuple[str, ...]) -> str:
    row, column = place
    return (
        f"{text(classes[row])}, taken for {'itself' if row == column else text(classes[column])}: "
        f"{number(images)} of {number(total)} ({percent(images / total)})"
    )


def _linked(place: tuple[int, int], address: str | None, told: str, drawn: str) -> str:
    if address is None:
        return f"<g><title>{told}</title>{drawn}</g>"
    row, column = place
    return f'<a href="{address}" data-cell="{row} {column}"><title>{told}</title>{drawn}</a>'


def _cell(cell: tuple[int, int], images: int, total: int, place: tuple[float, float, float]) -> str:
    (row, column), (left, top, side) = cell, place
    share = images / total
    kind = "hit" if row == column else "miss"
    # By the root for mistakes, so that a single one is still seen.
    strength = share if row == column else math.sqrt(share)
    x, y = left + column * side, top + row * side
    shown = (
        f'<text class="{"on" if strength > 0.55 else "off"}" x="{x + side / 2:.1f}" y="{y + side / 2 + 4:.1f}" '
        f'text-anchor="middle" aria-hidden="true">{images}</text>'
        if 7.5 * len(str(images)) < side
        else ""
    )
    return (
        f'<rect class="{kind}" x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{side - 1:g}" '
        f'height="{side - 1:g}" fill-opacity="{0.08 + 0.92 * strength:.2f}"/>{shown}'
    )


def _column_name(name: str, x: float, top: float, turned: bool) -> str:
    if not turned:
        return f'<text x="{x:.1f}" y="{top - 7:.1f}" text-anchor="middle">{text(name)}</text>'
    return f'<text transform="translate({x + 3:.1f} {top - 7:.1f}) rotate(-45)">{text(name)}</text>'


def _columns(name: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name)


def _width(name: str) -> float:
    """About as many pixels as a name takes."""
    return 6.1 * _columns(name)
