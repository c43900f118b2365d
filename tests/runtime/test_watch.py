"""Processes that wait for each other are noticed, those that work are not; signals are heard in any wait."""

import _thread
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tests.training.several import Group
from tests.training.tiny_run import start_own_forkserver

from vitrail.errors import UsageError
from vitrail.runtime import watch as watch_module
from vitrail.runtime.processes import Processes
from vitrail.runtime.watch import (
    PATIENCE,
    Ear,
    Heart,
    Interruptions,
    Watch,
    is_standstill,
    patience_seconds,
    stacks,
    standstill_words,
)


@pytest.fixture(scope="module", autouse=True)
def _own_forkserver() -> None:
    start_own_forkserver()


def heart(place: str | None, seconds: float = 200.0, beat: int = 7) -> Heart:
    return Heart(beat=beat, place=place, seconds=seconds, at=f"in {place}", stack=f"stack of {place}")


def later(hearts: list[Heart]) -> list[Heart]:
    return [replace(one, beat=one.beat + 1, seconds=one.seconds + 1) for one in hearts]


def test_a_standstill_is_when_all_wait_at_different_places() -> None:
    stuck = [heart("agree"), heart("gathered"), heart("agree")]
    assert is_standstill(stuck, later(stuck), 180)
    assert not is_standstill(stuck, later(stuck), 300), "not for long enough"
    assert not is_standstill(stuck, stuck, 180), "nobody has told anything since"
    working = [heart("agree"), heart(None), heart("agree")]
    assert not is_standstill(working, later(working), 180), "one of them works"
    assert not is_standstill(working, later(stuck), 180), "one of them worked a moment ago"
    moving = [heart("agree"), heart("agree"), heart("agree")]
    assert not is_standstill(moving, later(moving), 180), "something large is on its way"


def test_processes_at_the_same_place_are_named_together() -> None:
    hearts = [heart("agree"), heart("gathered"), *[heart("agree")] * 12]
    told = standstill_words(hearts)
    assert "the 14 processes" in told
    assert "processes 0, 2, 3, 4, 5, 6, 7, 8 and 5 more for 200 s in agree" in told
    assert "process 1 for 200 s in gathered" in told
    assert stacks(hearts[:2]) == "process 0: in agree\nstack of agree\nprocess 1: in gathered\nstack of gathered"


def test_a_second_interrupt_is_told_from_an_echo(monkeypatch) -> None:
    clock = iter([10.0, 11.0, 13.0])
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: next(clock))
    heard = Interruptions(2.0)
    numbers = [bytes([signal.SIGTERM]), bytes([signal.SIGINT]), b"", bytes([signal.SIGINT]), bytes([signal.SIGINT])]
    assert [heard.is_second(number) for number in numbers] == [False, False, False, False, True]


@pytest.mark.parametrize(("word", "seconds"), [("", 180), ("15", 15), (" 0.5 ", 0.5), ("inf", float("inf"))])
def test_the_patience_is_a_number_of_seconds(word, seconds, monkeypatch) -> None:
    monkeypatch.setenv(PATIENCE, word)
    assert patience_seconds() == seconds


@pytest.mark.parametrize("word", ["3m", "never", "nan", "0", "-1"])
def test_any_other_word_for_it_is_a_mistake(word, monkeypatch) -> None:
    monkeypatch.setenv(PATIENCE, word)
    with pytest.raises(UsageError, match=rf"{PATIENCE} is '{word}'.*seconds"):
        patience_seconds()


@pytest.fixture
def watch(monkeypatch) -> Iterator[Watch]:
    """That of the first of two processes, which looks when it is told to, and takes any process to be idle."""
    monkeypatch.setattr(watch_module, "_IDLE_SHARE", float("inf"))
    # Whoever runs the tests in several processes has threads that look like those of torch.
    frames, ours = sys._current_frames, {thread.ident for thread in threading.enumerate()}
    strangers = frames().keys() - ours
    monkeypatch.setattr(
        sys, "_current_frames", lambda: {thread: at for thread, at in frames().items() if thread not in strangers}
    )
    watch = Watch(dist.HashStore(), 0, 2, 180)
    yield watch
    watch.close()


