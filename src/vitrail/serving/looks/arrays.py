"""Answers that are arrays: float32 as it lies in memory, the shape in a header."""

import numpy as np

from vitrail.errors import UsageError
from vitrail.serving.looks.reply import MOST_BYTES, Reply

_BYTES = "application/octet-stream"


def array_reply(values: np.ndarray, generation: int) -> Reply:
    """Numbers as little-endian float32, their shape in a header."""
    shape = ",".join(map(str, values.shape))
    return Reply(
        200,
        _BYTES,
        {"X-Shape": shape, "X-Generation": str(generation)},
        np.ascontiguousarray(values, dtype="<f4").tobytes(),
    )


def ensure_sendable(shape: tuple[int, ...], fix: str) -> None:
    """Refuse an array that is too large to send, before it is computed."""
    count = int(np.prod(shape, dtype=np.int64)) * 4
    if count > MOST_BYTES:
        raise UsageError(
            f"the answer would have {count / 2**20:,.0f} MiB", wanted=f"at most {MOST_BYTES // 2**20}", fix=fix
        )
