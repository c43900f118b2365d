"""The processes of one run: who they are, and what they tell each other.

`torchrun` starts them and torch.distributed joins them. Numbers of the network travel between devices (nccl on GPUs);
what the processes have to agree on besides goes through a second group on CPUs, which never waits for a GPU and
notices at once when a process is gone. Everything is sent as numbers or JSON, never as pickles. A wait for others is
cut into short ones, so that signals are heard in between, and is watched (`runtime/watch.py`).
"""

import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store, _abort_process_group
from torch.distributed.rendezvous import rendezvous

from vitrail.errors import UsageError, VitrailError, setting
from vitrail.runtime.out_of_memory import is_out_of_memory
from vitrail.runtime.watch import Heart, Watch, patience_seconds, stacks, standstill_words

Value = TypeVar("Value")

# One process indexes very many images or writes a large checkpoint while the others wait. A process that died is
# noticed without this, and processes that all wait are noticed by the watch.
_PATIENCE = timedelta(days=1)
_SLICE = timedelta(seconds=0.2)
_SECONDS_TO_VANISH = 3.0
_PLACE_BYTES = 512
_has_joined = False
_is_left_waiting = False
_SECONDS_TO_MEET = 0.05
_SIGNS_OF_A_LOSS = ("connection closed by peer", "connection reset", "gloo", "nccl", "broken pipe")
_SIGNS_OF_SILENCE = ("timed out", "timeout")


class LostProcess(VitrailError):
    """Another process of the run is gone."""

    exit_code = 7

    def __init__(self, came: str, *, fix: str = "", gone: tuple[int, ...] = ()) -> None:
        super().__init__(came, fix=fix)
        self.gone = gone


class Standstill(LostProcess):
    """All processes of the run wait for each other; each of them knows it."""

    is_shared = True

    def __init__(self, hearts: Sequence[Heart], *, fix: str = "") -> None:
        super().__init__(standstill_words(hearts), fix=fix)
        self.hearts, self.stacks = hearts, stacks(hearts)


