"""Getting the next batch ready while the last one is in use."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

Item = TypeVar("Item")

_AHEAD = 2
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 3.0


def prefetched(make: Callable[[], Iterator[Item]], device: torch.device) -> Iterator[Item]:
    """Iterate over `make()` in a thread of its own, and on a GPU in a stream of its own, a few items ahead.

    Worker processes are started in that thread too: torch then leaves the main thread's signals alone, and a worker
    that dies is noticed here and nowhere else.
    """
    ready: queue.Queue[tuple[str, Any, Any]] = queue.Queue(maxsize=_AHEAD)
    stopped = threading.Event()

    def put(kind: str, value: Any, event: Any = None) -> None:
        while not stopped.is_set():
            try:
                ready.put((kind, value, event), timeout=_POLL_SECONDS)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            stream = torch.cuda.Stream(device) if device.type == "cuda" else None
            with torch.cuda.stream(stream):
                for item in make():
                    put("item", item, None if stream is None else stream.record_event())
                    if stopped.is_set():
                        return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=work, name="vitrail data", daemon=True)
    thread.start()
    try:
        while True:
            kind, value, event = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            if event is not None:
                _take_over(value, event, device)
            yield value
    finally:
        # An error that this frame held while its traceback holds the frame would stay, and all that it refers to.
        value = None
        stopped.set()
        # It waits for a worker that hangs; nobody else should.
        thread.join(timeout=_PATIENCE_SECONDS)


def _take_over(item: Any, event: torch.cuda.Event, device: torch.device) -> None:
    """Make the current stream wait for what another one computed, and keep its memory until this one is done."""
    current = torch.cuda.current_stream(device)
    current.wait_event(event)
    for value in vars(item).values():
        for tensor in value if isinstance(value, list) else [value]:
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                tensor.record_stream(current)
