"""One line chart as SVG: readable axes, steps and epochs below, and the numbers of a step under the pointer."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from vitrail.data.check.words import text
from vitrail.reports.axes import Axis, round_step, step_axis, tick_text

Point = tuple[float, float]
"""A step and a value."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 14.0, 34.0, 44.0
# More would be finer than a pixel.
_MOST_POINTS = 400
_MOST_STRIPS = 120
_FEW = 30
_EPOCH_LABELS = 6
_SHAPES = 7


@dataclass(frozen=True)
class Line:
    """One curve; `colour` is a class of the style."""

    name: str
    colour: str
    points: Sequence[Point]
    shape: str = ""
    """A path that marks it here and there, so that it is known without its colour."""


@dataclass(frozen=True)
class Mark:
    """A step at which something happened."""

    step: float
    told: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn."""

    title: str
    lines: Sequence[Line]
    y: Axis
    show: Callable[[float], str]
    """A value, in words."""
    tick: Callable[[float], str] = tick_text
    last_step: int
    steps_per_epoch: float | None
    """None where there is not one number for all lines."""
    width: float = 480.0
    height: float = 270.0
    marks: Sequence[Mark] = ()
    star: tuple[float, float, str] | None = None
    """A step and a value to point out, with the reason."""

    def svg(self) -> str:
        """The drawing; its colours come from the style around it."""
        lines = [replace(line, points=thinned(line.points)) for line in self.lines if line.points]
        parts = [
            f'<text class="title" x="0" y="14">{text(self.title)}</text>',
            self._legend(lines) if len(lines) > 1 else "",
            self._grid(),
            *(self._curve(line) for line in lines),
            *(self._shapes(line, place / len(lines)) for place, line in enumerate(lines) if line.shape),
            self._star(),
            self._strips(lines),
            # Above the strips, so that the pointer finds them.
            *(self._mark(mark) for mark in self.marks),
        ]
        return (
            f'<svg class="plot" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'role="img" aria-label="{text(self.title)}">{"".join(parts)}</svg>'
        )

    @cached_property
    def _x(self) -> Axis:
        return step_axis(self.last_step)

    def _across(self, step: float) -> float:
        return _LEFT + self._x.place(step) * (self.width - _LEFT - _RIGHT)

    def _down(self, value: float) -> float:
        return _TOP + (1 - self.y.place(value)) * self._depth

    @property
    def _depth(self) -> float:
        return self.height - _TOP - _BOTTOM

    def _legend(self, lines: list[Line]) -> str:
        """From the right end: a dash and a name for each line."""
        parts, right = [], self.width - _RIGHT
        for line in reversed(lines):
            parts.append(f'<text x="{right:.1f}" y="14" text-anchor="end">{text(line.name)}</text>')
            right -= 6.2 * len(line.name) + 6
            # Long enough to show how the line is broken.
            long = 26 if line.shape else 14
            parts.append(f'<path class="line {line.colour}" d="M{right - long - 2:.1f} 10h{long}"/>')
            if line.shape:
                parts.append(_shape(line, right - long / 2 - 2, 10))
            right -= long + 16
        return "".join(parts)

    def _grid(self) -> str:
        ground, across = _TOP + self._depth, self.width - _LEFT - _RIGHT
        rows = "".join(
            f'<path class="grid" d="M{_LEFT:g} {self._down(tick):.1f}h{across:g}"/>'
            f'<text x="{_LEFT - 8:g}" y="{self._down(tick) + 4:.1f}" text-anchor="end">{self.tick(tick)}</text>'
            for tick in self.y.ticks
        )
        steps = "".join(
            f'<path class="axis" d="M{self._across(tick):.1f} {ground:g}v4"/>'
            f'<text x="{self._across(tick):.1f}" y="{ground + 16:g}" text-anchor="middle">{tick_text(tick)}</text>'
            for tick in self._x.ticks
        )
        per_epoch = self.steps_per_epoch or 0.0
        epochs = "".join(
            f'<path class="epoch" d="M{self._across(epoch * per_epoch):.1f} {ground:g}v-5"/>'
            f'<text class="epoch" x="{self._across(epoch * per_epoch):.1f}" y="{ground + 32:g}" '
            f'text-anchor="middle">{tick_text(epoch)}</text>'
            for epoch in self._epochs()
        )
        names = f'<text x="{_LEFT - 8:g}" y="{ground + 16:g}" text-anchor="end">step</text>'
        if self.steps_per_epoch is not None:
            names += f'<text class="epoch" x="{_LEFT - 8:g}" y="{ground + 32:g}" text-anchor="end">epoch</text>'
        return f'{rows}<path class="axis" d="M{_LEFT:g} {ground:g}h{across:g}"/>{steps}{epochs}{names}'

    def _epochs(self) -> list[float]:
        """Round epoch numbers, few enough to be written beside each other."""
        if self.steps_per_epoch is None or not self.last_step:
            return []
        whole = self.last_step / self.steps_per_epoch
        step = max(1.0, round_step(whole / _EPOCH_LABELS)) if whole >= 1 else round_step(whole / 3)
        step = round(step) if step > 1 else step
        return [number * step for number in range(1, int(whole / step + 1e-6) + 1)]

    def _mark(self, mark: Mark) -> str:
        return (
            f'<path class="event" d="M{self._across(mark.step):.1f} {_TOP:g}v{self._depth:g}">'
            f"<title>{text(mark.told)}</title></path>"
        )

    def _curve(self, line: Line) -> str:
        places = [(self._across(step), self._down(value)) for step, value in line.points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4"/>' for x, y in places)
        points = f'<g class="dots {line.colour}">{dots}</g>' if len(places) <= _FEW and not line.shape else ""
        return f'<path class="line {line.colour}" d="M{path}"/>{points}'

    def _shapes(self, line: Line, shift: float) -> str:
        """Marks at even distances, each line's at places of its own."""
        count = min(_SHAPES, len(line.points))
        places = {min(int((place + shift) / count * len(line.points)), len(line.points) - 1) for place in range(count)}
        return "".join(_shape(line, self._across(line.points[at][0]), self._down(line.points[at][1])) for at in places)

    def _star(self) -> str:
        if self.star is None:
            return ""
        step, value, told = self.star
        x, y = self._across(step), self._down(value)
        near_end = x > self.width / 2
        anchor, shift = ("end", -9) if near_end else ("start", 9)
        return (
            f'<circle class="star" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
            # Told at the ground, where no curve is when the best is above, at the foot of a line that leads there.
            f'<path class="foot" d="M{x:.1f} {y + 6:.1f}V{_TOP + self._depth:.1f}"/>'
            f'<text class="told" x="{x + shift:.1f}" y="{_TOP + self._depth - 8:.1f}" text-anchor="{anchor}">'
            f"{text(told)}</text>"
        )

    def _strips(self, lines: list[Line]) -> str:
        """Invisible columns, each with the numbers of its step."""
        steps = sorted({step for line in lines for step, _ in line.points})
        if len(steps) > _MOST_STRIPS:
            steps = [steps[round(place * (len(steps) - 1) / (_MOST_STRIPS - 1))] for place in range(_MOST_STRIPS)]
        places = [self._across(step) for step in steps]
        ends = [_LEFT, *((a + b) / 2 for a, b in pairwise(places)), self.width - _RIGHT]
        return "".join(
            f'<rect class="strip" x="{left:.1f}" y="{_TOP:g}" width="{max(right - left, 0):.1f}" '
            f'height="{self._depth:g}"><title>{self._told(step, lines)}</title></rect>'
            for step, (left, right) in zip(steps, pairwise(ends), strict=True)
        )

    def _told(self, step: float, lines: list[Line]) -> str:
        epoch = "" if self.steps_per_epoch is None else f", epoch {step / self.steps_per_epoch:.2f}"
        told = [f"step {step:,.0f}{epoch}"]
        for line in lines:
            before = bisect_right([where for where, _ in line.points], step)
            if before:
                told.append(f"{text(line.name)} {self.show(line.points[before - 1][1])}")
        return "\n".join(told)


def _shape(line: Line, x: float, y: float) -> str:
    return f'<path class="shape {line.colour}" d="M{x:.1f} {y:.1f}{line.shape}"/>'


def thinned(points: Sequence[Point]) -> list[Point]:
    """Means of neighbours, where there are more points than a chart has pixels for."""
    group = -(-len(points) // _MOST_POINTS)
    if group <= 1:
        return list(points)
    parts = [points[start : start + group] for start in range(0, len(points), group)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]
