"""The Polyak average of the weights (4.1: 0.9999 for the best ImageNet numbers)."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor


class Average:
    """`average = d * average + (1 - d) * weights`, with `d = min(decay, (1 + step) / (10 + step))`.

    The early steps count less, as in TensorFlow's moving average, so that the first weights are soon forgotten.
    Statistics of BatchNorm are copied: they are averages already.
    """

    def __init__(self, state: Mapping[str, Tensor], weights: Collection[str], decay: float) -> None:
        """Of the state of a network; `weights` says what in it is averaged, and the rest is copied."""
        self._decay = decay
        self._weights = [state[name].detach() for name in weights]
        self.state = {name: value.detach().clone() for name, value in state.items()}
        self._averaged = [self.state[name] for name in weights]
        # Held from the start: an update that ran out of memory half-way could not be done again.
        self._distance = [torch.empty_like(weight) for weight in self._weights]
        self._copied = [(self.state[name], value) for name, value in state.items() if name not in weights]

    def share(self, step: int) -> float:
        """`1 - d`, the share of the new weights in the average after update number `step`, counted from 0."""
        return 1 - min(self._decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, share: Tensor) -> None:
        """Move the average towards the weights; `share` is on the device, so that nothing waits for it."""
        torch._foreach_copy_(self._distance, self._weights)  # type: ignore[reportPrivateImportUsage]
        torch._foreach_sub_(self._distance, self._averaged)  # type: ignore[reportPrivateImportUsage]
        torch._foreach_mul_(self._distance, share)  # type: ignore[reportPrivateImportUsage]
        torch._foreach_add_(self._averaged, self._distance)  # type: ignore[reportPrivateImportUsage]
        for copy, value in self._copied:
            copy.copy_(value)
