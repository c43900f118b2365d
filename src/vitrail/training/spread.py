"""How a network is spread over the processes of a run: whole in one, or a copy or a part of it in each.

The run is the same whichever it is. Every process adds up the gradient of its share of a batch, the sum over all
processes is what the optimiser sees, and a checkpoint holds whole tensors.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vitrail.models import Classifier
from vitrail.runtime.processes import ALONE, Processes

Network = Callable[[Tensor], Tensor]


class Whole:
    """All of the network in one process; what several processes do otherwise is in `Copies` and `Parts`."""

    has_all = True
    """Whether every process has the whole network, and can compute and save it without the others."""
    is_alone = True
    """Whether no other process waits in the middle of a step, so that one that failed can be done again."""
    can_be_captured = True
    """Whether a step can become a CUDA graph."""

    def __init__(self, model: Classifier, processes: Processes = ALONE, *, compiled: bool = False) -> None:
        self.model, self.processes = model, processes
        self.forward: nn.Module = self._wrapped(compiled)
        self.weights: dict[str, Tensor] = self._held_weights()
        """The parameters as the optimiser moves them: what this process has of each."""

    def held(self) -> dict[str, Tensor]:
        """Everything in the network's state as this process has it: weights, and statistics of BatchNorm."""
        return dict(self.model.state_dict()) | self.weights

    def piece(self, is_last: bool) -> AbstractContextManager:
        """Around forward and backward of one micro-batch: only the last of a batch need talk to other processes."""
        return nullcontext()

    def gradients(self, trained: Sequence[Tensor]) -> list[Tensor]:
        """What this process has of the gradient of a batch, brought to the weights that the optimiser moves."""
        return [weight.grad for weight in trained if weight.grad is not None]

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """The norm of the whole gradient."""
        return torch.nn.utils.get_total_norm(gradients)

    def forget_gradients(self) -> None:
        """Let go of gradients that the optimiser does not know by itself."""

    def total_(self, values: Tensor) -> None:
        """Sum over all processes, in place."""

    def share_statistics(self) -> None:
        """The statistics of BatchNorm over the images of all processes."""

    def whole(self, name: str, part: Tensor) -> Tensor:
        """All of a tensor that belongs to the weight of this name; every process has to ask at the same time."""
        return part

    def part(self, name: str, whole: Tensor) -> Tensor:
        """What this process keeps of a whole tensor."""
        return whole

    def shape(self, name: str, part: Tensor) -> torch.Size:
        """Of the whole tensor."""
        return part.shape

    @contextmanager
    def with_weights(self, weights: dict[str, Tensor]) -> Iterator[Network]:
        """The network with other weights in place of its own, as this process has them."""
        yield lambda images: functional_call(self.model, weights, (images,))

    def _wrapped(self, compiled: bool) -> nn.Module:
        return torch.compile(self.model) if compiled else self.model  # type: ignore[return-value]

    def _held_weights(self) -> dict[str, Tensor]:
        return dict(self.model.named_parameters())
