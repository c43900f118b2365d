"""A disk that is full or cannot be written: exit code 5, and the last checkpoint is intact (fault row 17)."""

import ctypes
import errno
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from tests.training.tiny_run import PROCESSES, assert_same_run, config, last_word, resumed, started, trained

from vitrail.config import RunConfig
from vitrail.errors import DiskError, Notice, VitrailError
from vitrail.training import checkpoint as checkpoints
from vitrail.training import run as running
from vitrail.training.events import Stepped
from vitrail.training.log import Log
from vitrail.weights import safetensors_file

NEW_MOUNTS = 0x00020000


def train_on_small_disk(connection: Connection, folder: Path, settings: RunConfig, kilobytes: int) -> None:
    """Train in a folder that is a disk of its own, which ends with this process; tell how it went and what is left."""
    torch.set_num_threads(1)
    folder.mkdir()
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNTS):
        connection.send(("may not", ""))
        return
    private = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True).returncode
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if private or subprocess.run(mount, capture_output=True).returncode:
        connection.send(("may not", ""))
        return
    word, code = ("ended", ""), 0
    try:
        trained(started(settings, folder), folder)
    except VitrailError as error:
        word, code = (type(error).__name__, str(error)), error.exit_code
    except BaseException as error:
        word, code = (type(error).__name__, str(error)), 1
    left = checkpoints.listed(folder / "checkpoints")
    whole = checkpoints.newest(folder / "checkpoints").state["step"] if left else -1
    connection.send((f"{word[0]} {code} {whole}", word[1]))


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs to mount a small disk")
@pytest.mark.parametrize("kilobytes", [400, 900, 1000, 3000])
def test_small_disks(kilobytes, images, tmp_path):
    kind, code, step, message = on_small_disk(kilobytes, images, tmp_path)
    if kind == "ended":
        assert kilobytes > 1000
        return
    assert (kind, code) == ("DiskError", "5"), message
    assert str(tmp_path / "disk") in message
    if kilobytes == 400:
        assert "for two checkpoints" in message
        assert step == "-1"
    elif "for two checkpoints" not in message:
        assert "No space left on device" in message


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs to mount a small disk")
def test_a_disk_that_passes_the_check_is_large_enough(images, tmp_path):
    kind, _, step, message = on_small_disk(900, images, tmp_path)
    assert kind == "ended" or step == "-1", message


def on_small_disk(kilobytes: int, images: Path, tmp_path: Path) -> tuple[str, str, str, str]:
    here, there = PROCESSES.Pipe()
    settings = config(images, average=0.9, save_minutes=1e-9)
    process = PROCESSES.Process(target=train_on_small_disk, args=(there, tmp_path / "disk", settings, kilobytes))
    process.start()
    there.close()
    word, message = last_word(process, here)
    if word == "may not":
        pytest.skip("may not mount here")
    kind, code, step = word.split()
    return kind, code, step, message


def test_space_is_checked_up_front(images, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda _path: usage(10**9, 10**9, 1000))
    with pytest.raises(DiskError, match=r"0\.0 MB are free; wanted .* MB for two checkpoints") as caught:
        started(config(images), tmp_path / "run")
    assert caught.value.exit_code == 5
    assert not (tmp_path / "run" / "config.json").exists()


def full(*_arguments, **_names):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_for_safetensors(*_arguments, **_names):
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def fails_from_step_8(failing: Callable[[pytest.MonkeyPatch], None], images: Path, tmp_path: Path) -> None:
    """Let something fail in the second epoch: the run ends with a DiskError and goes on exactly from the first."""
    settings = config(images, average=0.9)
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    trained(started(settings, wanted), wanted)
    told = pytest.warns(Notice, match="The last checkpoint is whole. Once there is space: vitrail train --resume")
    with told, pytest.MonkeyPatch.context() as patch, pytest.raises(DiskError) as caught:
        trained(
            started(settings, came),
            came,
            lambda event: failing(patch) if event == Stepped(step=8) else None,
        )
    assert caught.value.exit_code == 5
    assert str(came) in str(caught.value)
    session = resumed(came)
    assert session.progress.step == 6
    trained(session, came)
    assert_same_run(came, wanted)


@pytest.mark.parametrize(
    ("owner", "name", "failing"),
    [
        (os, "fsync", full),
        (safetensors_file, "save_file", full_for_safetensors),
        (Path, "write_text", full),
        (Path, "replace", full),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_disk_that_fills_up(owner, name, failing, images, tmp_path):
    fails_from_step_8(lambda patch: patch.setattr(owner, name, failing), images, tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_log_that_cannot_be_written(images, tmp_path):
    """The log of the run becomes a file that is always full."""
    logs: list[Log] = []

    def fill(_patch) -> None:
        logs[-1].close()
        logs[-1]._file = Path("/dev/full").open("a", encoding="utf-8")  # noqa: SIM115

    class Watched(Log):
        def __init__(self, *arguments, **named) -> None:
            super().__init__(*arguments, **named)
            logs.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "Log", Watched)
        fails_from_step_8(fill, images, tmp_path)


def test_a_folder_that_cannot_be_made(images, tmp_path):
    """As where others own the place; a file is in the way of root as well."""
    (tmp_path / "taken").touch()
    with pytest.raises(DiskError, match="could not be written") as caught:
        started(config(images), tmp_path / "taken" / "run")
    assert caught.value.exit_code == 5


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(images, tmp_path):
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(DiskError) as caught:
            started(config(images), tmp_path / "run")
        assert caught.value.exit_code == 5
    finally:
        tmp_path.chmod(0o755)
