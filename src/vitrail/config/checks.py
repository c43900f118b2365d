"""What a number in a config may be."""

from vitrail.errors import UsageError

# Bounds on what a file may ask for, so that a hostile one is refused at once and not after minutes of building.
MAX_DEPTH = 1000
MAX_WIDTH = 2**24
MAX_PIXELS = 2**16


def positive(name: str, value: int, at_most: int = MAX_WIDTH) -> None:
    """Refuse a count below one or beyond reason."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= at_most:
        raise UsageError(f"{name} is {value!r}", wanted=f"a whole number from 1 to {at_most:,}")


def pair(value: int | tuple[int, int] | list[int], name: str) -> tuple[int, int]:
    """Read a size given as one number or as (height, width)."""
    sides = (value, value) if isinstance(value, int) else tuple(value)
    if len(sides) != 2:
        raise UsageError(f"{name} is {value!r}", wanted="one number or (height, width)")
    for side in sides:
        positive(name, side, at_most=MAX_PIXELS)
    return sides[0], sides[1]


def times(size: tuple[int, int]) -> str:
    """Write a size for people: 224x224."""
    return f"{size[0]}x{size[1]}"
