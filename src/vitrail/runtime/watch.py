"""A watch over the processes of a run: who waits where, whether anyone still works, and who wants it to end.

Waiting is no fault: one process may index images or compute for an hour while the others wait for it. A standstill is
when every process has waited all the time, and not all at the same place: then nobody will ever come. So a thread of
each process looks where its main thread is, and tells the others through the store they met at. It also hears signals,
which a main thread does not while it waits inside of torch, and notices when the launcher is gone.
"""

import ctypes
import json
import os
import select
import signal
import socket
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

from vitrail.errors import UsageError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

PATIENCE = "VITRAIL_STANDSTILL_SECONDS"
"""The variable that says for how long all processes may wait for each other."""
INTERRUPTED = 130
_PATIENCE_SECONDS = 180.0
# What a main thread has to save in and end by itself.
_SECONDS_AFTER_STANDSTILL, _SECONDS_WITHOUT_LAUNCHER, _SECONDS_AFTER_SECOND_INTERRUPT = 20.0, 10.0, 1.0
# One Ctrl-C may be heard twice: from the terminal and from a launcher.
ECHO_SECONDS = 2.0
_TICK, _BEAT, _SECONDS_TO_SPREAD = 0.25, 1.0, 3.0
# Who computes or moves numbers takes more of a core than who waits.
_IDLE_SHARE = 0.05
# From where torch waits for other processes within one call, besides the waits that are marked; what it calls in
# Python there, such as a compiler or a hook, is work. An operator has a frame of its own.
_MEETING_PLACES = ("torch.distributed", "torch.nn.parallel.distributed", "torch.autograd.graph")
_OPERATOR = "torch._ops"
_PACKAGE, _OWN = Path(__file__).parents[1], "vitrail.runtime."
_PR_SET_PDEATHSIG = 1
_LAUNCHED = "TORCHELASTIC_RUN_ID"


def end_with_launcher() -> None:
    """From now on the end of the launcher is a SIGTERM, where the system is Linux; the watch notices it anywhere."""
    if _LAUNCHED in os.environ:
        end_with_parent()


def end_with_parent(parent: int | None = None) -> None:
    """From now on the end of the process that started this one is a SIGTERM, where the system is Linux.

    Where `parent` has ended already, it is now.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent is not None and os.getppid() != parent:
        os._exit(INTERRUPTED)


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


def patience_seconds() -> float:
    """For how long all processes may wait for each other."""
    word = os.environ.get(PATIENCE, "").strip()
    with suppress(ValueError):
        if (seconds := float(word or _PATIENCE_SECONDS)) > 0:
            return seconds
    raise UsageError(
        f"{PATIENCE} is {word!r}",
        wanted="a number of seconds above 0",
        fix=f"For three minutes: {PATIENCE}=180.",
    )


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
        # Sockets, because Windows can wait for nothing else.
        self._inner, self._outer = socket.socketpair()
        for end in (self._inner, self._outer):
            end.setblocking(False)
        self._before = signal.set_wakeup_fd(self._outer.fileno(), warn_on_full_buffer=False)
        self._is_open = True
        if hasattr(os, "register_at_fork"):
            # A worker that is forked has signals of its own.
            os.register_at_fork(after_in_child=self._forked)

    def heard(self, seconds: float) -> bytes:
        """The numbers of the signals that came, after so many seconds at most."""
        ready, _, _ = select.select([self._inner], [], [], seconds)
        return self._inner.recv(64) if ready else b""

    def wake(self) -> None:
        """Let whoever listens look around."""
        self._outer.send(b"\0")

    def close(self) -> None:
        """Give back what was there before."""
        self._is_open = False
        signal.set_wakeup_fd(self._before)
        for end in (self._inner, self._outer):
            end.close()

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

    def __init__(self, store: "Store", rank: int, ranks: int, patience: float) -> None:
        self.standstill: tuple[Heart, ...] | None = None
        """Where every process waited, once all did."""
        self._found_at = 0.0
        self.patience = patience
        """Seconds that all may wait for each other."""
        self._store, self._rank, self._ranks = store, rank, ranks
        self._parent = os.getppid() if _LAUNCHED in os.environ else None
        self._ear = Ear() if threading.current_thread() is threading.main_thread() else None
        self._interruptions = Interruptions(ECHO_SECONDS)
        self._waiting, self._calls = "", 0
        self._heart = Heart(beat=0, place=None, seconds=0.0, at="", stack="")
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
        main, others = _threads_of_torch()
        frames = list(_frames(main))
        place: str | None = self._waiting or None
        stack = ""
        if place is not None or (is_idle and all(map(_is_meeting, (main, *others))) and _main_sleeps()):
            stack = "".join(traceback.format_stack(main)) if main is not None else ""
            place = place or stack
        self._heart = Heart(
            beat=before.beat + 1,
            place=place,
            seconds=before.seconds + seconds if place is not None and place == before.place else 0.0,
            at=_told(self._waiting, frames),
            stack=stack,
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
        if self._heart.seconds < self.patience or self._heart.beat % max(1, self._ranks // 8):
            return
        self.look_again()
        if self.standstill is not None:
            return
        keys = [f"heart/{rank}" for rank in range(self._ranks)]
        now = tuple(Heart(**json.loads(heart)) for heart in self._store.multi_get(keys))
        before, self._before = self._before or now, now
        if is_standstill(before, now, self.patience):
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


def _threads_of_torch() -> tuple[FrameType | None, list[FrameType]]:
    """Where the main thread is, and those that torch started itself, which run Python in a backward pass on a GPU."""
    ours = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    frames = sys._current_frames()
    main = frames.get(threading.main_thread().ident or 0)
    return main, [frame for thread, frame in frames.items() if thread not in ours]


def _is_meeting(frame: FrameType | None) -> bool:
    """Whether a thread may be waiting for other processes inside of torch: nothing else was called from there."""
    inner = next((frame for frame in _frames(frame) if _module(frame) != _OPERATOR), None)
    return inner is not None and _module(inner).startswith(_MEETING_PLACES)


def _main_sleeps() -> bool:
    """Whether the system says so, where it can be asked: on a crowded machine who computes may hardly get a core."""
    try:
        state = Path(f"/proc/self/task/{threading.main_thread().native_id}/stat").read_text()
    except OSError:
        return True
    return state.rpartition(")")[2].split()[0] == "S"


def _told(waiting: str, frames: Sequence[FrameType]) -> str:
    """The function of ours that waits, or else of whoever called torch, with its file and line."""
    ours = [
        frame
        for frame in frames
        if Path(frame.f_code.co_filename).is_relative_to(_PACKAGE) and not _module(frame).startswith(_OWN)
    ]
    callers = [frame for frame in frames if not _module(frame).startswith(("torch.", _OWN))]
    where = [
        f"{frame.f_code.co_name} ({_shown(Path(frame.f_code.co_filename))}:{frame.f_lineno})"
        for frame in (ours or callers or frames)[:1]
    ]
    return " in ".join(["", *([waiting] if waiting else []), *where]).strip()


def _shown(file: Path) -> str:
    return str(file.relative_to(_PACKAGE)) if file.is_relative_to(_PACKAGE) else file.name


def _end(code: int) -> None:
    """At once: the main thread may never return."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(Exception):
            if stream is not None:
                stream.flush()
    os._exit(code)