def felt(watch: Watch) -> Heart:
    """What it finds out about the main thread, which is here."""
    thread = threading.Thread(target=watch._feel, args=(1.0,))
    thread.start()
    thread.join()
    return watch._heart


def met(watch: Watch) -> Heart:
    """The same, as if torch were waiting for other processes."""
    names = {"__name__": "torch.distributed.distributed_c10d"}
    # The thread cannot be waited for in Python: that would be another place.
    exec("def meet(begin, gate):\n    begin()\n    gate.acquire()", names)
    gate = threading.Lock()
    gate.acquire()

    def feel() -> None:
        while watch_module._module(sys._current_frames()[threading.main_thread().ident]) == __name__:
            time.sleep(0.001)
        time.sleep(0.05)
        watch._feel(1.0)
        gate.release()

    names["meet"](threading.Thread(target=feel).start, gate)  # type: ignore[operator]
    return watch._heart


def test_who_waits_inside_of_torch_says_where(watch) -> None:
    first, second = met(watch), met(watch)
    assert first.place is not None and (first.seconds, second.seconds) == (0.0, 1.0)
    assert "in met (test_watch.py:" in second.at


def test_what_a_backward_pass_calls_is_work(watch) -> None:
    found: list[Heart] = []
    values = torch.ones(2, requires_grad=True)
    values.register_hook(lambda _: found.extend([felt(watch), felt(watch)]))
    values.sum().backward()
    assert [heart.place for heart in found] == [None, None]


def test_what_a_thread_of_torch_calls_is_work(watch) -> None:
    """As in a backward pass on a GPU, for which the main thread waits."""
    begun, gate = threading.Event(), threading.Event()
    _thread.start_new_thread(lambda: (begun.set(), gate.wait()), ())
    begun.wait()
    assert met(watch).place is None
    gate.set()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not say which thread sleeps")
def test_a_long_backward_pass_is_work_on_a_machine_that_gives_it_no_core(watch) -> None:
    """One call into torch; its share of a core counts for nothing here."""
    found: list[Heart] = []
    has_ended = threading.Event()

    def feel() -> None:
        while not has_ended.wait(0.02):
            watch._feel(1.0)
            found.append(watch._heart)

    thread = threading.Thread(target=feel)
    values = torch.ones(300, 300, requires_grad=True)
    thread.start()
    while len(found) <= 10:
        product = values
        for _ in range(150):
            product = product @ values / 300
        product.sum().backward()
    has_ended.set()
    thread.join()
    # A main thread that waits for Python's lock, which the watch holds, sleeps for a moment.
    assert max(heart.seconds for heart in found) < 5


def test_one_interrupt_does_not_make_a_standstill_of_a_wait(watch) -> None:
    watch._hear(bytes([signal.SIGINT]))
    for seconds in (100, 101, 180, 181):
        watch._heart = heart("agree", seconds, beat=seconds)
        for rank, one in enumerate((watch._heart, heart("gathered", seconds, beat=seconds))):
            watch._store.set(f"heart/{rank}", json.dumps(asdict(one)))
        watch._look()
        assert (watch.standstill is not None) == (seconds == 181)


def test_signals_are_heard_where_only_sockets_can_be_waited_for(monkeypatch) -> None:
    """Nor is there any fork, as on Windows."""
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    monkeypatch.delattr(os, "pipe")
    before = signal.signal(signal.SIGINT, lambda *_: None)
    ear = Ear()
    try:
        assert ear.heard(0) == b""
        signal.raise_signal(signal.SIGINT)
        assert ear.heard(60) == bytes([signal.SIGINT])
    finally:
        ear.close()
        signal.signal(signal.SIGINT, before)


def impatient(processes: Processes, seconds: float) -> None:
    assert processes.watch is not None
    processes.watch.patience = seconds


