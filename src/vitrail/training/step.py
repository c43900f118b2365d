"""One update of the weights: forward and backward for each micro-batch, then clip, optimise and average.

Nothing here waits for the device. A step whose loss or gradient is not finite is skipped by the device itself, and
what happened is read later, a few steps at a time.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vitrail.config import OptimConfig, TrainConfig
from vitrail.training.average import Average
from vitrail.training.objective import Objective, hits
from vitrail.training.spread import Whole


@dataclass(frozen=True)
class Happened:
    """What one update saw."""

    loss: float
    accuracy: float
    """Share of first guesses that were right, before the update."""
    gradient_norm: float
    """Of the whole gradient, before it was clipped."""
    was_finite: bool
    """Whether the update was made."""


class TrainingStep:
    """The arithmetic of a run: call `accumulate` for every micro-batch, then `update`."""

    def __init__(
        self,
        spread: Whole,
        optimizer: torch.optim.Optimizer,
        objective: Objective,
        train: TrainConfig,
        optim: OptimConfig,
        average: Average | None,
        count_hits: Objective = hits,
    ) -> None:
        self.device = next(spread.model.parameters()).device
        self.average = average
        self._spread, self._optimizer, self._objective, self._count_hits = spread, optimizer, objective, count_hits
        # Over several processes torch takes the mean of gradients, and the gradient of a batch is their sum.
        self._times = spread.processes.ranks
        self._batch_size, self._clip = train.batch_size, optim.clip
        self._autocast = train.precision == "bfloat16"
        self._trained: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
        # Statistics of BatchNorm, with a copy of what they were after the last update.
        self._buffers = [(value, value.clone()) for value in spread.model.buffers()]
        # Values that change from step to step live on the device, so that a captured graph can read them.
        self.learning_rate, self.average_share = self._number(), self._number()
        self._loss, self._hits = self._number(), self._number()
        self._history = torch.zeros(train.log_every, 4, device=self.device)
        self._row = torch.zeros(1, dtype=torch.int64, device=self.device)
        for group in optimizer.param_groups:
            group["lr"] = self._number()
        self.keeps_gradients = False
        """Whether gradients stay where they are in memory, as a captured graph needs them to."""

    def accumulate(self, images: Tensor, targets: Tensor, *, is_last: bool = True) -> None:
        """Forward and backward: adds the gradient of `sum(losses) / batch_size`; all processes join after the last."""
        with self._spread.piece(is_last):
            with self._precision():
                logits = self._spread.forward(images)
            logits = logits.float()
            loss = self._objective(logits, targets).sum() / self._batch_size
            (loss if self._times == 1 else loss * self._times).backward()
        with torch.no_grad():
            self._loss += loss.detach()
            self._hits += self._count_hits(logits, targets).sum() / self._batch_size

    @torch.no_grad()
    def update(self) -> None:
        """`g = g * min(1, clip / |g|)`, then the optimiser, then the average; nothing moves if |g| is not finite."""
        gradients = self._spread.gradients(self._trained)
        norm = self._spread.norm(gradients)
        seen = torch.stack([self._loss, self._hits])
        self._spread.total_(seen)
        finite = torch.isfinite(norm) & torch.isfinite(seen[0])
        self._spread.share_statistics()
        if self._clip is not None:
            torch._foreach_mul_(gradients, torch.where(norm < self._clip, 1.0, self._clip / norm))  # type: ignore[reportPrivateImportUsage]
        for group in self._optimizer.param_groups:
            torch.mul(self.learning_rate, group["scale"], out=group["lr"])
        # The fused optimisers of torch look here, as they do for its gradient scaler.
        self._optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        self._optimizer.step()
        for value, kept in self._buffers:
            value.copy_(torch.where(finite, value, kept))
            kept.copy_(value)
        if self.average is not None:
            self.average.update(self.average_share * finite)
        self._history.index_copy_(0, self._row, torch.cat([seen, torch.stack([norm, finite.float()])])[None])
        self._row.add_(1).remainder_(len(self._history))
        self._zero()

    @torch.no_grad()
    def clear(self) -> None:
        """Forget what was accumulated, as when a step has to be done again."""
        self._zero()
        for value, kept in self._buffers:
            value.copy_(kept)

    def _zero(self) -> None:
        self._loss.zero_()
        self._hits.zero_()
        self._spread.forget_gradients()
        for parameter in self._trained:
            if not self.keeps_gradients:
                parameter.grad = None
            elif parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.keeps_gradients:
            torch._foreach_zero_([p.grad for p in self._trained if p.grad is not None])  # type: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def forget(self) -> None:
        """Start over after weights were loaded: nothing is accumulated, and no history is kept."""
        self._zero()
        self._row.zero_()
        for value, kept in self._buffers:
            kept.copy_(value)

    def read(self, updates: int) -> list[Happened]:
        """What the last updates saw, oldest first; waits for the device."""
        rows = self._history[:updates].tolist()
        self._row.zero_()
        return [Happened(loss, accuracy, norm, finite > 0) for loss, accuracy, norm, finite in rows]

    def _precision(self) -> AbstractContextManager:
        return torch.autocast(self.device.type, torch.bfloat16) if self._autocast else nullcontext()

    def _number(self) -> Tensor:
        return torch.zeros((), device=self.device)


# Steps that run plainly first: compiling, and libraries that set themselves up, cannot be captured.
_WARM_STEPS = 3


class GraphedStep:
    """`accumulate` and `update` of a step on a GPU, each captured once and then replayed with one launch.

    The steps before the capture are real ones, and a replay computes what they did: random numbers come from the seed
    that is set before each of them.
    """

    def __init__(self, step: TrainingStep) -> None:
        self.plain = step
        self._images: Tensor | None = None
        self._targets: Tensor | None = None
        self._forward_backward = torch.cuda.CUDAGraph()
        self._update = torch.cuda.CUDAGraph()
        self._side = torch.cuda.Stream(step.device)
        self._updates = 0
        step.keeps_gradients = True
        step.clear()

    def accumulate(self, images: Tensor, targets: Tensor, *, is_last: bool = True) -> None:
        """Forward and backward of one micro-batch."""
        if self._updates < _WARM_STEPS:
            self._aside(lambda: self.plain.accumulate(images, targets))
            return
        if self._images is None or self._targets is None:
            self._images, self._targets = images.clone(), targets.clone()
            with self._capture(self._forward_backward):
                self.plain.accumulate(self._images, self._targets)
        self._images.copy_(images)
        self._targets.copy_(targets)
        self._forward_backward.replay()

    def update(self) -> None:
        """One update of the weights."""
        if self._updates < _WARM_STEPS:
            self._aside(self.plain.update)
        else:
            if self._updates == _WARM_STEPS:
                with self._capture(self._update):
                    self.plain.update()
            self._update.replay()
        self._updates += 1

    def clear(self) -> None:
        """Forget what was accumulated."""
        self.plain.clear()

    def _capture(self, graph: torch.cuda.CUDAGraph) -> torch.cuda.graph:
        """Record what this thread launches; the thread that gets the next batch ready may allocate meanwhile."""
        return torch.cuda.graph(graph, stream=self._side, capture_error_mode="thread_local")

    def _aside(self, work: Callable[[], None]) -> None:
        current = torch.cuda.current_stream(self.plain.device)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            work()
        current.wait_stream(self._side)


class _Called(nn.Module):
    """A method of a network as a forward pass, which is what torch can call with other weights."""

    def __init__(self, method: Callable[..., Any]) -> None:
        super().__init__()
        self.network: nn.Module = method.__self__  # type: ignore[attr-defined]
        self._method = method

    def forward(self, *arguments: Any) -> Any:
        return self._method(*arguments)


def called_with(method: Callable[..., Any], weights: dict[str, Tensor], *arguments: Any) -> Any:
    """What a method of a network answers when its weights are these."""
    return functional_call(_Called(method), {f"network.{name}": tensor for name, tensor in weights.items()}, arguments)
