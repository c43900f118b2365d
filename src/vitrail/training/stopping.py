"""SIGTERM and Ctrl-C: the run ends at the next safe moment, with everything saved; a second Ctrl-C ends it at once."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from vitrail.errors import Stopped as Stopped
from vitrail.runtime.processes import Processes
from vitrail.runtime.watch import ECHO_SECONDS


class Interrupted(BaseException):
    """Raised where nothing is lost: while waiting for data, or in an evaluation."""


class Stopping:
    """Whether someone asked the run to stop.

    One of several processes never stops by itself in the middle of something: the others would wait for it.
    """

    def __init__(self, *, is_alone: bool = True) -> None:
        self.is_asked = False
        self._is_alone = is_alone
        self._asked_at = 0.0
        self._may_interrupt = False
        self._process = os.getpid()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over SIGTERM and SIGINT, and give them back afterwards; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._heard) for number in (signal.SIGTERM, signal.SIGINT)}
        # One run of several: what was heard around it counts in it, and the other way round.
        outer = getattr(before[signal.SIGTERM], "__self__", None)
        if isinstance(outer, Stopping):
            self.is_asked |= outer.is_asked
        try:
            yield
        finally:
            if isinstance(outer, Stopping):
                outer.is_asked |= self.is_asked
            for number, handler in before.items():
                with suppress(TypeError):
                    signal.signal(number, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Here a signal need not wait: no weight is being changed."""
        if not self._is_alone:
            yield
            return
        # Before the question, so that a signal between the two is not left waiting.
        self._may_interrupt = True
        try:
            if self.is_asked:
                raise Interrupted
            yield
        finally:
            self._may_interrupt = False

    def obey(self, processes: Processes) -> None:
        """Where all processes of a run meet: stop when any of them was asked to."""
        if not self._is_alone and processes.agree(self.is_asked)[0]:
            raise Interrupted

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A worker that has only just been forked: Ctrl-C is answered by its parent.
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        if self.is_asked and number == signal.SIGINT and not self._is_echo():
            raise KeyboardInterrupt
        self.is_asked, self._asked_at = True, time.monotonic()
        if self._may_interrupt:
            self._may_interrupt = False
            raise Interrupted

    def _is_echo(self) -> bool:
        """Of several processes each hears one Ctrl-C twice: from the terminal and from the launcher."""
        return not self._is_alone and time.monotonic() - self._asked_at < ECHO_SECONDS
