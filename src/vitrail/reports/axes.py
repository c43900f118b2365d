"""From numbers to places along an axis, and the round numbers that are written beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LOG_FROM = 50.0


@dataclass(frozen=True)
class Axis:
    """A stretch of numbers; `place` maps it to 0 .. 1."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Where a number lies; what lies outside is put at the nearer end."""
        value = min(max(value, self.low), self.high)
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_axis(values: Sequence[float], *, wanted: int = 5, low: float | None = None) -> Axis:
    """An axis that holds all values and ends at round numbers."""
    least, most = min(values, default=0.0), max(values, default=1.0)
    least = least if low is None else min(low, least)
    if most - least <= abs(most) * 1e-9:
        most = least + (abs(least) or 1.0) * 0.5
    step = round_step((most - least) / wanted)
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def loss_axis(values: Sequence[float]) -> Axis:
    """Linear, or logarithmic where the largest loss would press all others to the ground."""
    if not values or min(values) <= 0 or max(values) / min(values) < _LOG_FROM:
        return linear_axis(values, low=0.0)
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Axis(10.0**first, 10.0**last, tuple(10.0**power for power in range(first, last + 1)), is_log=True)


def share_axis(values: Sequence[float], *, low: float | None = None) -> Axis:
    """For shares: as `linear_axis`, and never beyond 0 and 1."""
    inside = [min(max(value, 0.0), 1.0) for value in values]
    if inside and min(inside) == max(inside):
        # One value alone needs some room below it, because there is none above all.
        inside.append(max(inside[0] - 0.1, 0.0))
    found = linear_axis(inside, low=low)
    ticks = tuple(tick for tick in found.ticks if tick <= 1 + 1e-9)
    return found if len(ticks) < 2 else Axis(ticks[0], ticks[-1], ticks)


def step_axis(last: int) -> Axis:
    """From 0 to the last step, which need not be a round number."""
    whole = linear_axis([0.0, float(max(last, 1))])
    return Axis(0.0, float(max(last, 1)), tuple(tick for tick in whole.ticks if tick <= last and tick == round(tick)))


def round_step(size: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `size`."""
    power = 10.0 ** math.floor(math.log10(size))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= size * (1 - 1e-9))


def tick_text(value: float) -> str:
    """A round number, short."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"
