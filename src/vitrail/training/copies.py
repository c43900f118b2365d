"""A copy of the network in every process (DDP): gradients are summed while the backward pass is still running."""

import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from vitrail.runtime.processes import total_
from vitrail.training.spread import Whole


class Copies(Whole):
    """The same weights in each process, moved by the same gradient."""

    can_be_captured = False
    is_alone = False

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
        self._settle_buckets()
        return torch.compile(self._copies) if compiled else self._copies  # type: ignore[return-value]

    def _settle_buckets(self) -> None:
        """Let DDP sort its buckets now, as it does after its first backward pass.

        Else the first step after a resume would add up in another order than the same step of the unbroken run.
        """
        weight, config = next(self.model.parameters()), self.model.config
        was_training = self.model.training
        self.model.eval()
        images = torch.zeros(1, config.channels, *config.image_size, device=weight.device)
        for _ in range(2):
            (self._copies(images).sum() * 0).backward()
        for parameter in self.model.parameters():
            parameter.grad = None
        self.model.train(was_training)


def share_statistics(spread: Whole) -> None:
    """Running means and variances become the mean of those of all processes."""
    # Those of a frozen one stay as they are, to the last bit.
    norms = [module for module in spread.model.modules() if isinstance(module, _BatchNorm) and module.training]
    values = [value for norm in norms for value in (norm.running_mean, norm.running_var) if value is not None]
    if not values:
        return
    flat = torch.cat([value.flatten() for value in values])
    spread.total_(flat)
    flat /= spread.processes.ranks
    for value, mean in zip(values, flat.split([value.numel() for value in values]), strict=True):
        value.copy_(mean.view_as(value))
