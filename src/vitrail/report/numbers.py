"""Shares and times for people."""

import math


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage; what is not all is never rounded up to it."""
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


def interval(right: int, images: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927): where the true one lies, were these images drawn at random.

    `(p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n)` with z = 1.96.
    """
    share, z = right / images, 1.959964
    middle = share + z * z / (2 * images)
    half = z * math.sqrt(share * (1 - share) / images + z * z / (4 * images * images))
    whole = 1 + z * z / images
    # The ends are exact, which rounding would miss by a hair.
    return (middle - half) / whole if right else 0.0, (middle + half) / whole if right < images else 1.0
