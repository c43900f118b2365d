"""A network that is sent fewer images at a time once memory has run out."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from vitrail.runtime.out_of_memory import is_out_of_memory, release_memory


class Shrinking:
    """Sends a batch through a network, in parts where it does not fit at once; what did not fit is not tried again."""

    def __init__(
        self, network: Callable[[Tensor], Tensor], device: torch.device, bfloat16: bool, *, may_shrink: bool = True
    ) -> None:
        """A network that lies in several processes may not: they call it equally often, or wait for each other."""
        self._network, self._at_a_time, self._may_shrink = network, 2**40, may_shrink
        self._precision = lambda: torch.autocast(device.type, torch.bfloat16) if bfloat16 else nullcontext()

    def __call__(self, images: Tensor) -> Tensor:
        while True:
            try:
                with self._precision():
                    return torch.cat([self._network(part) for part in images.split(min(self._at_a_time, len(images)))])
            except Exception as error:
                is_smallest = not self._may_shrink or min(self._at_a_time, len(images)) == 1
                if not is_out_of_memory(error) or is_smallest:
                    raise
            self._at_a_time = min(self._at_a_time, len(images)) // 2
            release_memory()