def _agree_and_gather(processes: Processes, _connection: Connection) -> None:
    impatient(processes, 1.5)
    if processes.rank == 0:
        processes.agree(1)
    processes.gathered(np.arange(1), 2)


def _network_and_agree(processes: Processes, _connection: Connection) -> None:
    """The first waits inside of torch, as for weights that lie in parts."""
    impatient(processes, 1.5)
    if processes.rank == 0:
        with processes.noticing():
            dist.barrier()
    processes.wait()


@pytest.mark.parametrize("work", [_agree_and_gather, pytest.param(_network_and_agree, marks=pytest.mark.slow)])
def test_processes_that_wait_for_each_other_end_and_say_where(work) -> None:
    group = Group(2, work)
    words = group.words()
    assert [kind for kind, _ in words] == ["Standstill"] * 2
    for _, told in words:
        assert "process 0 for" in told and "process 1 for" in told
        assert "in gathered" in told or "in agree" in told
    assert [process.exitcode for process in group.processes] == [7, 7]


def _one_works(processes: Processes, _connection: Connection) -> None:
    """Longer than the others have patience, once asleep as at a slow disk and once computing."""
    impatient(processes, 1)
    if processes.rank == 0:
        time.sleep(4)
    processes.wait()
    until = time.monotonic() + 3
    while processes.rank == 1 and time.monotonic() < until:
        torch.ones(64, 64, requires_grad=True).sum().backward()
    processes.wait()


@pytest.mark.slow
def test_a_process_that_works_is_waited_for() -> None:
    assert Group(2, _one_works).words() == [("ended", "")] * 2


def _each_waits_inside_of_torch(processes: Processes, connection: Connection) -> None:
    impatient(processes, 1.5)
    watch_module._SECONDS_AFTER_STANDSTILL = 1.0
    connection.send(("waits", ""))
    with processes.noticing():
        if processes.rank == 0:
            dist.recv(torch.zeros(1), src=1)
        dist.recv(torch.zeros(1), src=0)


@pytest.mark.slow
def test_processes_that_cannot_be_told_are_ended() -> None:
    group = Group(2, _each_waits_inside_of_torch)
    # One is ended by its watch, and the other may notice that by itself.
    assert {kind for kind, _ in group.words()} <= {"waits", "Standstill"}
    assert [process.exitcode for process in group.processes] == [7, 7]


def _interrupted(processes: Processes, connection: Connection) -> None:
    connection.send(("waits", ""))
    if processes.rank == 0:
        try:
            processes.wait()
        except KeyboardInterrupt:
            connection.send(("heard", ""))
            return
    time.sleep(600)


def test_a_signal_is_heard_in_a_wait_for_others() -> None:
    group = Group(2, _interrupted)
    assert group.connections[0].recv() == group.connections[1].recv() == ("waits", "")
    try:
        # By then it waits, with a signal or without.
        time.sleep(1)
        os.kill(group.processes[0].pid, signal.SIGINT)
        assert group.connections[0].poll(60)
        assert group.connections[0].recv() == ("heard", "")
    finally:
        for process in group.processes:
            process.kill()
            process.join()


def _interrupted_inside_of_torch(processes: Processes, connection: Connection) -> None:
    assert processes.watch is not None
    processes.watch._interruptions = Interruptions(0.2)
    connection.send(("waits", ""))
    dist.recv(torch.zeros(1), src=1 - processes.rank)


@pytest.mark.slow
def test_a_second_interrupt_ends_even_who_waits_inside_of_torch() -> None:
    group = Group(2, _interrupted_inside_of_torch)
    assert [connection.recv() for connection in group.connections] == [("waits", "")] * 2
    time.sleep(1)
    for pause in (0.6, 0.0):
        for process in group.processes:
            os.kill(process.pid, signal.SIGINT)
        time.sleep(pause)
    for process in group.processes:
        process.join(60)
        process.kill()
    assert [process.exitcode for process in group.processes] == [130, 130]
