"""How many threads torch works in, where the default would be too many."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Weights of a network whose products are too small to be shared out.
_TINY = 300_000


@contextmanager
def in_threads(count: int | None) -> Iterator[None]:
    """Work in so many threads; none leaves their number as it is."""
    # Imported here, so that a command line that asks for this stays light.
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread(when: bool = True) -> AbstractContextManager[None]:
    """Small work in one thread: to hand it to several takes longer than to do it, minutes longer on a busy machine."""
    return in_threads(1 if when else None)


def own_threads(network: "torch.nn.Module", device: "torch.device") -> int:
    """In how many threads a network is computed here, where nothing else is said."""
    import torch

    return 1 if is_tiny(network, device) else torch.get_num_threads()


def is_tiny(network: "torch.nn.Module", device: "torch.device") -> bool:
    """Whether one thread does the work of this network faster than several."""
    return device.type == "cpu" and sum(weight.numel() for weight in network.parameters()) < _TINY
