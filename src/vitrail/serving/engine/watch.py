"""Who works on what since when: how a worker notices that it is stuck."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Watch:
    """Pieces of work that are being done, each by a thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[int, float] = {}

    @contextmanager
    def working(self) -> Iterator[None]:
        """From here to the end of the block this thread does one piece."""
        thread = threading.get_ident()
        self._since[thread] = self._clock()
        try:
            yield
        finally:
            del self._since[thread]

    def longest(self) -> float:
        """Seconds for which the oldest piece has been worked on; 0 where there is none."""
        started = list(self._since.values())
        return self._clock() - min(started) if started else 0.0