class Elsewhere(VitrailError):
    """Another process failed and says why; this one ends with it, silently."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("another process of the run failed")
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True)
class Processes:
    """One of the processes of a run, and its line to the others; a process alone needs no line."""

    rank: int = 0
    ranks: int = 1
    local_ranks: int = 1
    """Those on this machine."""
    control: Any = None
    """The group on CPUs; none for a process alone."""
    places: tuple[tuple[str, int], ...] = ()
    """Machine and process id of each rank."""
    watch: Watch | None = None
    """Notices when all wait for each other."""

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def agree(self, *values: float) -> list[float]:
        """The largest of what each process says, value by value: a wish of one is a wish of all."""
        if self.control is None:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        group = self.control
        self._all("agree", lambda: dist.all_reduce(numbers, dist.ReduceOp.MAX, group=group, async_op=True))
        return numbers.tolist()

    def told(self, value: Value) -> Value:
        """What the first process says; a value that JSON can hold."""
        if self.control is None:
            return value
        text = json.dumps(value if self.is_first else None).encode()
        size = torch.tensor(len(text))
        self._all("told", lambda: dist.broadcast(size, 0, group=self.control, async_op=True))
        letters = torch.zeros(int(size), dtype=torch.uint8)
        if self.is_first:
            letters.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        self._all("told", lambda: dist.broadcast(letters, 0, group=self.control, async_op=True))
        return json.loads(letters.numpy().tobytes())

    def first_says(self, make: Callable[[], Value]) -> Value:
        """What the first process finds, in every process; when it fails, all end. A value that JSON can hold."""
        with self.together():
            value = make() if self.is_first else None
        return self.told(value)  # type: ignore[return-value]

    def gathered(self, part: np.ndarray, length: int) -> np.ndarray:
        """Rows that were dealt out one by one, rank after rank, as one array of `length` rows in every process."""
        if self.control is None:
            return part
        share = -(-length // self.ranks)
        padded = torch.zeros(share, *part.shape[1:], dtype=torch.from_numpy(part).dtype)
        padded[: len(part)] = torch.from_numpy(part)
        parts = [torch.empty_like(padded) for _ in range(self.ranks)]
        self._all("gathered", lambda: dist.all_gather(parts, padded, group=self.control, async_op=True))
        return torch.stack(parts, dim=1).flatten(0, 1)[:length].numpy()

    def wait(self) -> None:
        """Until every process is here."""
        self.agree(0)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What fails in one process ends all of them, and the first that failed says why.

        Nothing in here may talk to other processes: one that fails before would be waited for.
        """
        try:
            yield
        except VitrailError as error:
            codes = self._codes(error.exit_code)
            if next(rank for rank, code in enumerate(codes) if code) != self.rank:
                raise Elsewhere(error.exit_code) from None
            raise
        if any(codes := self._codes(0)):
            raise Elsewhere(next(code for code in codes if code))

    def in_turn(self, make: Callable[[], Value]) -> Value:
        """The first process does it, then all others, which find what it downloaded or cached; one failure ends all."""
        made: list[Value] = []
        for first in (True, False):
            with self.together():
                if self.is_first == first:
                    made.append(make())
        return made[0]

    def lost(self, error: BaseException) -> LostProcess | None:
        """What to tell where an error means that another process is gone; none for any other error."""
        if isinstance(error, LostProcess):
            return error
        text = str(error).lower()
        is_loss = isinstance(error, RuntimeError) and any(sign in text for sign in _SIGNS_OF_A_LOSS)
        if self.control is None or is_out_of_memory(error) or not (is_loss or isinstance(error, dist.DistError)):
            return None
        if self.watch is not None:
            self.watch.look_again()
            if self.watch.standstill is not None:
                return Standstill(self.watch.standstill)
        if any(sign in text for sign in _SIGNS_OF_SILENCE):
            return LostProcess(f"one of the {self.ranks} processes did not answer in time")
        gone = self._gone()
        names = ", ".join(f"{rank} (id {self.places[rank][1]})" for rank in gone)
        came = f"process {names} of {self.ranks} is gone" if names else f"one of the {self.ranks} processes is gone"
        if len(gone) > 1:
            # Which of them went first cannot be seen: the others may have ended because of it.
            came = f"processes {names} of {self.ranks} are gone"
        return LostProcess(came, gone=gone)

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """A failure to talk to the others is told as what it is: one of them is gone."""
        try:
            yield
        except RuntimeError as error:
            if (lost := self.lost(error)) is not None:
                raise lost from None
            raise

    def _all(self, what: str, begin: Callable[[], Any]) -> None:
        """Until every process has come to it, unless a signal or a standstill ends the wait."""
        work, watch = None, self.watch
        with self.noticing(), nullcontext() if watch is None else watch.waiting(what):
            try:
                work = begin()
                while not work.is_completed():
                    if watch is not None and watch.standstill is not None and watch.has_given_up():
                        raise Standstill(watch.standstill)
                    # That the time is up is no error; any other is raised below.
                    with suppress(RuntimeError):
                        work.wait(_SLICE)
                work.wait()
            finally:
                global _is_left_waiting
                _is_left_waiting |= work is not None and not work.is_completed()

    def _codes(self, mine: int) -> list[int]:
        codes = [0.0] * self.ranks
        codes[self.rank] = mine
        return [int(code) for code in self.agree(*codes)]

    def _gone(self) -> tuple[int, ...]:
        """Ranks on this machine whose process has ended; it takes a moment until that can be seen."""
        mine = [(rank, process) for rank, (machine, process) in enumerate(self.places) if machine == _machine()]
        until = time.monotonic() + _SECONDS_TO_VANISH
        while True:
            gone = tuple(rank for rank, process in mine if rank != self.rank and not _is_alive(process))
            if gone or time.monotonic() > until:
                return gone
            time.sleep(0.05)


ALONE = Processes()


