"""A queue that is bounded by time: there is room as long as what waits is done soon enough."""

from collections.abc import Iterator
from contextlib import contextmanager

from vitrail.serving.engine.job import Refused

# Of the newest measurement in the average: about the last ten batches count.
_NEWEST = 0.2


class Room:
    """How much waits in one lane, and how long that takes."""

    def __init__(self, most_seconds: float, seconds_each: float) -> None:
        self._most = most_seconds
        self._each = seconds_each
        self._ended = 0.0
        self.count = 0
        """Jobs that wait or are in work."""

    @property
    def seconds_each(self) -> float:
        """What a job takes, on average, when others wait behind it."""
        return self._each

    def expect(self, seconds_each: float) -> None:
        """Begin anew with another model, of which so much is known."""
        self._each = seconds_each

    def measure(self, count: int, since: float, ended: float) -> None:
        """So many were done together; the first of them was asked for at `since`.

        What counts is the time from one end to the next while there was work, decoding and all: that is the pace at
        which the queue shrinks.
        """
        sample = max(0.0, ended - max(since, self._ended)) / count
        self._each += _NEWEST * (sample - self._each)
        self._ended = ended

    def ensure(self) -> None:
        """Refuse one more when those before it take too long; an empty queue takes any."""
        waits = self.count * self._each
        if waits > self._most:
            raise Refused("busy", max(self._each, waits - self._most))

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A place for one job, for as long as somebody waits for it."""
        self.ensure()
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
