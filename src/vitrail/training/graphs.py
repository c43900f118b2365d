"""A whole step as CUDA graphs: small networks are bound by the launches of their kernels, not by arithmetic."""

from collections.abc import Callable

import torch
from torch import Tensor

from vitrail.training.step import TrainingStep

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
