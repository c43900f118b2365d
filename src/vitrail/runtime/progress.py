"""How far a long piece of work has come: a bar in a terminal or a notebook, plain lines elsewhere, nothing unasked."""

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.progress import Progress

_SECONDS_BETWEEN_LINES = 10.0
_SHARE_BETWEEN_LINES = 0.1
# A notebook is sent a picture so many times a second at most.
_SECONDS_BETWEEN_BARS = 0.2

Way = Literal["nowhere", "terminal", "notebook"]
_WAY: ContextVar[Way] = ContextVar("progress", default="nowhere")


@contextmanager
def showing(progress: bool | None) -> Iterator[None]:
    """Show how far work has come while it is done here: if asked, or where nothing is said, in a notebook."""
    before = _WAY.get()
    if progress is None:
        # Whoever has asked for it further out is heard.
        way: Way = before if before != "nowhere" else "notebook" if is_notebook() else "nowhere"
    else:
        way = "nowhere" if not progress else "notebook" if is_notebook() else "terminal"
    token = _WAY.set(way)
    try:
        yield
    finally:
        _WAY.reset(token)


def is_notebook() -> bool:
    """Whether cells of a notebook are what shows results."""
    shell = sys.modules.get("IPython")
    found: Any = None if shell is None else shell.get_ipython()
    return found is not None and hasattr(found, "kernel")


class Advance:
    """Is told how many more are done; what was last found can be told beside it."""

    note = ""

    def __init__(self, tell: Callable[[int], None] = lambda _done: None) -> None:
        self._tell = tell

    def __call__(self, done: int) -> None:
        self._tell(done)


@contextmanager
def progress(what: str, total: int, unit: str = "images") -> Iterator[Advance]:
    """Give a function that is told how many more are done; nothing is shown for work that has nothing to do."""
    way = _WAY.get()
    if not total or way == "nowhere":
        yield Advance()
    elif way == "notebook":
        with _NotebookBar(what, total, unit) as bar:
            yield bar
    elif sys.stderr.isatty():
        with _bar(unit) as shown:
            task = shown.add_task(what, total=total)
            yield Advance(lambda done: shown.advance(task, done))
    else:
        yield _Lines(what, total, unit)


def _bar(unit: str) -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """How many in a second."""

        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f} {unit}/s", style="progress.data.speed")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


class _NotebookBar(Advance):
    """A bar below a cell, with a line of what was last found beside it; it is gone when the work is done."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        self._html, self._what, self._total, self._unit = HTML, what, total, unit
        self._done, self._begin, self._last = 0, time.monotonic(), 0.0
        self._handle = display(HTML(self._text()), display_id=True)

    def __enter__(self) -> "_NotebookBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.update(self._html(""))

    def __call__(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_BARS:
            self._last = now
            self._handle.update(self._html(self._text()))

    def _text(self) -> str:
        seconds = time.monotonic() - self._begin
        rate = self._done / seconds if self._done and seconds else 0.0
        left = f", {rate:,.0f}/s, {duration((self._total - self._done) / rate)} left" if rate else ""
        words = f"{self._what}: {self._done:,} of {self._total:,} {self._unit}{left}{self.note and f'; {self.note}'}"
        return f'<progress value="{self._done}" max="{self._total}"></progress> {html.escape(words)}'


class _Lines(Advance):
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
            f"({self._done / self._total:.0%}), {rate:,.0f}/s, {duration(left)} left{self.note and f'; {self.note}'}"
        )


def duration(seconds: float) -> str:
    """Hours, minutes and seconds for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
