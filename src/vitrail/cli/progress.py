"""How far a long piece of work has come: a bar on a terminal, plain lines elsewhere, always on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

_SECONDS_BETWEEN_LINES = 10.0
_SHARE_BETWEEN_LINES = 0.1


@contextmanager
def progress(what: str, total: int, unit: str = "images") -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many more are done; nothing is shown for work that has nothing to do."""
    if not total:
        yield lambda _done: None
    elif sys.stderr.isatty():
        with _bar(unit) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)
    else:
        yield _Lines(what, total, unit)


def _bar(unit: str) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(unit), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


class _Rate(ProgressColumn):
    """How many in a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} {self._unit}/s", style="progress.data.speed")


class _Lines:
    """A line for every tenth of the work, but not more often than people read, and at least every ten seconds."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = 0
        self._begin = self._last_time = time.monotonic()
        self._last_done = 0

    def __call__(self, done: int) -> None:
        self._done += done
        # Without anything done there is no rate, and nothing to tell.
        if not self._done:
            return
        now = time.monotonic()
        waited = now - self._last_time
        share = (self._done - self._last_done) / self._total
        if waited >= _SECONDS_BETWEEN_LINES or (waited >= 1 and share >= _SHARE_BETWEEN_LINES):
            self._last_time, self._last_done = now, self._done
            print(self._line(now), file=sys.stderr, flush=True)

    def _line(self, now: float) -> str:
        rate = self._done / (now - self._begin)
        left = (self._total - self._done) / rate
        return (
            f"{self._what}: {self._done:,} of {self._total:,} {self._unit} "
            f"({self._done / self._total:.0%}), {rate:,.0f}/s, {duration(left)} left"
        )


def duration(seconds: float) -> str:
    """Hours, minutes and seconds for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
