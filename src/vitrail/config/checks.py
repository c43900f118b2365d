"""What a number in a config may be."""

import math

from vitrail.errors import UsageError

# Bounds on what a file may ask for, so that a hostile one is refused at once and not after minutes of building.
MAX_DEPTH = 1000
MAX_WIDTH = 2**20
MAX_PIXELS = 2**16
MAX_CHANNELS = 2**12
MAX_TOKENS = 2**20


def positive(name: str, value: int, at_most: int = MAX_WIDTH) -> None:
    """Refuse a count below one or beyond reason."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= at_most:
        raise UsageError(f"{name} is {value!r}", wanted=f"a whole number from 1 to {at_most:,}")


def count(name: str, value: int, at_most: int = MAX_WIDTH) -> None:
    """Refuse what is not a whole number from zero up."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= at_most:
        raise UsageError(f"{name} is {value!r}", wanted=f"a whole number from 0 to {at_most:,}")


def small_number(name: str, value: float) -> None:
    """Refuse an epsilon or a standard deviation that is negative, not finite or not a number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise UsageError(f"{name} is {value!r}", wanted="a number from 0 up")


def chance(name: str, value: float) -> None:
    """Refuse what is no probability, or is certain."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise UsageError(f"{name} is {value!r}", wanted="a chance in [0, 1)")


def pair(value: int | tuple[int, int] | list[int], name: str) -> tuple[int, int]:
    """Read a size given as one number or as (height, width)."""
    sides = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(sides) != 2:
        raise UsageError(f"{name} is {value!r}", wanted="one number or (height, width)")
    for side in sides:
        positive(name, side, at_most=MAX_PIXELS)
    return sides[0], sides[1]


def times(size: tuple[int, int]) -> str:
    """Write a size for people: 224x224."""
    return f"{size[0]}x{size[1]}"
