"""How many threads torch works in, where the default would be too many."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Weights of a network whose products are too small to be shared out.
_TINY = 300_000


@contextmanager
def one_thread(when: bool = True) -> Iterator[None]:
    """Small work in one thread: to hand it to several takes longer than to do it, minutes longer on a busy machine."""
    # Imported here, so that a command line that asks for this stays light.
    import torch

    before = torch.get_num_threads()
    if when:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_tiny(network: "torch.nn.Module", device: "torch.device") -> bool:
    """Whether one thread does the work of this network faster than several."""
    return device.type == "cpu" and sum(weight.numel() for weight in network.parameters()) < _TINY
