"""What the processes of a run tell each other: agreements, answers, errors, and that one of them is gone."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training.several import Group
from tests.training.tiny_run import start_own_forkserver
from torch.distributed import HashStore, Store

from vitrail.errors import DataError, UsageError
from vitrail.runtime import processes as processes_module
from vitrail.runtime.processes import ALONE, LostProcess, Processes, joined, meeting, own_device

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def _own_forkserver() -> None:
    """One that has loaded torch, so that a process starts at once."""
    start_own_forkserver()


def said(group: Group) -> list:
    """The first word of each process; all must then end well."""
    words = [connection.recv() for connection in group.connections]
    assert group.words() == [("ended", "")] * len(words)
    return words


def _talk(processes: Processes, connection: Connection) -> None:
    rank, ranks = processes.rank, processes.ranks
    told = {"name": "한글", "numbers": [1, 2.5, None]}
    rows = np.arange(10)[rank::ranks]
    connection.send(
        {
            "agreed": processes.agree(rank, -rank, rank == 1),
            "told": processes.told(told if rank == 0 else "nonsense"),
            "says": processes.first_says(lambda: rank),
            "gathered": processes.gathered(rows, 10).tolist(),
            "tables": processes.gathered(np.stack([rows, rows * rows], axis=1) > 3, 10).tolist(),
            "turns": processes.in_turn(lambda: rank),
            "local": processes.local_ranks,
        }
    )


def test_three_processes_agree_and_tell_and_gather():
    words = said(Group(3, _talk))
    everything = np.arange(10)
    for rank, word in enumerate(words):
        assert word == {
            "agreed": [2.0, 0.0, 1.0],
            "told": {"name": "한글", "numbers": [1, 2.5, None]},
            "says": 0,
            "gathered": everything.tolist(),
            "tables": (np.stack([everything, everything**2], axis=1) > 3).tolist(),
            "turns": rank,
            "local": 3,
        }


def test_one_process_alone_needs_no_others():
    assert ALONE.agree(1.5, False) == [1.5, False]
    assert ALONE.told("word") == "word"
    assert ALONE.first_says(lambda: 3) == 3
    assert ALONE.in_turn(lambda: 4) == 4
    assert ALONE.is_first
    ALONE.wait()


@given(st.integers(1, 40), st.integers(1, 8))
def test_what_is_dealt_out_is_put_together_again(length, ranks):
    """The arithmetic of `gathered`, without processes."""
    parts = [np.arange(length)[rank::ranks] for rank in range(ranks)]
    share = -(-length // ranks)
    padded = np.stack([np.pad(part, (0, share - len(part)), constant_values=-1) for part in parts], axis=1)
    assert padded.reshape(-1)[:length].tolist() == list(range(length))


def _first_fails(processes: Processes, _connection: Connection) -> None:
    def make() -> None:
        raise DataError("the file is bad")

    processes.first_says(make)


def _second_fails(processes: Processes, _connection: Connection) -> None:
    with processes.together():
        if processes.rank == 1:
            raise UsageError("only here")


def _others_turn_fails(processes: Processes, _connection: Connection) -> None:
    def make() -> None:
        if processes.rank:
            raise DataError(f"of {processes.rank}")

    processes.in_turn(make)


@pytest.mark.parametrize(
    ("work", "words", "code"),
    [
        (_first_fails, ["DataError", "Elsewhere", "Elsewhere"], 3),
        (_second_fails, ["Elsewhere", "UsageError", "Elsewhere"], 2),
        (_others_turn_fails, ["Elsewhere", "DataError", "Elsewhere"], 3),
    ],
)
def test_an_error_of_one_ends_all_and_is_told_once(work, words, code):
    group = Group(3, work)
    assert [kind for kind, _ in group.words()] == words
    assert [process.exitcode for process in group.processes] == [code] * 3


def _last_dies(processes: Processes, _connection: Connection) -> None:
    if processes.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    processes.wait()


def test_a_process_that_dies_is_named_by_the_others():
    group = Group(3, _last_dies)
    words = group.words()
    for kind, told in words[:2]:
        # One that noticed it may have ended before the other looks.
        assert kind == "LostProcess"
        assert f"2 (id {group.processes[2].pid}) of 3 " in told
    assert [process.exitcode for process in group.processes] == [7, 7, -signal.SIGKILL]


def met(store: Store, ranks: int, late: int | None = None) -> list[str]:
    """What each of some threads calls the meeting; one may come late."""

    def meet(rank: int) -> str:
        if rank == late:
            time.sleep(0.3)
        return meeting(store, rank, ranks)

    with ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(meet, range(ranks)))


def test_processes_that_start_again_do_not_meet_those_before_them():
    """torchrun keeps its store over a restart: words and answers of processes that are gone are still there."""
    store = HashStore()
    names = [met(store, 3), met(store, 3, late=0), met(store, 3, late=2)]
    # The next launch is killed before its last process came.
    store.set("word/0", "gone")
    store.set("words", "gone gone - -")
    names += [met(store, 3, late=1), met(store, 2), met(store, 1)]
    assert [len(set(group)) for group in names] == [1] * 6
    assert len({group[0] for group in names}) == 6


def test_processes_that_never_come_are_not_waited_for_for_ever():
    with pytest.raises(LostProcess, match="the 2 processes did not find each other"):
        meeting(HashStore(), 0, 2, patience=timedelta(seconds=0.2))


def test_errors_that_are_no_loss_stay_what_they_are(monkeypatch):
    monkeypatch.setattr(processes_module, "_SECONDS_TO_VANISH", 0.0)
    several = Processes(rank=0, ranks=2, control=object(), places=(("here", 1), ("there", 2)))
    assert several.lost(ValueError("Connection closed by peer")) is None
    assert several.lost(RuntimeError("shapes do not match")) is None
    assert ALONE.lost(RuntimeError("Connection closed by peer")) is None
    assert several.lost(torch.OutOfMemoryError("nccl: CUDA out of memory")) is None
    silent = several.lost(RuntimeError("[gloo] Timed out waiting 1800000ms for recv operation"))
    assert str(silent) == "one of the 2 processes did not answer in time."
    told = several.lost(RuntimeError("[gloo] Connection closed by peer [127.0.0.1]"))
    assert str(told) == "one of the 2 processes is gone."


def test_variables_of_a_launch_that_are_not_complete(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    told = r"RANK is set and MASTER_ADDR is not\. Start with torchrun, or unset RANK"
    with pytest.raises(UsageError, match=told), joined(CPU):
        pass


def test_every_process_has_its_own_gpu(monkeypatch):
    assert own_device(CPU) == CPU
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device(torch.device("cuda")) == torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="2 processes were started on a machine with 1 GPU; wanted a GPU for each"):
        own_device(torch.device("cuda"))
