"""Worker processes: the order is kept, and one that dies, hangs or has no memory to share is named within seconds."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.loading.tiny import left_running

from vitrail.data.loading import workers as workers_module
from vitrail.data.loading.prefetch import prefetched
from vitrail.data.loading.workers import WorkerError, in_workers
from vitrail.errors import DataError, UsageError

CPU = torch.device("cpu")
# How long a worker hangs, and how long an answer may take where it is not about that: ten times what is waited here.
HANG = 600.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for dead workers more often than every five seconds."""
    monkeypatch.setattr(workers_module, "_POLL_SECONDS", 0.3)


@dataclass(frozen=True)
class Made:
    """What a worker might hand over."""

    number: int
    process: int
    tensor: torch.Tensor
    parts: list[torch.Tensor]


def made(number: int) -> Made:
    # Later ones are ready sooner.
    time.sleep(0.02 * (3 - number % 4))
    return Made(number, os.getpid(), torch.full((3, 2), number), [torch.tensor([number])])


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
def test_what_is_asked_is_made_in_that_order(workers):
    requests = [5, 0, 7, 3, 3, 9, 1, 11]
    found = list(in_workers(made, lambda: requests, workers=workers))
    assert [item.number for item in found] == requests
    assert [item.tensor.tolist() for item in found] == [[[number] * 2] * 3 for number in requests]
    assert [item.parts[0].item() for item in found] == requests
    processes = {item.process for item in found}
    assert len(processes) == max(workers, 1)
    assert (os.getpid() in processes) == (workers == 0)
    assert left_running() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_requests_without_end(workers):
    endless = in_workers(made, lambda: count(), workers=workers)
    assert [item.number for item in islice(endless, 6)] == list(range(6))
    endless.close()
    assert left_running() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_to_do(workers):
    assert list(in_workers(made, list, workers=workers)) == []


def failure(make: Callable[[int], Any], requests: Iterable[int] = range(8), timeout: float = HANG) -> Exception:
    """The error of two workers in a thread, as batches are made; it comes soon, and nothing is left running."""
    is_over = threading.Event()

    def end() -> None:
        # Else a fault would be waited for as long as it lasts, and a frozen worker for ever.
        if not is_over.wait(HANG / 10):
            for process in multiprocessing.active_children():
                process.kill()

    def work() -> Iterator[Any]:
        return in_workers(make, lambda: requests, workers=2, timeout=timeout)

    guard = threading.Thread(target=end)
    guard.start()
    began = time.monotonic()
    with pytest.raises(Exception) as caught:
        list(prefetched(work, CPU))
    is_over.set()
    guard.join()
    assert time.monotonic() - began < HANG / 10
    # While the error is held, and its traceback with it.
    assert left_running() == []
    return caught.value


def killed(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_worker_that_is_killed():
    error = failure(killed)
    assert isinstance(error, WorkerError)
    assert str(error).startswith("a data worker was killed by the system (SIGKILL), as it does when memory runs out.")
    assert "data.workers=0" in str(error)
    assert error.exit_code == 3


def test_a_worker_that_is_killed_when_there_is_no_thread_between():
    with pytest.raises(WorkerError, match=r"killed by the system \(SIGKILL\).*data\.workers=0"):
        list(in_workers(killed, lambda: range(8), workers=2))
    assert left_running() == []


def die_soon() -> None:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_while_it_hands_over(monkeypatch):
    """The connection breaks first, and the end of the process is known after that."""
    monkeypatch.setattr(workers_module, "_POLL_SECONDS", 30.0)
    process = multiprocessing.Process(target=die_soon)
    process.start()
    error = workers_module._named(ConnectionResetError(104, "Connection reset by peer"), {process}, 1)
    assert "killed by the system (SIGKILL)" in str(error)


def test_a_worker_whose_code_crashes():
    def crash(number: int) -> int:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
        return number

    error = failure(crash)
    assert isinstance(error, WorkerError)
    assert str(error).startswith("a data worker died (signal 11, Segmentation fault). Run with data.workers=0")


@pytest.mark.parametrize("code", [0, 3])
def test_a_worker_that_leaves(code):
    error = failure(lambda _number: os._exit(code))
    assert isinstance(error, WorkerError)
    assert str(error).startswith(f"a data worker died (exit code {code}). Run with data.workers=0")


def test_a_worker_that_hangs():
    def hang(number: int) -> int:
        if number == 3:
            time.sleep(HANG)
        return number

    error = failure(hang, timeout=1)
    assert isinstance(error, WorkerError)
    assert str(error) == (
        "no data worker answered for 1 seconds. Run with data.workers=0 to see what it says in this process."
    )


def test_a_worker_that_is_frozen():
    def freeze(number: int) -> torch.Tensor:
        if number == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.full((100,), number)

    error = failure(freeze, timeout=1)
    assert isinstance(error, WorkerError)
    assert str(error).startswith("no data worker answered for 1 seconds.")


def test_a_worker_that_freezes_while_it_hands_over():
    def freeze(number: int) -> torch.Tensor:
        if number == 2:
            # After the answer is in the pipe and before the file behind it is asked for.
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGSTOP)).start()
        return torch.full((100,), number)

    items = in_workers(freeze, lambda: range(50), workers=1, timeout=1)
    assert int(next(items)[0]) == 0
    time.sleep(0.5)
    with pytest.raises(WorkerError, match="no data worker answered"):
        list(items)


