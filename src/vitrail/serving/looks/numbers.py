"""float32 as text: nine digits, which say which one it is."""

from typing import Any

import numpy as np

_DIGITS = 9


def as_numbers(values: np.ndarray) -> Any:
    """Nested lists of Python numbers; written as JSON and read back as float32 they are the same float32.

    Nine significant digits are enough for that, and half of what Python writes for the same number as a double.
    """
    exact = np.asarray(values, dtype=np.float32).astype(np.float64)
    with np.errstate(divide="ignore"):
        leading = np.floor(np.log10(np.abs(exact)))
    places = _DIGITS - 1 - np.where(np.isfinite(leading), leading, 0)
    # Powers of ten are exact as doubles, so one division of whole numbers gives the double next to the decimal.
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    return (np.rint(exact * up / down) * down / up).tolist()
