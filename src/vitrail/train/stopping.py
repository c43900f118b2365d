"""SIGTERM and Ctrl-C: the run ends at the next safe moment, with everything saved; a second Ctrl-C ends it at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from vitrail.errors import VitrailError


class Stopped(VitrailError):
    """A run that was asked to stop, and can go on."""

    exit_code = 75


class Interrupted(BaseException):
    """Raised where nothing is lost: while waiting for data, or in an evaluation."""


class Stopping:
    """Whether someone asked the run to stop."""

    def __init__(self) -> None:
        self.is_asked = False
        self._may_interrupt = False
        self._process = os.getpid()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over SIGTERM and SIGINT, and give them back afterwards; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._heard) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                with suppress(TypeError):
                    signal.signal(number, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Here a signal need not wait: no weight is being changed."""
        # Before the question, so that a signal between the two is not left waiting.
        self._may_interrupt = True
        try:
            if self.is_asked:
                raise Interrupted
            yield
        finally:
            self._may_interrupt = False

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A worker that has only just been forked: Ctrl-C is answered by its parent.
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        if self.is_asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.is_asked = True
        if self._may_interrupt:
            self._may_interrupt = False
            raise Interrupted