def test_weights_do_not_depend_on_the_workers():
    def drawn(workers: int) -> float:
        torch.manual_seed(0)
        list(in_workers(abs, lambda: range(4), workers=workers))
        return torch.rand(1).item()

    assert drawn(0) == drawn(1) == drawn(2)


def test_slow_is_not_dead():
    def slow(number: int) -> int:
        time.sleep(0.6)
        return number

    # Longer in all than the time for one answer.
    assert list(in_workers(slow, lambda: range(3), workers=1, timeout=1.5)) == [0, 1, 2]


def test_a_consumer_may_take_its_time():
    items = in_workers(abs, lambda: range(20), workers=1, timeout=1)
    assert next(items) == 0
    time.sleep(1.1)
    assert list(items) == list(range(1, 20))


@pytest.mark.parametrize(
    "words",
    [
        "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)",
        "DataLoader worker (pid 7) is killed by signal: Bus error.",
        "unable to write to file </torch_1_2_3>: No space left on device (28)",
    ],
)
def test_words_that_mean_there_is_no_shared_memory(words):
    def say(_number: int) -> None:
        raise RuntimeError(words)

    error = failure(say)
    assert isinstance(error, WorkerError)
    assert "shared memory (/dev/shm) is full" in str(error)
    assert "--shm-size" in str(error)
    assert "data.workers=0" in str(error)


def test_a_bus_error():
    def fault(_number: int) -> None:
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGBUS)

    assert "shared memory (/dev/shm) is full" in str(failure(fault))


SMALL = """
import torch
from vitrail.data.loading.prefetch import prefetched
from vitrail.data.loading.workers import in_workers

def make(number):
    return torch.ones(4, 1000, 1000, dtype=torch.uint8)

try:
    list(prefetched(lambda: in_workers(make, lambda: range(8), workers=2), torch.device("cpu")))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("unshare"), reason="needs a /dev/shm of its own")
def test_shared_memory_that_is_full(tmp_path):
    (tmp_path / "small.py").write_text(SMALL)
    apart = ["unshare", "--mount", "--map-root-user"] if os.getuid() else ["unshare", "--mount"]
    mount = "mount -t tmpfs -o size=2m tmpfs /dev/shm"
    if subprocess.run([*apart, "sh", "-c", mount], capture_output=True, timeout=20).returncode:
        pytest.skip("may not mount here")
    script = f'{mount} && exec "$0" "$1"'
    began = time.monotonic()
    done = subprocess.run(
        [*apart, "sh", "-c", script, sys.executable, str(tmp_path / "small.py")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path.cwd(),
    )
    assert done.stdout.startswith("WorkerError shared memory (/dev/shm) is full, so a data worker could not hand")
    assert done.stderr == ""
    assert time.monotonic() - began < 40


@pytest.mark.parametrize("kind", [DataError, UsageError])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_mistake_of_the_user_arrives_as_it_is(kind, workers):
    def refuse(number: int) -> int:
        if number == 2:
            raise kind("it is wrong", wanted="right", where="a.jpg", fix="Mend it.")
        return number

    seen = []
    with pytest.raises(kind) as caught:
        for item in in_workers(refuse, lambda: range(8), workers=workers):
            seen.append(item)
    assert str(caught.value) == "a.jpg: it is wrong; wanted right. Mend it."
    assert seen == [0, 1]
    assert left_running() == []


def test_a_fault_of_ours_keeps_its_kind_and_says_where():
    def wrong(number: int) -> float:
        return {}[number]

    error = failure(wrong)
    assert isinstance(error, KeyError)
    assert "in wrong" in str(error)


def test_an_error_that_speaks_of_time_is_not_waited_for():
    def late(number: int) -> int:
        if number == 1:
            raise TimeoutError("the read timed out")
        return number

    seen = []
    with pytest.raises(TimeoutError, match="the read timed out"):
        for item in in_workers(late, lambda: range(4), workers=1):
            seen.append(item)
    assert seen == [0]
