"""The two pictures of a check: images per class, and sizes of images; plain HTML and SVG."""

import math

from vitrail.data.check.findings import ClassCount, Sizes
from vitrail.data.check.words import counted, number, text

# Beyond this many classes the largest and the smallest are shown.
_BARS = 60
_CELL = 13.0
_MARGIN_LEFT, _MARGIN_BOTTOM, _MARGIN_TOP = 52.0, 40.0, 8.0


def class_bars(classes: tuple[ClassCount, ...], splits: dict[str, int]) -> str:
    """A bar for each class, divided by split, the largest first."""
    ranked = sorted(classes, key=lambda one: (-sum(one.images.values()), one.name))
    longest = max((sum(one.images.values()) for one in ranked), default=1) or 1
    hidden = len(ranked) - _BARS
    rows = [_bar(one, list(splits), longest) for one in ranked]
    if hidden > 0:
        gap = f'<p class="more">{number(hidden)} classes in between are in the JSON</p>'
        rows = [*rows[: _BARS // 2], gap, *rows[-_BARS // 2 :]]
    return f'{_legend(splits)}<div class="bars">{"".join(rows)}</div>'


def _bar(one: ClassCount, splits: list[str], longest: int) -> str:
    parts = "".join(
        f'<i class="s{place % 3}" style="width:{100 * one.images[split] / longest:.2f}%"></i>'
        for place, split in enumerate(splits)
        if one.images[split]
    )
    told = ", ".join(f"{text(split)} {number(one.images[split])}" for split in splits)
    total = sum(one.images.values())
    return (
        f'<div class="bar" title="{told}"><span class="name">{text(one.name)}</span>'
        f'<span class="track">{parts}</span><span class="count">{number(total)}</span></div>'
    )


def _legend(splits: dict[str, int]) -> str:
    keys = "".join(
        f'<span><i class="s{place % 3}"></i>{text(split)} <b>{number(count)}</b></span>'
        for place, (split, count) in enumerate(splits.items())
    )
    return f'<p class="legend">{keys}</p>'


def size_map(sizes: Sizes) -> str:
    """Width against height, both on a logarithmic scale; the darker, the more images."""
    sides = [math.log2(side) for cell in sizes.cells for side in (cell.width, cell.height)]
    low, high = math.floor(min(sides) - 0.5), math.ceil(max(sides) + 0.5)
    extent = (high - low) * 4 * _CELL
    most = max(cell.images for cell in sizes.cells)

    def across(side: float) -> float:
        return _MARGIN_LEFT + (math.log2(side) - low) * 4 * _CELL

    def down(side: float) -> float:
        return _MARGIN_TOP + extent - (math.log2(side) - low) * 4 * _CELL

    ticks = [2**power for power in range(low, high + 1)]
    lines = "".join(
        f'<path class="grid" d="M{across(tick):.1f} {_MARGIN_TOP}v{extent:.1f}"/>'
        f'<path class="grid" d="M{_MARGIN_LEFT} {down(tick):.1f}h{extent:.1f}"/>'
        f'<text x="{across(tick):.1f}" y="{_MARGIN_TOP + extent + 16:.1f}" text-anchor="middle">{tick}</text>'
        f'<text x="{_MARGIN_LEFT - 8}" y="{down(tick) + 4:.1f}" text-anchor="end">{tick}</text>'
        for tick in ticks
    )
    square = f'<path class="square" d="M{_MARGIN_LEFT} {_MARGIN_TOP + extent:.1f}l{extent:.1f} {-extent:.1f}"/>'
    cells = "".join(
        f'<rect x="{across(cell.width) + 0.5:.1f}" y="{down(cell.height) - _CELL + 0.5:.1f}" width="{_CELL - 1}" '
        f'height="{_CELL - 1}" rx="2.5" opacity="{_shade(cell.images, most):.2f}">'
        f"<title>from {cell.width} x {cell.height} pixels: {counted(cell.images, 'image')}</title></rect>"
        for cell in sizes.cells
    )
    width, height = _MARGIN_LEFT + extent + 24, _MARGIN_TOP + extent + _MARGIN_BOTTOM
    return (
        f'<svg class="sizes" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="Widths and heights of the images">{lines}{square}<g class="cells">{cells}</g>'
        f'<text x="{_MARGIN_LEFT + extent / 2:.1f}" y="{height - 6:.1f}" text-anchor="middle">width in pixels</text>'
        f'<text transform="translate(12 {_MARGIN_TOP + extent / 2:.1f}) rotate(-90)" text-anchor="middle">height</text>'
        "</svg>"
    )


def _shade(images: int, most: int) -> float:
    """By the logarithm, so that single images are still seen beside thousands."""
    return 0.25 + 0.75 * (math.log1p(images) / math.log1p(most))
