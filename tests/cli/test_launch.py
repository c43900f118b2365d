"""Several processes from one command: what is started, who speaks, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.training.tiny_run import assert_same_run, events, losses

from vitrail.cli.launch import split_processes
from vitrail.errors import UsageError

VITRAIL = [sys.executable, "-m", "vitrail"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
FAR = 300


def environment() -> dict[str, str]:
    """That of a shell: nothing of a launch, one thread."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return {**kept, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def vitrail(*words: str, cwd: Path, program: list[str] = VITRAIL) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*program, *words], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=FAR, check=False
    )


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--data", "x"], (None, ["--data", "x"])),
        (["a", "--processes", "4", "--lr", "1"], (4, ["a", "--lr", "1"])),
        (["--processes=2"], (2, [])),
        (["--processes", "1", "--processes", "3"], (3, [])),
    ],
)
def test_the_number_of_processes_is_taken_out_of_the_words(words, found, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert split_processes(words) == found


@pytest.mark.parametrize("value", ["", "0", "-1", "two", "1.5", "99999", "²"])
def test_a_number_of_processes_that_is_none(value, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UsageError, match=r"--processes is .*; wanted a number from 1 to 1024"):
        split_processes(["--processes", value])


def test_processes_of_torchrun_start_no_others(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UsageError, match="torchrun has its --nproc-per-node"):
        split_processes(["--processes", "2"])


@pytest.mark.slow
def test_two_processes_train_and_one_speaks(tmp_path):
    done = vitrail("train", "vit-digits", "--steps", "4", "--name", "two", "--processes", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "2 processes with a copy of the network each, cpu, 1 thread" in done.stdout
    assert done.stdout.count("writes runs/two") == 1
    assert len(losses(tmp_path / "runs/two")) == 1


@pytest.mark.slow
def test_a_mistake_is_told_once(tmp_path):
    (tmp_path / "runs/two").mkdir(parents=True)
    (tmp_path / "runs/two/config.json").write_text("{}")
    again = vitrail("train", "vit-digits", "--name", "two", "--processes", "2", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr.splitlines() == [
        "error: runs/two: there is a run already. Go on with it (vitrail train --resume runs/two --processes 2), or "
        "choose another --name."
    ]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("list", "models"), ("data", "check", "digits")])
def test_other_commands_are_for_one_process(tmp_path, words):
    done = vitrail(*words, cwd=tmp_path, program=[*TORCHRUN, "-m", "vitrail"])
    assert done.returncode == 1
    told = f"error: `vitrail {words[0]}` was started in 2 processes; wanted one. Start it without torchrun."
    assert done.stderr.count(told) == 1
    assert done.stdout == ""


def log_of(folder: Path) -> list[dict]:
    """The records so far."""
    log = folder / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def children(process: int) -> list[int]:
    """Of a process, oldest first."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == process:
                found.append(int(entry.name))
    return sorted(found)


def started_far(words: list[str], folder: Path, cwd: Path, steps: int = 30) -> subprocess.Popen:
    """A run in its own session that has come at least so far."""
    process = subprocess.Popen(
        words, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    for _ in range(10 * FAR):
        if any(record["step"] >= steps for record in log_of(folder)):
            return process
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("it never came so far")


LONG = [
    "train",
    "vit-digits",
    "--epochs",
    "12",
    "--name",
    "run",
    "--train.log-every",
    "1",
    "--train.save-minutes",
    "0.02",
]


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_torchrun_restarts_a_run_that_lost_a_process_and_it_ends_as_if_nothing_had_happened(tmp_path, parallel):
    words = [*LONG, "--parallel", parallel]
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    for folder in (wanted, came):
        folder.mkdir()
    assert vitrail(*words, cwd=wanted, program=[*TORCHRUN, "-m", "vitrail"]).returncode == 0
    restarting = [*TORCHRUN, "--max-restarts", "1", "-m", "vitrail", *words]
    process = started_far(restarting, came / "runs/run", came)
    os.kill(children(process.pid)[1], signal.SIGKILL)
    killed = time.monotonic()
    said, told = process.communicate(timeout=FAR)
    assert process.returncode == 0, told
    assert "is gone. To go on: vitrail train --resume runs/run" in told
    resumed = events(came / "runs/run", "resumed")
    assert len(resumed) == 1
    assert "going on after step" in said
    assert time.monotonic() - killed < FAR
    assert_same_run(came / "runs/run", wanted / "runs/run")


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_the_others_end_soon_after_one_is_killed(tmp_path, parallel):
    words = [*VITRAIL, *LONG, "--parallel", parallel, "--processes", "2"]
    process = started_far(words, tmp_path / "runs/run", tmp_path)
    victim = children(process.pid)[1]
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    _, told = process.communicate(timeout=60)
    assert time.monotonic() - killed < 60
    assert process.returncode == 7
    assert f"process 1 (id {victim}) of 2 is gone. To go on: vitrail train --resume runs/run" in told
    assert f"Process 1 of 2 (id {victim}) was ended by SIGKILL" in told
    done = vitrail("train", "--resume", "runs/run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_launcher_saves_everything(tmp_path, number):
    process = started_far([*VITRAIL, *LONG, "--processes", "2"], tmp_path / "runs/run", tmp_path)
    if number == signal.SIGINT:
        # As a terminal sends it: to everyone.
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 75
    assert told.count("and everything is saved. To go on: vitrail train --resume runs/run --processes 2.") == 1
    again = vitrail(*LONG, "--or-resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "going on after step" in again.stdout


def processes_in(folder: Path) -> list[int]:
    """Those whose working folder it is, without any that have ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                is_ended = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                if not is_ended and (entry / "cwd").readlink() == folder:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def seconds_until_empty(folder: Path) -> float:
    began = time.monotonic()
    while processes_in(folder) and time.monotonic() - began < 60:
        time.sleep(0.05)
    left = processes_in(folder)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_launcher_that_is_killed_leaves_nobody(tmp_path, parallel):
    words = [*VITRAIL, *LONG, "--parallel", parallel, "--processes", "2", "--workers", "1"]
    process = started_far(words, tmp_path / "runs/run", tmp_path)
    assert len(processes_in(tmp_path.resolve())) == 5
    process.kill()
    assert seconds_until_empty(tmp_path.resolve()) < 30
    _, told = process.communicate(timeout=60)
    assert "and everything is saved" in told
    done = vitrail("train", "--resume", "runs/run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_second_interrupt_of_the_launcher_ends_all_at_once(tmp_path):
    """One process is stopped, so that the other can only wait for it."""
    process = started_far([*VITRAIL, *LONG, "--processes", "2"], tmp_path / "runs/run", tmp_path)
    first, second = children(process.pid)
    os.kill(second, signal.SIGSTOP)
    try:
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=5) == 130
        for _ in range(50):
            time.sleep(0.1)
            if first not in processes_in(tmp_path.resolve()):
                break
        assert processes_in(tmp_path.resolve()) == [second]
    finally:
        os.kill(second, signal.SIGCONT)
        assert seconds_until_empty(tmp_path.resolve()) < 30
    process.communicate(timeout=60)


@pytest.mark.slow
def test_torchrun_restarts_a_fine_tuning_in_the_middle_of_its_second_run(tmp_path):
    assert vitrail("train", "vit-digits", "--steps", "4", "--name", "base", cwd=tmp_path).returncode == 0
    words = [
        "finetune",
        "runs/base",
        "--data",
        "digits",
        "--rates",
        "0.01",
        "0.003",
        "--steps",
        "120",
        "--name",
        "tuned",
    ]
    steps = ["--train.log-every", "1"]
    process = started_far(
        [*TORCHRUN, "--max-restarts", "1", "-m", "vitrail", *words, *steps],
        tmp_path / "runs/tuned/sweep/lr-0.003",
        tmp_path,
    )
    os.kill(children(process.pid)[1], signal.SIGKILL)
    said, told = process.communicate(timeout=FAR)
    assert process.returncode == 0, told
    assert "is gone. To go on: vitrail finetune --resume runs/tuned" in told
    assert "run 2 of 3: learning rate 0.003, going on after step" in said
    assert len(events(tmp_path / "runs/tuned/sweep/lr-0.01", "resumed")) == 0
    assert len(events(tmp_path / "runs/tuned/sweep/lr-0.003", "resumed")) == 1
    assert json.loads((tmp_path / "runs/tuned/result.json").read_text())
