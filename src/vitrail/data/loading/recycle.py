"""Memory for batches that is used again once nobody holds the last batch in it.

A batch of 64 photos in float32 is 38 MB, which the C library fetches from the system anew every time: touching fresh
pages takes longer than decoding them took. Here the pages stay.
"""

import math
import weakref
from collections import deque

import numpy as np
import torch
from torch import Tensor

_KEPT = 4


class Recycled:
    """Hands out float32 tensors of one size in memory that is taken back when the last tensor in it is gone."""

    def __init__(self) -> None:
        self._free: deque[np.ndarray] = deque(maxlen=_KEPT)

    def empty(self, shape: torch.Size) -> Tensor:
        """An uninitialised tensor."""
        size = math.prod(shape)
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = np.empty(0, dtype=np.float32)
        if len(memory) != size:
            memory = np.empty(size, dtype=np.float32)
        # torch holds on to this object, and not to what lies behind it, for as long as a tensor or a view needs it.
        lent = memory[:]
        weakref.finalize(lent, self._free.append, memory).atexit = False
        return torch.from_numpy(lent).view(shape)
