"""What a person sees while a run trains: a view that moves on a terminal, plain lines elsewhere."""

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live

from vitrail.cli.live_state import Seen, clock, percent, sentence
from vitrail.cli.live_view import View, numbers
from vitrail.cli.terminal import console
from vitrail.training.events import Evaluated, Event, Record, Stepped, Trained
from vitrail.training.log import Watcher

_SECONDS_BETWEEN_PICTURES = 0.25
_SECONDS_BETWEEN_LINES = 1.0
_SECONDS_BETWEEN_EPOCHS = 5.0
_LONGEST_SILENCE = 15.0


@contextmanager
def watching(
    title: str,
    steps: int,
    epochs: float,
    *,
    start: int = 0,
    seconds: float = 0.0,
    held_out: int = 0,
    test: int = 0,
    history: Iterable[Record] = (),
    word: str = "accuracy",
) -> Iterator[Watcher]:
    """Show a run of `steps` updates, which are `epochs` passes, with so many held-out and test images.

    One that goes on starts at step `start`, after `seconds`, and `history` is its log so far.
    `word` says what the share beside the loss is called.
    """
    out = console()
    seen = Seen(title, steps, epochs, start=start, seconds=seconds, held_out=held_out, test=test, word=word)
    seen.remember(history)
    if sys.stdout.isatty() and out.is_interactive:
        with _on_screen(seen, out):
            yield seen.hear
    else:
        lines = Lines(seen)
        try:
            yield lines.hear
        finally:
            lines.finish()


def print_events(event: Event) -> None:
    """A watcher that prints the unexpected alone, a sentence each."""
    if told := sentence(event):
        _print_line(told)


class Lines:
    """A line for an evaluation, for an epoch unless they are quick, and one after a long silence."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._last = time.monotonic()
        self._epoch = 0
        self._is_due = False
        self._evaluated: Evaluated | None = None
        _print_line(seen.title)

    def hear(self, event: Event) -> None:
        """Take in an event, and print what is due."""
        self._seen.hear(event)
        match event:
            case Evaluated():
                self._evaluated, self._is_due = event, True
            case Trained() if int(event.epoch) > self._epoch:
                self._epoch, self._is_due = int(event.epoch), True
        if self._seen.news:
            self._print_news()
        waited = time.monotonic() - self._last
        # The event that ends an epoch waits for the evaluation that may follow: one line tells both.
        is_due = self._is_due and isinstance(event, Stepped | Evaluated)
        pause = _SECONDS_BETWEEN_LINES if self._evaluated else _SECONDS_BETWEEN_EPOCHS
        if waited >= _LONGEST_SILENCE or (is_due and waited >= pause):
            self._print()

    def finish(self) -> None:
        """Print what had to wait, and how it ended."""
        self._seen.finish()
        self._print_news()
        if self._is_due:
            self._print()
        if self._seen.outcome:
            _print_line(self._seen.outcome)

    def _print_news(self) -> None:
        while self._seen.news:
            _print_line(self._seen.news.popleft())

    def _print(self) -> None:
        seen, evaluated = self._seen, self._evaluated
        fields = [f"epoch {seen.epoch()}", f"step {seen.step:,}/{seen.steps:,}"]
        if seen.phase in ("evaluating", "testing"):
            fields.append(seen.measuring())
        elif seen.latest is not None:
            measured = [text.plain for text in numbers(seen.latest, seen.word)]
            held_out = []
            if evaluated is not None:
                best = " (best)" if evaluated.is_best else ""
                held_out = [f"held-out {percent(evaluated.accuracy)}{best}"]
            fields += [*measured[:2], *held_out, *measured[3:]]
        if seen.piece:
            fields.append(seen.piece)
        if seen.phase in ("preparing", "training") and (left := seen.seconds_left()) is not None:
            fields.append(f"{clock(left)} left")
        _print_line("  ".join(fields))
        self._last, self._is_due, self._evaluated = time.monotonic(), False, None


@contextmanager
def _on_screen(seen: Seen, out: Console) -> Iterator[None]:
    """Draw in a thread of its own, so that training waits neither for a slow terminal nor for Ctrl-S."""
    # What goes to standard error is shown above the view, unless the user sends it elsewhere.
    live = Live(View(seen), console=out, auto_refresh=False, redirect_stderr=sys.stderr.isatty())
    _let_workers_warn()

    def draw() -> None:
        while seen.news:
            out.print(seen.news.popleft(), style="yellow", markup=False)
        live.refresh()

    painter = _Painter(draw)
    live.start()
    painter.start()
    try:
        yield
    finally:
        seen.finish()
        painter.stop()
        with suppress(OSError):
            draw()
        with suppress(OSError):
            live.stop()


class _Painter(threading.Thread):
    """Draws a few times in a second; a terminal that has gone does not end the run."""

    def __init__(self, draw: Callable[[], None]) -> None:
        super().__init__(name="live view", daemon=True)
        self._draw, self._is_over = draw, threading.Event()

    def run(self) -> None:
        with suppress(OSError):
            while not self._is_over.wait(_SECONDS_BETWEEN_PICTURES):
                self._draw()

    def stop(self) -> None:
        """Wait for the last picture."""
        self._is_over.set()
        self.join()


@functools.cache
def _let_workers_warn() -> None:
    """A forked worker has a copy of the view and of its locks: what it says must not go through them."""

    def restore() -> None:
        if isinstance(sys.stderr, FileProxy):
            sys.stderr = sys.stderr.rich_proxied_file

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=restore)


def _print_line(line: str) -> None:
    """To standard output at once; a reader that has gone does not end the run."""
    encoding = sys.stdout.encoding or "utf-8"
    with suppress(OSError):
        print(line.encode(encoding, "replace").decode(encoding), flush=True)
