"""A watch over the processes of a run: who waits where, whether anyone still works, and who wants it to end.

Waiting is no fault: one process may index images or write for an hour while the others wait for it. A standstill is
when every process waits, and not all at the same place: then nobody will ever come. So a thread of each process looks
where its main thread is, and tells the others through the store they met at. It also hears signals, which a main
thread does not while it waits inside of torch, and notices when the launcher is gone.
"""

import ctypes
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

PATIENCE = "VITRAIL_STANDSTILL_SECONDS"
"""The variable that says for how long all processes may wait for each other."""
INTERRUPTED = 130
_PATIENCE_SECONDS, _PATIENCE_WHEN_ASKED = 180.0, 10.0
# What a main thread has to save in and end by itself.
_SECONDS_AFTER_STANDSTILL, _SECONDS_WITHOUT_LAUNCHER, _SECONDS_AFTER_SECOND_INTERRUPT = 20.0, 10.0, 1.0
# One Ctrl-C may be heard twice: from the terminal and from a launcher.
ECHO_SECONDS = 2.0
_TICK, _BEAT, _SECONDS_TO_SPREAD = 0.25, 1.0, 3.0
# Who computes or moves numbers takes more of a core than who waits.
_IDLE_SHARE = 0.05
# Where a main thread may wait for other processes within one call, besides the waits that are marked.
_MEETING_PLACES = ("torch.distributed", "torch.autograd.graph")
_PACKAGE, _OWN = Path(__file__).parents[1], "vitrail.runtime."
_PR_SET_PDEATHSIG = 1
_LAUNCHED = "TORCHELASTIC_RUN_ID"


def end_with_launcher() -> None:
    """From now on the end of the launcher is a SIGTERM, where the system is Linux; the watch notices it anywhere."""
    if _LAUNCHED in os.environ and sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class Heart:
    """What a process tells the others, once a second."""

    beat: int
    place: str | None
    """Where it waits for others; none while it works."""
    seconds: float
    """How long it has been there."""
    at: str
    """The same for people."""
    stack: str
    is_asked: bool
    """Whether it was asked to stop."""


def is_standstill(before: Sequence[Heart], now: Sequence[Heart], patience: float) -> bool:
    """Whether all have waited for so long, still do, and cannot be waiting for the same thing.

    At one place they may well be: there something large is on its way, or a machine is gone, which gloo
    and nccl notice.
    """
    waits = all(
        heart.place is not None and heart.seconds >= patience and heart.place == was.place and heart.beat > was.beat
        for was, heart in zip(before, now, strict=True)
    )
    return waits and len({heart.place for heart in now}) > 1


class Ear:
    """Signals as the system delivers them, while Python's own handlers wait for a call to return."""

    def __init__(self) -> None:
        self._ends = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)
        self._before = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
        self._process = os.getpid()
        # A worker that is forked has signals of its own.
        os.register_at_fork(after_in_child=self._forked)
        self._is_open = True

    def heard(self, seconds: float) -> bytes:
        """The numbers of the signals that came, after so many seconds at most."""
        ready, _, _ = select.select([self._ends[0]], [], [], seconds)
        return os.read(self._ends[0], 64) if ready else b""

    def wake(self) -> None:
        """Let whoever listens look around."""
        os.write(self._ends[1], b"\0")

    def close(self) -> None:
        """Give back what was there before."""
        self._is_open = False
        signal.set_wakeup_fd(self._before)
        for end in self._ends:
            os.close(end)

    def _forked(self) -> None:
        if self._is_open:
            signal.set_wakeup_fd(-1)


class Interruptions:
    """Tells the second Ctrl-C from the first, and from its echo."""

    def __init__(self, echo_seconds: float) -> None:
        self.first: float | None = None
        self._echo_seconds = echo_seconds

    def is_second(self, numbers: bytes) -> bool:
        """Whether someone who has asked before asks again."""
        if signal.SIGINT not in numbers:
            return False
        now = time.monotonic()
        if self.first is None:
            self.first = now
        return now - self.first > self._echo_seconds


