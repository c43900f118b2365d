"""From a distance to a class: the last threshold that lies below it, as VTAB's own code has it."""

from collections.abc import Sequence

import numpy as np

from vitrail.errors import DataError


def class_of_distance(distance: float, thresholds: Sequence[float], where: str) -> int:
    """The class of a distance, in the float32 of the original; one on a threshold belongs to the nearer class."""
    value = np.float32(distance)
    if not thresholds[0] < value:
        raise DataError(f"the distance is {distance}", wanted=f"more than {thresholds[0]:g}", where=where)
    return int(np.searchsorted(np.array(thresholds, dtype=np.float32), value, side="left")) - 1
