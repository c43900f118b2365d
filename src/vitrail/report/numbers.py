"""Shares and times for people."""


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
