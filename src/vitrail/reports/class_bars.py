"""The accuracy of every class as a picture: bars with their names for a few, a curve from worst to best for many."""

from collections.abc import Sequence

from vitrail.data.check.words import counted, number, text
from vitrail.evaluation import interval
from vitrail.evaluation.metrics import ClassResult
from vitrail.reports.confusion import MOST_CLASSES, shortened
from vitrail.reports.numbers import percent

_ROW, _TOP, _SPAN = 20.0, 30.0, 300.0
_NAMES, _VALUES = 170.0, 150.0
_LEFT, _DEPTH = 46.0, 210.0
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def class_picture(classes: Sequence[ClassResult]) -> str:
    """Classes that have images, the worst first."""
    there = sorted(
        (one for one in classes if one.accuracy is not None), key=lambda one: (one.accuracy, -one.images, one.number)
    )
    return _bars(there) if len(there) <= MOST_CLASSES else _curve(there)


def _bars(classes: Sequence[ClassResult]) -> str:
    width, height = _NAMES + _SPAN + _VALUES, _TOP + _ROW * len(classes) + 22
    ground = height - 22
    lines = "".join(
        f'<path class="grid" d="M{_NAMES + tick * _SPAN:g} {_TOP - 4:g}V{ground:g}"/>'
        f'<text x="{_NAMES + tick * _SPAN:g}" y="{ground + 16:g}" text-anchor="middle">{100 * tick:g}%</text>'
        for tick in _TICKS
    )
    rows = "".join(_bar(one, _TOP + place * _ROW) for place, one in enumerate(classes))
    title = '<text class="title" x="0" y="14">Accuracy of each class, with its 95 % interval</text>'
    return _svg("classes", width, height, "Accuracy of each class", title + lines + rows)


def _bar(one: ClassResult, y: float) -> str:
    assert one.accuracy is not None
    low, high = interval(one.right, one.images)
    middle = y + _ROW / 2
    told = (
        f"{text(one.name)}: {number(one.right)} of {counted(one.images, 'image')} right, 95 % interval "
        f"{percent(low)} to {percent(high)}"
    )
    return (
        f'<g><title>{told}</title><text x="{_NAMES - 10:g}" y="{middle + 4:.1f}" text-anchor="end">'
        f"{text(shortened(one.name, 24))}</text>"
        f'<rect class="track" x="{_NAMES:g}" y="{y + 4:.1f}" width="{_SPAN:g}" height="{_ROW - 8:g}"/>'
        f'<rect class="hit" x="{_NAMES:g}" y="{y + 4:.1f}" width="{one.accuracy * _SPAN:.1f}" height="{_ROW - 8:g}"/>'
        f'<path class="span" d="M{_NAMES + low * _SPAN:.1f} {middle:.1f}H{_NAMES + high * _SPAN:.1f}"/>'
        f'<text class="value" x="{_NAMES + _SPAN + 12:g}" y="{middle + 4:.1f}">{percent(one.accuracy)}</text>'
        f'<text x="{_NAMES + _SPAN + 68:g}" y="{middle + 4:.1f}">{number(one.right)} of {number(one.images)}</text></g>'
    )


def _curve(classes: Sequence[ClassResult]) -> str:
    """One step per class, as an area from left to right."""
    span, ground = 2 * _SPAN, _TOP + _DEPTH
    step = span / len(classes)
    points = "".join(f"V{ground - (one.accuracy or 0) * _DEPTH:.1f}h{step:.3f}" for one in classes)
    lines = "".join(
        f'<path class="grid" d="M{_LEFT:g} {ground - tick * _DEPTH:.1f}h{span:g}"/>'
        f'<text x="{_LEFT - 8:g}" y="{ground - tick * _DEPTH + 4:.1f}" text-anchor="end">{100 * tick:g}%</text>'
        for tick in _TICKS
    )
    below = f"{counted(len(classes), 'class', 'classes')}, the worst at the left"
    body = (
        '<text class="title" x="0" y="14">Accuracy of each class</text>'
        f'{lines}<path class="hit" d="M{_LEFT:g} {ground:g}{points}V{ground:g}z"/>'
        f'<path class="axis" d="M{_LEFT:g} {ground:g}h{span:g}"/>'
        f'<text x="{_LEFT + span / 2:g}" y="{ground + 18:g}" text-anchor="middle">{below}</text>'
    )
    return _svg("classes", _LEFT + span + 14, ground + 26, "Accuracy of each class", body)


def _svg(kind: str, width: float, height: float, label: str, body: str) -> str:
    return (
        f'<svg class="plot {kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="img" aria-label="{label}">{body}</svg>'
    )
