"""Worker processes that do what is asked in the order it is asked; when one fails, the cause has a name."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from vitrail.errors import VitrailError

Request = TypeVar("Request")
Made = TypeVar("Made")

# A worker that says nothing for so long is taken for dead.
TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 5.0
_AHEAD = 4


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

    `make` and what it holds travel to the workers once. It reports a user's mistakes in what it returns: what it raises
    arrives as text.
    """
    if workers == 0:
        yield from map(make, requests())
        return
    loader = DataLoader(
        _Making(make),
        batch_size=None,
        sampler=_Requests(requests),
        num_workers=workers,
        collate_fn=_as_it_is,
        worker_init_fn=_start_worker,
        prefetch_factor=_AHEAD,
        timeout=min(_POLL_SECONDS, timeout),
    )
    made = iter(loader)
    asked = time.monotonic()
    while True:
        try:
            item = next(made)
        except StopIteration:
            return
        except RuntimeError as error:
            # torch looks for dead workers when its time is up, so it is given little at a time.
            if "timed out" in str(error) and time.monotonic() - asked < timeout:
                continue
            raise _named(error, workers, timeout) from None
        yield item
        asked = time.monotonic()


class _Making(Dataset[Made], Generic[Request, Made]):
    def __init__(self, make: Callable[[Request], Made]) -> None:
        self._make = make

    def __getitem__(self, request: Request) -> Made:
        return self._make(request)


class _Requests(Sampler[Request]):
    def __init__(self, requests: Callable[[], Iterable[Request]]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests())


def _as_it_is(made: Made) -> Made:
    return made


def _start_worker(_number: int) -> None:
    torch.set_num_threads(1)


def _named(error: RuntimeError, workers: int, timeout: float) -> Exception:
    text = str(error)
    alone = "Run with --workers 0 to see what it says in this process."
    if "shared memory" in text or "Bus error" in text or "No space left" in text:
        return WorkerError(
            "shared memory (/dev/shm) is full, so a data worker could not hand its images over",
            fix="Give the container more (docker run --shm-size 8g), use fewer --workers, or run with --workers 0.",
        )
    if "timed out" in text:
        return WorkerError(f"none of {workers} data workers answered for {timeout:.0f} seconds", fix=alone)
    if "exited unexpectedly" in text or "killed by signal" in text:
        line = next((line for line in text.splitlines() if "killed" in line or "exited" in line), text)
        return WorkerError(f"a data worker died ({line.strip().rstrip('.')})", fix=alone)
    return error