def is_joined() -> bool:
    """Whether torchrun, or someone who sets the same variables, started this process as one of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def has_joined() -> bool:
    """Whether this process has found the others, and may since have an error that they have not."""
    return _has_joined


def is_left_waiting() -> bool:
    """Whether a wait was given up: gloo goes on with it in a thread, for which the end of Python would wait."""
    return _is_left_waiting


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """The processes that were started with this one, for as long as this lasts; a process alone without torchrun."""
    if not is_joined():
        yield ALONE
        return
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UsageError(f"RANK is set and {missing[0]} is not", fix="Start with torchrun, or unset RANK.")
    patience = patience_seconds()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, rank, ranks = next(rendezvous("env://"))
    fresh = PrefixStore(meeting(store, rank, ranks), store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=fresh, rank=rank, world_size=ranks)
    global _has_joined
    _has_joined = True
    control = dist.new_group(backend="gloo", timeout=_PATIENCE)
    # A line of its own: torch may hold the other one while it waits there.
    watch = Watch(fresh.clone(), rank, ranks, patience)
    try:
        places = _places(ranks, control)
        watch.start()
        local = sum(machine == _machine() for machine, _ in places)
        yield Processes(rank=rank, ranks=ranks, local_ranks=local, control=control, places=places, watch=watch)
    except BaseException:
        # A launcher sends SIGTERM to the rest once one has ended; why this one does has to be told first.
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # The others may be gone: gloo lets go of them at once, nccl has to be told not to wait.
        with suppress(Exception):
            if device.type == "cuda":
                _abort_process_group()
            elif not _is_left_waiting:
                dist.destroy_process_group()
        raise
    else:
        dist.destroy_process_group()
    finally:
        watch.close()


def meeting(store: Store, rank: int, ranks: int, patience: timedelta = timedelta(minutes=10)) -> str:
    """A name that the processes of this start have in common, and none that torchrun started before them.

    torchrun may keep its store over a restart, with the addresses of processes that are gone. So each one writes a word
    of its own; the first repeats all words with a name, until everyone has found its own word there.
    """
    mine, until = uuid.uuid4().hex, time.monotonic() + patience.total_seconds()
    store.set(f"word/{rank}", mine)
    while time.monotonic() < until:
        if rank == 0:
            words = [_read(store, f"word/{number}") for number in range(ranks)]
            store.set("words", " ".join([mine, *words]))
            if all(_read(store, f"found/{number}") == mine for number in range(1, ranks)):
                return mine
        else:
            name, *words = _read(store, "words").split() or [""]
            if words[rank : rank + 1] == [mine]:
                store.set(f"found/{rank}", name)
                return name
        time.sleep(_SECONDS_TO_MEET)
    raise LostProcess(
        f"the {ranks} processes did not find each other", fix="Look at the machines and the ports between them."
    )


def _read(store: Store, key: str) -> str:
    """What is there, without waiting for it."""
    return store.get(key).decode() if store.check([key]) else "-"


def own_device(device: torch.device) -> torch.device:
    """The GPU of this process, where several on one machine share a device name."""
    if device.type != "cuda" or not is_joined():
        return device
    number = int(os.environ.get("LOCAL_RANK", 0))
    wanted, there = max(int(os.environ.get("LOCAL_WORLD_SIZE", 1)), number + 1), torch.cuda.device_count()
    # All processes of a machine come to it alike, so that the first says it.
    if wanted > there:
        raise UsageError(
            f"{wanted} processes were started on a machine with {there} GPU{'' if there == 1 else 's'}",
            wanted="a GPU for each",
            fix=f"Start {there}, or use {setting('device', 'cpu')}.",
        )
    return torch.device("cuda", number)


def total_(values: Tensor, processes: Processes) -> None:
    """The sum over all processes, in place, on the device the values are on."""
    if processes.control is not None:
        dist.all_reduce(values)


def _places(ranks: int, control: Any) -> tuple[tuple[str, int], ...]:
    mine = json.dumps([_machine(), os.getpid()]).encode().ljust(_PLACE_BYTES)
    letters = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
    parts = [torch.empty_like(letters) for _ in range(ranks)]
    dist.all_gather(parts, letters, group=control)
    return tuple((machine, process) for machine, process in (json.loads(part.numpy().tobytes()) for part in parts))


def _machine() -> str:
    """Its name, and when it was started: containers on different machines may be called the same."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.is_file() else ''}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        # A process that has ended stays in the table until its parent has looked.
        state = Path(f"/proc/{process}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
