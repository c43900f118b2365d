"""The work of the worker: what waits to be decoded, what waits to be computed, and what comes next.

There are two lanes. Images are computed in batches, looks one at a time; where both wait they take turns, so neither
starves the other. Only so many are decoded ahead of the model, so that memory does not grow with the queue. Images that
are dear to decode are set aside: they wait for each other, bounded by the time that takes, and nobody waits for them.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from vitrail.prediction.predictor import Prepared
from vitrail.serving.looks.kinds import BATCHED, FIXED
from vitrail.serving.looks.prepare import Weight

# Decoded images that may wait for the model, in batches.
_BATCHES_AHEAD = 3
_LOOKS_AHEAD = 2
# Before anything is measured, and how much the newest measurement counts.
_SECONDS_A_PIXEL = 3e-8
_NEWEST = 0.3


@dataclass
class Task:
    """A job as the worker knows it; times are of the monotonic clock, which all processes of a machine share."""

    number: int
    kind: str
    options: dict[str, Any]
    body: bytes
    asked: float
    deadline: float
    is_cancelled: bool = False
    image: Prepared | None = None
    ready_at: float = 0.0
    decode_seconds: float = 0.0
    weight: Weight | None = None
    """Of an image that was set aside."""

    def is_dead(self, now: float) -> bool:
        """Whether nobody waits for it any more."""
        return self.is_cancelled or now >= self.deadline


@dataclass
class _Lane:
    most_ahead: int
    waiting: deque[Task] = field(default_factory=deque)
    ready: deque[Task] = field(default_factory=deque)
    decoding: int = 0

    def may_decode(self) -> bool:
        return bool(self.waiting) and self.decoding + len(self.ready) < self.most_ahead


class Board:
    """Where threads find their work; each method may be called from any of them."""

    def __init__(self, batch_size: int, batch_wait: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.batch_limit = batch_size
        """Images that are computed together; lowered for a model that is slow."""
        self._may_look = False
        self._wait, self._clock = batch_wait, clock
        self._changed = threading.Condition()
        self._images, self._looks = _Lane(_BATCHES_AHEAD * batch_size), _Lane(_LOOKS_AHEAD)
        self._tasks: dict[int, Task] = {}
        self._looked_last = False
        self._arrived: SimpleQueue[Task] = SimpleQueue()
        self._heavy: deque[Task] = deque()
        self._in_work: list[Task] = []
        self._seconds_a_pixel: dict[str, float] = {}

    def receive(self, task: Task) -> None:
        """Work has come; an image is weighed before it waits with others."""
        with self._changed:
            self._tasks[task.number] = task
        if task.kind in FIXED:
            self.add(task)
        else:
            self._arrived.put(task)

    def next_to_weigh(self) -> Task:
        """The next image that has come."""
        return self._arrived.get()

    def add(self, task: Task) -> None:
        """Let a task wait for its turn."""
        with self._changed:
            if task.is_cancelled:
                return
            self._tasks[task.number] = task
            lane = self._lane(task)
            (lane.ready if task.kind in FIXED else lane.waiting).append(task)
            self._changed.notify_all()

    def cancel(self, number: int) -> None:
        """Nobody waits for it any more; its bytes are let go at once."""
        with self._changed:
            if task := self._tasks.pop(number, None):
                task.is_cancelled, task.body = True, b""

    def open_looks(self) -> None:
        """The network that looks need is loaded; until then they wait and images do not."""
        with self._changed:
            self._may_look = True
            self._changed.notify_all()

    def next_to_decode(self) -> Task:
        """The image that was asked for first, of those that may be decoded now."""
        with self._changed:
            while True:
                lanes = [lane for lane in (self._images, self._looks) if lane.may_decode()]
                if not lanes:
                    self._changed.wait()
                    continue
                lane = min(lanes, key=lambda lane: lane.waiting[0].asked)
                task = lane.waiting.popleft()
                if task.is_dead(self._clock()):
                    self._tasks.pop(task.number, None)
                    continue
                lane.decoding += 1
                return task

    def decoded(self, task: Task, image: Prepared | None) -> None:
        """An image is ready for the model, or it is none and was answered."""
        with self._changed:
            lane = self._lane(task)
            if task.weight is None:
                lane.decoding -= 1
            else:
                self._in_work.remove(task)
            task.body = b""
            if image is not None:
                task.image, task.ready_at = image, self._clock()
                lane.ready.append(task)
            else:
                self._tasks.pop(task.number, None)
            self._changed.notify_all()

    def set_aside(self, task: Task, weight: Weight, most_seconds: float) -> float:
        """Let an image that is dear to decode wait for others of its kind; returns 0, or the seconds that are too many.

        Where none waits there is room for any.
        """
        with self._changed:
            waits = sum(map(self._seconds_of, (*self._heavy, *self._in_work)))
            if waits > most_seconds:
                self._tasks.pop(task.number, None)
                return waits
            task.weight = weight
            self._heavy.append(task)
            self._changed.notify_all()
            return 0.0

    def next_heavy(self, most_pixels: int) -> Task:
        """The next image that was set aside; all that are decoded together have no more pixels than one may have."""
        with self._changed:
            while True:
                while self._heavy and self._heavy[0].is_dead(self._clock()):
                    self._tasks.pop(self._heavy.popleft().number, None)
                busy = sum(_pixels(task) for task in self._in_work)
                if self._heavy and (not busy or busy + _pixels(self._heavy[0]) <= most_pixels):
                    self._in_work.append(self._heavy.popleft())
                    return self._in_work[-1]
                self._changed.wait()

    def measured(self, weight: Weight, seconds: float) -> None:
        """An image that was set aside took so long."""
        with self._changed:
            known = self._seconds_a_pixel.get(weight.format, _SECONDS_A_PIXEL)
            found = known + _NEWEST * (seconds / max(1, weight.pixels) - known)
            self._seconds_a_pixel[weight.format] = found

    def next_work(self) -> list[Task]:
        """One look, or a batch of images: full, or as many as came within the wait after the first."""
        with self._changed:
            while True:
                self._forget_dead()
                if self._may_look and self._looks.ready and not (self._looked_last and self._images.ready):
                    self._looked_last = True
                    return self._taken(self._looks, 1)
                if not self._images.ready:
                    self._changed.wait()
                    continue
                left = self._images.ready[0].ready_at + self._wait - self._clock()
                if len(self._images.ready) >= self.batch_limit or left <= 0:
                    self._looked_last = False
                    return self._taken(self._images, self.batch_limit)
                self._changed.wait(left)

    def _taken(self, lane: _Lane, count: int) -> list[Task]:
        taken = [lane.ready.popleft() for _ in range(min(count, len(lane.ready)))]
        for task in taken:
            self._tasks.pop(task.number, None)
        # A place ahead of the model is free.
        self._changed.notify_all()
        return taken

    def _forget_dead(self) -> None:
        now = self._clock()
        for lane in (self._images, self._looks):
            if any(task.is_dead(now) for task in lane.ready):
                for task in lane.ready:
                    if task.is_dead(now):
                        self._tasks.pop(task.number, None)
                lane.ready = deque(task for task in lane.ready if not task.is_dead(now))
                self._changed.notify_all()

    def _seconds_of(self, task: Task) -> float:
        assert task.weight is not None
        return task.weight.pixels * self._seconds_a_pixel.get(task.weight.format, _SECONDS_A_PIXEL)

    def _lane(self, task: Task) -> _Lane:
        return self._images if task.kind in BATCHED else self._looks


def _pixels(task: Task) -> int:
    return 0 if task.weight is None else task.weight.pixels
