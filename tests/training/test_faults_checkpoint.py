"""Kills and damage around a checkpoint: a whole one is always there, and is found (fault rows 16 and 18)."""

import functools
import json
import os
import shutil
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from tests.training.tiny_run import (
    PROCESSES,
    assert_same_run,
    config,
    fingerprint,
    in_process,
    last_word,
    resumed,
    started,
    trained,
)

from vitrail.errors import DataError, Notice
from vitrail.training import checkpoint as checkpoints
from vitrail.training import run as running
from vitrail.training.log import Watcher
from vitrail.training.session import Session
from vitrail.weights import safetensors_file

CALLS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "shutil.rmtree"}


def kill_at_call(number: int, folder: Path) -> None:
    """SIGKILL to this process before its n-th call that touches files below a folder, and in the midst of a write."""
    count = 0

    def call() -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(event: str, arguments: tuple) -> None:
        if event in CALLS and str(arguments[0]).startswith(str(folder)):
            call()

    sync, save_file = os.fsync, safetensors_file.save_file

    def heard_sync(handle: int) -> None:
        call()
        sync(handle)

    def cut_save(tensors, path, metadata) -> None:
        save_file(tensors, path, metadata)
        whole = Path(path).read_bytes()
        Path(path).write_bytes(whole[: len(whole) // 2])
        call()
        Path(path).write_bytes(whole)

    os.fsync, safetensors_file.save_file = heard_sync, cut_save
    sys.addaudithook(hear)


def save_marked(folder: Path, step: int, mark: float) -> None:
    tensors = {"model": {"weight": torch.full((100,), mark)}, "optimizer": {"moment": torch.full((100,), -mark)}}
    checkpoints.save(folder, step, tensors, {"mark": mark})


def save_until_killed(folder: Path, steps: list[int], number: int) -> None:
    *before, last = enumerate(steps)
    for mark, step in before:
        save_marked(folder, step, mark)
    kill_at_call(number, folder)
    save_marked(folder, last[1], last[0])


def is_whole(path: Path) -> bool:
    try:
        checkpoints.verify(path)
    except DataError:
        return False
    return True


def kill_at_every_call(folder: Path, steps: list[int]) -> list[Path]:
    """Kill the last of some saves before each of its calls in turn; the folders that are left."""
    left = []
    for number in range(1, 1000):
        place = folder / str(number)
        place.mkdir()
        process = PROCESSES.Process(target=save_until_killed, args=(place, steps, number))
        process.start()
        process.join(60)
        if process.exitcode == 0:
            return left
        left.append(place)
        assert process.exitcode == -signal.SIGKILL
    raise AssertionError("it never ended")


def check_found(folder: Path, saved: int) -> None:
    whole = [path for path in checkpoints.listed(folder) if is_whole(path)]
    assert len(whole) >= 2
    found = checkpoints.newest(folder)
    assert found.state["mark"] in (saved - 1, saved)
    assert found.tensors["model"]["weight"].eq(found.state["mark"]).all()
    assert found.tensors["optimizer"]["moment"].eq(-found.state["mark"]).all()


def check_clean(folder: Path) -> None:
    checkpoints.clean(folder, checkpoints.newest(folder).path)
    left = {path.name for path in folder.iterdir()}
    assert left - {path.name for path in checkpoints.listed(folder)} <= {"last"}


@pytest.fixture(scope="module")
def killed_saves(tmp_path_factory) -> list[Path]:
    return kill_at_every_call(tmp_path_factory.mktemp("saves"), [1, 2, 3])


def test_a_kill_at_every_call_of_a_save(killed_saves):
    assert len(killed_saves) > 20
    for folder in killed_saves:
        check_found(folder, saved=2)


def test_what_a_kill_left_is_cleaned_up(killed_saves):
    for folder in killed_saves:
        check_clean(folder)


@pytest.mark.slow
def test_a_kill_at_every_call_of_a_save_that_repeats_a_step(tmp_path):
    """As after a rollback or a second stop."""
    for folder in kill_at_every_call(tmp_path, [5, 5, 5, 5]):
        check_found(folder, saved=3)


def kill_in_run(session: Session, connection: Connection, number: int, folder: Path, from_finish: bool) -> Watcher:
    if from_finish:
        finish = running.finish

        def finish_and_be_killed(*arguments):
            kill_at_call(number, folder)
            return finish(*arguments)

        running.finish = finish_and_be_killed  # type: ignore[assignment]
    else:
        kill_at_call(number, folder)
    return lambda _event: None


def kill_run_at_every_call(images: Path, tmp_path: Path, from_finish: bool) -> int:
    settings = config(images, steps=1 if from_finish else 2, save_minutes=1e-9)
    wanted = tmp_path / "unbroken"
    trained(started(settings, wanted), wanted)
    lost = []
    for number in range(1, 1000):
        folder = tmp_path / str(number)
        setup = functools.partial(kill_in_run, number=number, folder=folder, from_finish=from_finish)
        process, connection = in_process(folder, settings, setup)
        last_word(process, connection)
        if process.exitcode == 0:
            assert not lost, "\n".join(f"call {call}: {why}" for call, why in lost)
            return number - 1
        assert process.exitcode == -signal.SIGKILL
        try:
            trained(resumed(folder), folder)
            assert_same_run(folder, wanted)
        except Exception as error:
            lost.append((number, repr(error)[:200]))
        shutil.rmtree(folder)
    raise AssertionError("it never ended")


@pytest.mark.slow
def test_a_kill_at_every_call_while_the_finished_model_is_measured(images, tmp_path):
    assert kill_run_at_every_call(images, tmp_path, from_finish=True) > 10


@pytest.mark.slow
def test_a_kill_at_every_call_of_a_whole_run(images, tmp_path):
    assert kill_run_at_every_call(images, tmp_path, from_finish=False) > 100


@pytest.fixture(scope="module")
def two_checkpoints(shared_images, tmp_path_factory) -> Path:
    """A finished run of two epochs: checkpoints of both."""
    folder = tmp_path_factory.mktemp("two") / "run"
    trained(started(config(shared_images, average=0.9), folder), folder)
    assert [path.name for path in checkpoints.listed(folder / "checkpoints")] == ["step-000000006", "step-000000011"]
    return folder


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path, place: float = 0.6, bit: int = 4) -> None:
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= bit
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, empty, flip, Path.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "average.safetensors", "state.json"])
def test_damage_is_told_and_the_checkpoint_before_is_used(name, damage, two_checkpoints, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(two_checkpoints, folder)
    wanted = fingerprint(folder)
    damage(folder / "checkpoints" / "step-000000011" / name)
    with pytest.warns(Notice, match=rf"step-000000011.*{name}.* Going back to the checkpoint before it"):
        session = resumed(folder)
    assert session.progress.step == 6
    trained(session, folder)
    assert (folder / "checkpoints" / "damaged-step-000000011").is_dir()
    assert fingerprint(folder) == wanted


def test_every_flipped_bit_of_the_state_is_noticed(two_checkpoints, tmp_path):
    path = tmp_path / "step-000000011"
    shutil.copytree(two_checkpoints / "checkpoints" / path.name, path)
    state = (path / "state.json").read_bytes()
    unnoticed = []
    for place in range(0, len(state), 7):
        for bit in (1, 4):
            flipped = state[:place] + bytes([state[place] ^ bit]) + state[place + 1 :]
            (path / "state.json").write_bytes(flipped)
            # The last digit of a long fraction may be another and the number the same.
            if is_whole(path) and json.loads(flipped) != json.loads(state):
                unnoticed.append(place)
    assert not unnoticed


def test_nothing_whole_is_left(two_checkpoints, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(two_checkpoints, folder)
    for path in checkpoints.listed(folder / "checkpoints"):
        flip(path / "model.safetensors")
    with pytest.warns(Notice), pytest.raises(DataError, match="none of its checkpoints can be read"):
        resumed(folder)
