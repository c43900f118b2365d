"""Shares, losses and times for people."""

import math


def is_number(value: object) -> bool:
    """Whether it can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def loss_words(loss: float, digits: int) -> str:
    """A loss with so many digits behind the point, or that it is none."""
    return f"{loss:.{digits}f}" if math.isfinite(loss) else "not finite"


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage; what is not all is never rounded up to it, and what is no number is told so."""
    if math.isnan(share):
        return "no number"
    shown = f"{100 * share:.{digits}f}"
    if float(shown) == 100 and share < 1:
        shown = f"{100 - 10**-digits:.{digits}f}"
    return f"{shown} %"


def duration(seconds: float) -> str:
    """A time span in the two units that matter."""
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s" if whole < 600 else f"{round(whole / 60)} min"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"
