"""Running ahead in a thread: the order is kept, errors cross over, and it ends when no one listens."""

import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
import torch
from tests.data.loading.tiny import left_running

from vitrail.data.loading.prefetch import _AHEAD, prefetched
from vitrail.errors import DataError

CPU = torch.device("cpu")


def waited(condition) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_the_order_is_kept():
    assert list(prefetched(lambda: iter(range(200)), CPU)) == list(range(200))
    assert list(prefetched(lambda: iter(()), CPU)) == []
    assert left_running() == []


def test_it_runs_in_a_thread_of_its_own():
    def make() -> Iterator[threading.Thread]:
        yield threading.current_thread()

    (thread,) = prefetched(make, CPU)
    assert thread is not threading.current_thread()
    assert thread.daemon


def test_it_runs_ahead_and_not_too_far():
    made: list[int] = []

    def make() -> Iterator[int]:
        for number in range(1000):
            made.append(number)
            yield number

    items = prefetched(make, CPU)
    assert made == []
    assert next(items) == 0
    # One is taken, some are ready, and one waits for a place.
    assert waited(lambda: len(made) == 1 + _AHEAD + 1)
    time.sleep(0.3)
    assert len(made) == 1 + _AHEAD + 1
    items.close()
    assert left_running() == []


@pytest.mark.parametrize("kind", [DataError, ValueError, KeyboardInterrupt])
def test_an_error_crosses_over_in_its_turn(kind):
    def make() -> Iterator[int]:
        yield from range(5)
        raise kind("it broke")

    seen = []
    with pytest.raises(kind, match="it broke"):
        for item in prefetched(make, CPU):
            seen.append(item)
    assert seen == [0, 1, 2, 3, 4]
    assert left_running() == []


def test_an_error_before_the_first_item():
    def make() -> Iterator[int]:
        raise DataError("nothing to begin with")

    with pytest.raises(DataError, match="nothing to begin with"):
        next(prefetched(make, CPU))
    assert left_running() == []


def test_left_early_the_work_is_closed():
    closed = threading.Event()

    def make() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.set()

    for item in prefetched(make, CPU):
        if item == 3:
            break
    assert waited(closed.is_set)
    assert left_running() == []


def test_an_exception_of_the_consumer_ends_the_thread():
    def consume() -> None:
        for item in prefetched(lambda: iter(range(1000)), CPU):
            raise ValueError(f"stopped at {item}")

    with pytest.raises(ValueError, match="stopped at 0"):
        consume()
    assert waited(lambda: left_running() == [])


class Large:
    pass


def test_an_error_that_is_dealt_with_holds_nothing():
    large = Large()
    held = weakref.ref(large)

    def make(kept: Large) -> Iterator[Large]:
        raise DataError(f"could not use {kept}")
        yield kept

    def attempt(kept: Large) -> None:
        with contextlib.suppress(DataError):
            list(prefetched(lambda: make(kept), CPU))

    gc.disable()
    try:
        attempt(large)
        del large
        assert held() is None
    finally:
        gc.enable()
