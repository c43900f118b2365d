"""The reliability diagram: how often a model is right beside how sure it is, bin by bin (Guo et al. 2017)."""

from vitrail.data.check.words import counted, number
from vitrail.evaluation import interval
from vitrail.evaluation.calibration import Calibration, CalibrationBin
from vitrail.reports.numbers import percent

_LEFT, _TOP, _SIDE = 46.0, 54.0, 320.0
_BELOW, _COUNTS = 58.0, 56.0
_WIDTH, _HEIGHT = _LEFT + _SIDE + 16, _TOP + _SIDE + _BELOW + _COUNTS + 22
# A difference that nobody would act on.
_CLOSE = 0.01
_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def trust_words(found: Calibration) -> str:
    """How to read the diagram, and what it comes to."""
    return (
        f"{number(found.images)} images in {len(found.bins)} bins of equal width. On average the model is "
        f"{percent(found.confidence)} sure and {percent(found.accuracy)} right. {_verdict(found)} On the dashed line "
        "it would be right as often as it says."
    )


def _verdict(found: Calibration) -> str:
    """Whether its word can be taken, and what usually lies behind it."""
    low, high = interval(round(found.accuracy * found.images), found.images)
    if low <= found.confidence <= high or abs(found.confidence - found.accuracy) < _CLOSE:
        return "All in all its word is about right."
    if found.confidence > found.accuracy:
        return "It is too sure of itself, as networks are that have seen the same images very often."
    return "It is too modest, as networks are that learnt from smoothed labels or mixed images, or not for long."


def reliability_parts(found: Calibration) -> str:
    """The diagram beside its numbers."""
    return f'<div class="beside">{reliability_diagram(found)}{bins_table(found)}</div>'


def reliability_diagram(found: Calibration) -> str:
    """Bars are the share that is right, and what lies between it and what the model says; below, images per bin."""
    most = max(one.images for one in found.bins)
    title = f"Calibration error {percent(found.ece, 2)}"
    return (
        f'<svg class="plot reliability" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" width="{_WIDTH:g}" height="{_HEIGHT:g}" '
        f'role="img" aria-label="Reliability diagram">'
        f'<text class="title" x="0" y="14">{title}</text>{_legend()}{_grid()}'
        f"{''.join(_bar(one) for one in found.bins if one.images)}"
        f'<path class="ideal" d="M{_LEFT:g} {_TOP + _SIDE:g}l{_SIDE:g} {-_SIDE:g}"/>'
        f"{_counts(found, most)}</svg>"
    )


def _legend() -> str:
    """From the right end: a patch and its meaning."""
    parts, right = [], _LEFT + _SIDE
    for kind, words in (("modest", "not sure enough"), ("gap", "too sure"), ("hit", "right")):
        right -= 6.2 * len(words)
        parts.append(
            f'<rect class="{kind}" x="{right - 13:.1f}" y="{_TOP - 19:g}" width="9" height="9"/>'
            f'<text x="{right:.1f}" y="{_TOP - 11:g}">{words}</text>'
        )
        right -= 26
    return "".join(parts)


def _grid() -> str:
    ground = _TOP + _SIDE
    lines = "".join(
        f'<path class="grid" d="M{_LEFT:g} {ground - tick * _SIDE:.1f}h{_SIDE:g}"/>'
        f'<text x="{_LEFT - 8:g}" y="{ground - tick * _SIDE + 4:.1f}" text-anchor="end">{100 * tick:g}%</text>'
        f'<text x="{_LEFT + tick * _SIDE:.1f}" y="{ground + 16:g}" text-anchor="middle">{100 * tick:g}%</text>'
        for tick in _TICKS
    )
    return (
        f'{lines}<path class="axis" d="M{_LEFT:g} {ground:g}h{_SIDE:g}"/>'
        f'<text x="{_LEFT + _SIDE / 2:g}" y="{ground + 34:g}" text-anchor="middle">'
        "probability of the first guess</text>"
    )


def _bar(one: CalibrationBin) -> str:
    assert one.accuracy is not None and one.confidence is not None
    x, width, ground = _LEFT + one.low * _SIDE + 0.5, (one.high - one.low) * _SIDE - 1, _TOP + _SIDE
    low, high = sorted((one.accuracy, one.confidence))
    kind = "gap" if one.confidence > one.accuracy else "modest"
    told = (
        f"{percent(one.low, 0)} to {percent(one.high, 0)} sure: {counted(one.images, 'image')}, on average "
        f"{percent(one.confidence)} sure, {percent(one.accuracy)} right"
    )
    return (
        f"<g><title>{told}</title>"
        f'<rect class="hit" x="{x:.1f}" y="{ground - low * _SIDE:.1f}" width="{width:.1f}" '
        f'height="{low * _SIDE:.1f}"/>'
        f'<rect class="{kind}" x="{x:.1f}" y="{ground - high * _SIDE:.1f}" width="{width:.1f}" '
        f'height="{(high - low) * _SIDE:.1f}"/></g>'
    )


def _counts(found: Calibration, most: int) -> str:
    ground = _TOP + _SIDE + _BELOW + _COUNTS
    bars = "".join(
        f'<g><title>{counted(one.images, "image")}</title><rect class="few" x="{_LEFT + one.low * _SIDE + 0.5:.1f}" '
        f'y="{ground - one.images / most * _COUNTS:.1f}" width="{(one.high - one.low) * _SIDE - 1:.1f}" '
        f'height="{one.images / most * _COUNTS:.1f}"/></g>'
        for one in found.bins
        if one.images
    )
    return (
        f'{bars}<path class="axis" d="M{_LEFT:g} {ground:g}h{_SIDE:g}"/>'
        f'<text x="{_LEFT - 8:g}" y="{ground - _COUNTS + 8:g}" text-anchor="end">{number(most)}</text>'
        f'<text x="{_LEFT + _SIDE / 2:g}" y="{ground + 16:g}" text-anchor="middle">images per bin</text>'
    )


def bins_table(found: Calibration) -> str:
    """The numbers of the diagram."""
    rows = "".join(
        f"<tr><td>{percent(one.low, 0)} to {percent(one.high, 0)}</td>"
        f'<td class="n">{number(one.images)}</td><td class="n">{percent(one.confidence or 0.0)}</td>'
        f'<td class="n">{percent(one.accuracy or 0.0)}</td></tr>'
        for one in found.bins
        if one.images
    )
    heads = '<th>probability<th class="n">images<th class="n">said on average<th class="n">right'
    return f'<table class="bins"><tr>{heads}</tr>{rows}</table>'
