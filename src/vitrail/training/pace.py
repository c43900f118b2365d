"""How fast a run is: images per second, the share of time spent waiting for data, memory, time so far."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Compiling and the first touches of memory are over by then.
_STEPS_TO_SETTLE = 10
_SHARE_TO_SETTLE = 0.02
# When a run with a time limit is planned anew, because the machine is faster or slower than it was.
_PLANNED_AT = (0.05, 0.2, 0.4, 0.6, 0.8)
# Left for evaluations and saves.
_RESERVE = 0.03


class Pace:
    """A stopwatch for training alone: evaluations and saves are left out of the speed, not of the time."""

    def __init__(self, seconds_before: float) -> None:
        self._begin = time.monotonic() - seconds_before
        self._saved = time.monotonic()
        self._steps = 0
        self._mark: tuple[int, float] | None = None
        self._plans = 0
        self._start_interval()

    def seconds(self) -> float:
        """Time spent on the run."""
        return time.monotonic() - self._begin

    def count(self, images: int) -> None:
        """One more update."""
        self._interval_images += images
        self._steps += 1

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Time in here is data wait."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._interval_wait += time.monotonic() - begin

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here is not training."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._interval_begin += time.monotonic() - begin

    def measured(self, device: torch.device) -> dict[str, Any]:
        """The numbers since the last call."""
        span = max(time.monotonic() - self._interval_begin, 1e-9)
        record = {
            "images_per_second": round(self._interval_images / span, 2),
            "data_wait": round(min(self._interval_wait / span, 1.0), 4),
            "seconds": round(self.seconds(), 3),
        }
        if device.type == "cuda":
            record["memory_bytes"] = torch.cuda.max_memory_allocated(device)
        self._start_interval()
        return record

    def steps_within(self, limit: float, step: int) -> int | None:
        """How many updates fit into a limit in seconds, at the speed since it was last asked; now and then, else none.

        To be asked when the device has nothing left to do, else work that was only handed to it would count as done.
        """
        if self._mark is None:
            if self._steps >= _STEPS_TO_SETTLE or (self._steps and self.seconds() > _SHARE_TO_SETTLE * limit):
                self._mark = self._steps, time.monotonic()
            return None
        steps, since = self._mark
        plans = sum(self.seconds() >= share * limit for share in _PLANNED_AT)
        if plans == self._plans or self._steps == steps:
            return None
        each = (time.monotonic() - since) / (self._steps - steps)
        self._mark, self._plans = (self._steps, time.monotonic()), plans
        return step + max(int(((1 - _RESERVE) * limit - self.seconds()) / each), 1)

    def minutes_since_save(self) -> float:
        """Time that a kill would lose."""
        return (time.monotonic() - self._saved) / 60

    def saved(self) -> None:
        """A checkpoint is on disk."""
        self._saved = time.monotonic()

    def _start_interval(self) -> None:
        self._interval_begin = time.monotonic()
        self._interval_images, self._interval_wait = 0, 0.0
