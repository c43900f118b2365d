"""A lock is held by one process, and by no dead one."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vitrail.errors import DiskError, Notice, UsageError
from vitrail.runtime import lock
from vitrail.runtime.lock import MovedFolder, is_held, only_one, watched


def test_the_second_is_told(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with (
        only_one(path, busy="it is being written"),
        pytest.raises(UsageError, match="it is being written"),
        only_one(path, busy="it is being written"),
    ):
        pass
    assert not path.exists()
    with only_one(path, busy="again"):
        assert path.exists()


def test_an_error_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ValueError, match="stop"), only_one(path, busy="busy"):
        raise ValueError("stop")
    with only_one(path, busy="busy"):
        pass


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = (
        "import os, sys; from pathlib import Path; from vitrail.runtime.lock import only_one\n"
        "only_one(Path(sys.argv[1]), busy='busy').__enter__(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=60)
    with only_one(path, busy="busy"):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_lock_that_its_holder_removed_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = tmp_path / "lock", os.open

    def open_and_lose(*words: object) -> int:
        handle = opened(*words)  # type: ignore[arg-type]
        path.unlink()
        return handle

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_and_lose)
        with pytest.raises(UsageError, match="busy"), only_one(path, busy="busy"):
            pass
    with only_one(path, busy="busy"):
        pass


def test_who_only_looks_neither_waits_nor_writes(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    with only_one(path, busy="busy"):
        assert is_held(path)
        # Another process sees it, too, and does not let go of it.
        look = (
            "import sys, pathlib; from vitrail.runtime.lock import is_held; print(is_held(pathlib.Path(sys.argv[1])))"
        )
        seen = subprocess.run([sys.executable, "-c", look, str(path)], capture_output=True, text=True, check=True)
        assert seen.stdout == "True\n"
    assert not is_held(path)
    path.touch()
    assert not is_held(path)


def test_a_folder_that_cannot_be_looked_at_for_a_moment_was_not_removed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(lock, "_PAUSES", (0.0, 0.0))
    look, fails = Path.stat, []

    def failing(path: Path, **options: bool) -> os.stat_result:
        if path == tmp_path / "run" and fails:
            raise OSError(fails.pop(), "no answer")
        return look(path, **options)

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(Path, "stat", failing)
    with watched(tmp_path / "run") as hold:
        for code in (errno.EIO, errno.ESTALE):
            fails[:] = [code] * 2
            hold.ensure_in_place()
        fails[:] = [errno.EIO] * 3
        with pytest.raises(DiskError, match="no answer") as caught:
            hold.ensure_in_place()
        assert not isinstance(caught.value, MovedFolder)
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(MovedFolder, match="removed"):
            hold.ensure_in_place()


def test_a_disk_that_cannot_lock_is_not_a_process_at_work(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_words: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "lockf", refuse)
    with pytest.raises(DiskError, match="No locks available"), only_one(tmp_path / "lock", busy="busy"):
        pass


def test_where_there_are_no_locks_a_person_is_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vitrail.runtime.lock.fcntl", None)
    with pytest.warns(Notice, match="locks"), only_one(tmp_path / "lock", busy="held"):
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()
