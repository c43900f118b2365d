"""Worker processes that do what is asked in the order it is asked; when one fails, the cause has a name."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from vitrail.errors import VitrailError, setting
from vitrail.runtime.main_guard import RAN_AGAIN, missing_guard

Request = TypeVar("Request")
Made = TypeVar("Made")

# A worker that says nothing for so long is taken for dead.
TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 5.0
_AHEAD = 4
_ALONE = f"Run with {setting('data.workers', 0)} to see what it says in this process."
# What torch says.
_SILENCE = "DataLoader timed out"
_NO_SHARED_MEMORY = ("shared memory", "Bus error", "No space left")


class WorkerError(VitrailError):
    """A data worker died or went silent; the data may be fine."""

    exit_code = 3


def in_workers(
    make: Callable[[Request], Made],
    requests: Callable[[], Iterable[Request]],
    *,
    workers: int,
    timeout: float = TIMEOUT_SECONDS,
) -> Iterator[Made]:
    """Apply `make` to every request, in their order, a bounded number ahead; with no workers in this process.

    `make` and what it holds travel to the workers once. A VitrailError that it raises arrives as it is, any other with
    the worker's traceback in its text.
    """
    if workers == 0:
        yield from map(make, requests())
        return
    loader = DataLoader(
        _Making(make),
        batch_size=None,
        sampler=_Requests(requests),
        num_workers=workers,
        collate_fn=_shared,
        worker_init_fn=_start_worker,
        prefetch_factor=_AHEAD,
        # Of its own, because torch would draw a seed from the generator that weights are initialised with.
        generator=torch.Generator(),
        timeout=min(_POLL_SECONDS, timeout),
    )
    others = set(multiprocessing.active_children())
    made = iter(loader)
    processes = set(multiprocessing.active_children()) - others
    watchdog = _Watchdog(processes, timeout + 2 * min(_POLL_SECONDS, timeout))
    failure: Exception | None = None
    try:
        while failure is None:
            watchdog.waiting_since = watchdog.waiting_since or time.monotonic()
            try:
                item = next(made)
            except StopIteration:
                return
            except Exception as error:
                # torch looks for dead workers when its time is up, so it is given little at a time.
                if not str(error).startswith(_SILENCE) or time.monotonic() - watchdog.waiting_since >= timeout:
                    traceback.clear_frames(error.__traceback__)
                    failure = _silent(timeout) if watchdog.has_bitten else _named(error, processes, timeout)
                continue
            watchdog.waiting_since = None
            if isinstance(item, VitrailError):
                failure = item
                continue
            yield item
    finally:
        watchdog.stop()
    # Before it is raised, because a traceback would keep the processes; a silent one would be waited for.
    for process in processes:
        _end(process)
    del made
    raise failure


class _Watchdog:
    """Ends workers that are frozen: torch waits for what such a one was about to hand over, without any limit."""

    def __init__(self, processes: Iterable[BaseProcess], limit: float) -> None:
        self.has_bitten = False
        self.waiting_since: float | None = None
        self._processes, self._limit = processes, limit
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="vitrail watchdog", daemon=True).start()

    def stop(self) -> None:
        """There is nothing more to wait for."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(min(_POLL_SECONDS, self._limit / 4)):
            since = self.waiting_since
            if since is not None and time.monotonic() - since > self._limit:
                self.has_bitten = True
                for process in self._processes:
                    _end(process)
                return


def _end(process: BaseProcess) -> None:
    """End a worker of ours; one that is stopped has to go on to hear of it."""
    process.terminate()
    if process.pid is not None and hasattr(signal, "SIGCONT"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)


class _Making(Dataset[Made | VitrailError], Generic[Request, Made]):
    def __init__(self, make: Callable[[Request], Made]) -> None:
        self._make = make

    def __getitem__(self, request: Request) -> Made | VitrailError:
        try:
            return self._make(request)
        except VitrailError as error:
            # Handed over, because torch would raise one whose message is a traceback.
            return error


class _Requests(Sampler[Request]):
    def __init__(self, requests: Callable[[], Iterable[Request]]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests())


def _shared(made: Any) -> Any:
    """What was made with its tensors in shared memory: here its lack is an error, later it would be an item lost."""
    if isinstance(made, torch.Tensor):
        made.share_memory_()
    elif isinstance(made, list | tuple) or is_dataclass(made):
        for part in made if isinstance(made, list | tuple) else vars(made).values():
            _shared(part)
    return made


def _start_worker(_number: int) -> None:
    torch.set_num_threads(1)
    # Ctrl-C reaches every process of a terminal, and is answered by one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _named(error: Exception, processes: Iterable[BaseProcess], timeout: float) -> Exception:
    text = str(error)
    if isinstance(error, ConnectionError | EOFError):
        # It broke off while it handed something over: that it has ended may be known a moment later.
        ended = connection.wait([process.sentinel for process in processes], timeout=_POLL_SECONDS)
        for process in processes:
            if process.sentinel in ended:
                process.join()
    ends = sorted({process.exitcode for process in processes if process.exitcode is not None})
    if any(words in text for words in _NO_SHARED_MEMORY) or -signal.SIGBUS in ends:
        return WorkerError(
            "shared memory (/dev/shm) is full, so a data worker could not hand its images over",
            fix=f"Give the container more (docker run --shm-size 8g), use fewer {setting('data.workers')}, or run with "
            f"{setting('data.workers', 0)}.",
        )
    if ends == [-signal.SIGKILL]:
        return WorkerError(
            "a data worker was killed by the system (SIGKILL), as it does when memory runs out",
            fix=f"Use fewer {setting('data.workers')}, or run with {setting('data.workers', 0)}.",
        )
    if RAN_AGAIN in ends:
        return missing_guard()
    if ends:
        how = ", ".join(f"exit code {end}" if end >= 0 else f"signal {-end}, {signal.strsignal(-end)}" for end in ends)
        return WorkerError(f"a data worker died ({how})", fix=_ALONE)
    return _silent(timeout) if text.startswith(_SILENCE) else error


def _silent(timeout: float) -> WorkerError:
    return WorkerError(f"no data worker answered for {timeout:.0f} seconds", fix=_ALONE)
