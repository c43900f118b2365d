"""A copy of the network in every process (DDP): gradients are summed while the backward pass is still running."""

import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitrail.runtime.processes import total_
from vitrail.train.spread import Whole


class Copies(Whole):
    """The same weights in each process, moved by the same gradient."""

    can_be_captured = False

    def piece(self, is_last: bool) -> AbstractContextManager:
        return nullcontext() if is_last else self._copies.no_sync()

    def total_(self, values: Tensor) -> None:
        total_(values, self.processes)

    def share_statistics(self) -> None:
        share_statistics(self)

    def _wrapped(self, compiled: bool) -> nn.Module:
        device = next(self.model.parameters()).device
        with warnings.catch_warnings():
            # Newer versions of torch have another name for an argument, older ones have only this.
            warnings.simplefilter("ignore", FutureWarning)
            self._copies = DistributedDataParallel(
                self.model,
                device_ids=[device.index] if device.type == "cuda" else None,
                # Statistics of BatchNorm are shared once per update, and those of every process count.
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
            )
        return torch.compile(self._copies) if compiled else self._copies  # type: ignore[return-value]


def share_statistics(spread: Whole) -> None:
    """Running means and variances become the mean of those of all processes."""
    norms = [module for module in spread.model.modules() if isinstance(module, nn.BatchNorm2d)]
    values = [value for norm in norms for value in (norm.running_mean, norm.running_var) if value is not None]
    if not values:
        return
    flat = torch.cat([value.flatten() for value in values])
    spread.total_(flat)
    flat /= spread.processes.ranks
    for value, mean in zip(values, flat.split([value.numel() for value in values]), strict=True):
        value.copy_(mean.view_as(value))
