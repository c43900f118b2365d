"""What random numbers are drawn for: one number each, so that no two draws are the same."""

from enum import IntEnum


class Purpose(IntEnum):
    """The second argument of the functions in `counter.py` beside this file."""

    CROP = 1
    ORDER = 2
    RANDAUGMENT = 3
    ERASING = 4
    MIXING = 5
    FLIP = 6
    PART = 7
    CLASS_OFFSET = 8
    DROPOUT = 9
    WEIGHTS = 10
    HIDING = 11