class Watch:
    """The thread of one process, and what it knows of all."""

    def __init__(self, store: "Store", rank: int, ranks: int) -> None:
        self.standstill: tuple[Heart, ...] | None = None
        """Where every process waited, once all did."""
        self._found_at = 0.0
        self._store, self._rank, self._ranks = store, rank, ranks
        self._main = threading.main_thread().ident
        self._parent = os.getppid() if _LAUNCHED in os.environ else None
        self._ear = Ear() if threading.current_thread() is threading.main_thread() else None
        self._interruptions, self._is_asked = Interruptions(ECHO_SECONDS), False
        self._waiting, self._calls = "", 0
        self._heart = Heart(beat=0, place=None, seconds=0.0, at="", stack="", is_asked=False)
        self._before: tuple[Heart, ...] = ()
        self._cpu = time.process_time()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="vitrail watch", daemon=True)
        self._tell()

    def start(self) -> None:
        """Look from now on, because all processes have told that they are here."""
        self._thread.start()

    def close(self) -> None:
        """There is nobody to wait for any more."""
        self._stopped.set()
        if self._ear is not None:
            self._ear.wake()
        if self._thread.is_alive():
            self._thread.join(timeout=2)
        if self._ear is not None and not self._thread.is_alive():
            self._ear.close()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Around a wait for all others: each such wait has the same number in every process."""
        self._calls += 1
        self._waiting = f"{what} (meeting {self._calls:,})"
        try:
            yield
        finally:
            self._waiting = ""

    def look_again(self) -> None:
        """Whether another process found a standstill and has ended because of it."""
        with suppress(Exception):
            if self.standstill is None and self._store.check(["standstill"]):
                self._found(tuple(Heart(**heart) for heart in json.loads(self._store.get("standstill"))))

    def has_given_up(self) -> bool:
        """Whether it is time to end because of a standstill: the others know of it before they miss this one."""
        return self.standstill is not None and time.monotonic() - self._found_at > _SECONDS_TO_SPREAD

    def _found(self, hearts: tuple[Heart, ...]) -> None:
        self._found_at, self.standstill = time.monotonic(), hearts

    def _watch(self) -> None:
        last, until, has_store = time.monotonic(), float("inf"), True
        while not self._stopped.is_set():
            self._hear(self._ear.heard(_TICK) if self._ear is not None else self._sleep(_TICK))
            now = time.monotonic()
            if self._parent is not None and os.getppid() != self._parent:
                # The launcher kept the store.
                until, self._parent, has_store = now + self._without_launcher(), None, False
            if now > until:
                _end(128 + signal.SIGTERM)
            if now - last >= _BEAT:
                # Time in which this process was stopped, or the machine slept, is no time of waiting.
                self._feel(min(now - last, 2 * _BEAT))
                has_store = has_store and self._exchange()
                last = now

    def _sleep(self, seconds: float) -> bytes:
        self._stopped.wait(seconds)
        return b""

    def _hear(self, numbers: bytes) -> None:
        self._is_asked |= any(number in numbers for number in (signal.SIGINT, signal.SIGTERM))
        if self._interruptions.is_second(numbers) and not self._stopped.wait(_SECONDS_AFTER_SECOND_INTERRUPT):
            _end(INTERRUPTED)

    def _without_launcher(self) -> float:
        """Seconds to go on: none for who pressed Ctrl-C before the launcher ended."""
        if self._interruptions.first is not None:
            return -1.0
        os.kill(os.getpid(), signal.SIGTERM)
        return _SECONDS_WITHOUT_LAUNCHER

    def _feel(self, seconds: float) -> None:
        """Where the main thread is, and for how long it has been there."""
        cpu, before = time.process_time(), self._heart
        is_idle, self._cpu = cpu - self._cpu < _IDLE_SHARE * seconds, cpu
        frames = list(_frames(sys._current_frames().get(self._main or 0)))
        place: str | None = self._waiting or None
        stack = ""
        if place is not None or (is_idle and any(_module(frame).startswith(_MEETING_PLACES) for frame in frames)):
            stack = "".join(traceback.format_stack(frames[0])) if frames else ""
            place = place or stack
        self._heart = Heart(
            beat=before.beat + 1,
            place=place,
            seconds=before.seconds + seconds if place is not None and place == before.place else 0.0,
            at=_told(self._waiting, frames),
            stack=stack,
            is_asked=self._is_asked,
        )

    def _exchange(self) -> bool:
        """Tell and look; whether the store is still there, because the process that keeps it may end before others."""
        try:
            self._tell()
            self._look()
        except Exception:
            return False
        return True

    def _tell(self) -> None:
        self._store.set(f"heart/{self._rank}", json.dumps(asdict(self._heart)))

    def _look(self) -> None:
        """Whether all wait; whoever does so for long looks now and then, less often where there are many."""
        if self.standstill is not None:
            self._insist(self.standstill[self._rank])
            return
        patience = float(os.environ.get(PATIENCE) or _PATIENCE_SECONDS)
        soonest = min(patience, _PATIENCE_WHEN_ASKED)
        if self._heart.seconds < soonest or self._heart.beat % max(1, self._ranks // 8):
            return
        self.look_again()
        if self.standstill is not None:
            return
        keys = [f"heart/{rank}" for rank in range(self._ranks)]
        now = tuple(Heart(**json.loads(heart)) for heart in self._store.multi_get(keys))
        before, self._before = self._before or now, now
        if is_standstill(before, now, soonest if any(heart.is_asked for heart in now) else patience):
            self._store.set("standstill", json.dumps([asdict(heart) for heart in now]))
            self._found(now)

    def _insist(self, then: Heart) -> None:
        """End a process whose main thread cannot be told, because it waits inside of torch."""
        if self._heart.place == then.place and self._heart.seconds > then.seconds + _SECONDS_AFTER_STANDSTILL:
            assert self.standstill is not None
            if self._rank == 0 and sys.__stderr__ is not None:
                print(f"error: {standstill_words(self.standstill)}.\n{stacks(self.standstill)}", file=sys.__stderr__)
            _end(7)


def standstill_words(hearts: Sequence[Heart]) -> str:
    """Who waits where, in one sentence; processes at the same place stand together."""
    told = [
        f"process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}"
        f"{f' and {len(ranks) - 8} more' if len(ranks) > 8 else ''} for {hearts[ranks[0]].seconds:.0f} s {at}"
        for at, ranks in _grouped(hearts, lambda heart: heart.at)
    ]
    return f"the {len(hearts)} processes wait for each other and none works: {'; '.join(told)}"


def stacks(hearts: Sequence[Heart]) -> str:
    """What each main thread is doing, for whoever looks for the cause."""
    return "\n".join(
        f"process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}: {hearts[ranks[0]].at}\n{stack}"
        for stack, ranks in _grouped(hearts, lambda heart: heart.stack)
    )


def _grouped(hearts: Sequence[Heart], key: Callable[[Heart], str]) -> list[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = {}
    for rank, heart in enumerate(hearts):
        groups.setdefault(key(heart), []).append(rank)
    return list(groups.items())


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """From the innermost outwards."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""


def _told(waiting: str, frames: Sequence[FrameType]) -> str:
    """The function of ours that waits, with its file and line."""
    ours = [
        frame
        for frame in frames
        if Path(frame.f_code.co_filename).is_relative_to(_PACKAGE) and not _module(frame).startswith(_OWN)
    ]
    where = [
        f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).relative_to(_PACKAGE)}:{frame.f_lineno})"
        for frame in ours[:1]
    ]
    return " in ".join(["", *([waiting] if waiting else []), *where]).strip()


def _end(code: int) -> None:
    """At once: the main thread may never return."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(Exception):
            if stream is not None:
                stream.flush()
    os._exit(code)
