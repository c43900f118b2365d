import errno
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from vitrail.errors import DiskError
from vitrail.runtime.atomic import atomic_file, atomic_folder, recover

# No process has such a number.
DEAD = 2**30


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder by name, hidden ones too; an empty folder counts as ''."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else ""
        for path in folder.rglob("*")
        if path.is_file() or not any(path.iterdir())
    }


def fill_the_disk(monkeypatch: pytest.MonkeyPatch, code: int = errno.ENOSPC) -> None:
    def refuse(_handle: int) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)


def test_a_file_appears_when_it_is_whole(tmp_path: Path):
    target = tmp_path / "weights.npz"
    with atomic_file(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".npz"
    assert contents(tmp_path) == {"weights.npz": "new"}


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path):
    target = tmp_path / "weights.npz"
    target.write_text("old")
    with atomic_file(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert contents(tmp_path) == {"weights.npz": "new"}


def test_missing_folders_are_made_for_a_file(tmp_path: Path):
    with atomic_file(tmp_path / "a" / "b" / "file") as temporary:
        temporary.write_text("new")
    assert contents(tmp_path) == {"a/b/file": "new"}


def test_a_file_with_a_long_name(tmp_path: Path):
    target = tmp_path / ("x" * 240 + ".npz")
    with atomic_file(target) as temporary:
        temporary.write_text("new")
    assert contents(tmp_path) == {target.name: "new"}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file(tmp_path: Path, error: type[BaseException]):
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(error), atomic_file(target) as temporary:
        temporary.write_text("half")
        raise error
    assert contents(tmp_path) == {"file": "old"}


def test_a_failure_leaves_no_file_where_none_was(tmp_path: Path):
    with pytest.raises(ValueError, match="broken"), atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("half")
        raise ValueError("broken")
    assert contents(tmp_path) == {}


def test_results_have_the_usual_permissions_not_those_of_temporary_files(tmp_path: Path):
    before = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "file") as temporary:
            temporary.write_text("new")
        with atomic_folder(tmp_path / "folder") as temporary:
            (temporary / "file").write_text("new")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "folder/file").stat().st_mode & 0o777 == 0o640


def test_files_in_a_folder_that_were_made_for_their_owner_alone_can_be_read_by_others(tmp_path: Path):
    """As some writers of weights make them; other files that were there keep their own modes."""
    before = os.umask(0o022)
    try:
        make_old_folder(tmp_path)
        (tmp_path / "model/notes.txt").chmod(0o600)
        with atomic_folder(tmp_path / "model") as temporary:
            os.close(os.open(temporary / "weights", os.O_CREAT | os.O_WRONLY, 0o600))
        with atomic_file(tmp_path / "file") as temporary:
            temporary.unlink()
            os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [*(tmp_path / "model").iterdir(), tmp_path / "file"]}
    assert modes == {"weights": 0o644, "file": 0o644, "config.json": 0o644, "notes.txt": 0o600, "figures": 0o755}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_file_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    target = tmp_path / "file"
    target.write_text("old")
    fill_the_disk(monkeypatch, code)
    with pytest.raises(DiskError) as caught, atomic_file(target) as temporary:
        temporary.write_text("new")
    assert caught.value.exit_code == 5
    assert str(caught.value) == (
        f"{target}: could not be written ({os.strerror(code)}). Free some space, or write to another disk."
    )
    assert contents(tmp_path) == {"file": "old"}


def test_another_failure_of_the_disk_does_not_speak_of_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fill_the_disk(monkeypatch, errno.EIO)
    with pytest.raises(DiskError) as caught, atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert str(caught.value) == f"{tmp_path / 'file'}: could not be written ({os.strerror(errno.EIO)})."


def test_a_disk_that_is_full_while_the_body_writes(tmp_path: Path):
    with pytest.raises(DiskError, match="Free some space"), atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("writer", [atomic_file, atomic_folder])
@pytest.mark.parametrize("below", ["result", "deeper/result"])
def test_a_file_in_the_place_of_a_parent_folder(tmp_path: Path, writer, below: str):
    blocker = tmp_path / "blocker"
    blocker.write_text("in the way")
    with pytest.raises(DiskError) as caught, writer(blocker / below):
        pytest.fail("the body must not run")
    assert caught.value.where == str(blocker / below)
    assert caught.value.exit_code == 5
    assert contents(tmp_path) == {"blocker": "in the way"}


def test_a_folder_in_the_place_of_the_file(tmp_path: Path):
    (tmp_path / "name").mkdir()
    (tmp_path / "name" / "file").write_text("old")
    with pytest.raises(DiskError, match="name: could not be written"), atomic_file(tmp_path / "name") as temporary:
        temporary.write_text("new")
    assert contents(tmp_path) == {"name/file": "old"}


def test_a_file_in_the_place_of_the_folder(tmp_path: Path):
    (tmp_path / "name").write_text("old")
    with pytest.raises(DiskError, match="name: could not be written"), atomic_folder(tmp_path / "name") as temporary:
        (temporary / "file").write_text("new")
    assert contents(tmp_path) == {"name": "old"}


def test_a_folder_appears_when_it_is_whole(tmp_path: Path):
    target = tmp_path / "made" / "model"
    with atomic_folder(target) as temporary:
        (temporary / "config.json").write_text("new")
        (temporary / "weights").write_text("new")
        assert not target.exists()
        assert temporary.parent == target.parent
    assert contents(tmp_path) == {"made/model/config.json": "new", "made/model/weights": "new"}


def test_an_empty_folder_is_filled(tmp_path: Path):
    (tmp_path / "model").mkdir()
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "file").write_text("new")
    assert contents(tmp_path) == {"model/file": "new"}


def make_old_folder(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "model"
    (folder / "figures").mkdir(parents=True)
    (folder / "config.json").write_text("old")
    (folder / "notes.txt").write_text("mine")
    (folder / "figures" / "loss.svg").write_text("mine too")
    return contents(tmp_path)


def test_other_files_of_an_old_folder_are_kept(tmp_path: Path):
    make_old_folder(tmp_path)
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "config.json").write_text("new")
        assert (tmp_path / "model" / "config.json").read_text() == "old"
    assert contents(tmp_path) == {
        "model/config.json": "new",
        "model/notes.txt": "mine",
        "model/figures/loss.svg": "mine too",
    }


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_folder(tmp_path: Path, error: type[BaseException]):
    before = make_old_folder(tmp_path)
    with pytest.raises(error), atomic_folder(tmp_path / "model") as temporary:
        (temporary / "config.json").write_text("half")
        raise error
    assert contents(tmp_path) == before


def test_a_failure_leaves_no_folder_where_none_was(tmp_path: Path):
    with pytest.raises(ValueError, match="broken"), atomic_folder(tmp_path / "model") as temporary:
        (temporary / "config.json").write_text("half")
        raise ValueError("broken")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_folder_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = make_old_folder(tmp_path)
    fill_the_disk(monkeypatch)
    with pytest.raises(DiskError) as caught, atomic_folder(tmp_path / "model") as temporary:
        (temporary / "config.json").write_text("new")
    assert caught.value.exit_code == 5
    assert "Free some space" in str(caught.value)
    assert caught.value.where == str(tmp_path / "model")
    assert contents(tmp_path) == before


def test_a_failure_in_the_middle_of_the_swap_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = make_old_folder(tmp_path)
    model, rename = tmp_path / "model", Path.rename

    def refuse_the_new_folder(self: Path, target: Path) -> Path:
        if self.parent == tmp_path and target == model:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new_folder)
    with pytest.raises(DiskError, match="Input/output error"), atomic_folder(model) as temporary:
        (temporary / "config.json").write_text("new")
    assert contents(tmp_path) == before


class Killed(BaseException):
    """As sudden as a kill: nothing that is written to clean up may run."""


def killed_in_the_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old folder is moved aside, the new one is not yet in its place, and the process is gone."""
    model, rename = tmp_path / "model", Path.rename

    def stop(self: Path, target: Path) -> Path:
        if target == model:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stop)
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(Killed), atomic_folder(model) as temporary:
            (temporary / "config.json").write_text("new")
    assert not model.exists()


def test_what_was_moved_aside_when_a_process_was_killed_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = make_old_folder(tmp_path)
    killed_in_the_swap(tmp_path, monkeypatch)
    recover(tmp_path / "model")
    assert contents(tmp_path) == before
    recover(tmp_path / "model")
    assert contents(tmp_path) == before


def test_what_a_killed_process_left_is_removed_where_the_folder_stands(tmp_path: Path):
    before = make_old_folder(tmp_path)
    for name in (".model.vitrail-0123456789ab-17-abcd_123", ".model.vitrail-0123456789ab-17-abcd_124/model"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("half")
    recover(tmp_path / "model")
    assert contents(tmp_path) == before


def killed_while_writing(target: Path, kind: str) -> list[str]:
    """Another process writes to the target and is killed: the names of what it left."""
    program = (
        "import os, sys; from pathlib import Path; from vitrail.runtime import atomic\n"
        "with getattr(atomic, sys.argv[2])(Path(sys.argv[1])) as temporary:\n"
        "    (temporary / 'half' if temporary.is_dir() else temporary).write_text('half')\n"
        "    os._exit(9)"
    )
    before = {path.name for path in target.parent.iterdir()}
    subprocess.run([sys.executable, "-c", program, str(target), kind], check=False, timeout=60)
    return [path.name for path in target.parent.iterdir() if path.name not in before]


@pytest.mark.parametrize("writer", [atomic_file, atomic_folder])
def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path, writer):
    target = tmp_path / "report.html"
    (left,) = killed_while_writing(target, writer.__name__)
    assert left.startswith(".report.html.")
    # For another place, of a living process, and files of the user: vim's, and one that only looks alike.
    other = tmp_path / left.replace("report", "reports")
    living = tmp_path / re.sub(r"-\d+-", f"-{os.getppid()}-", left)
    mine = [tmp_path / f".report.html.{name}" for name in ("swp", "notes", "original", "original.html", "old.original")]
    for path in (other, living, *mine):
        path.write_text("stays")
    with writer(target) as temporary:
        (temporary if temporary.is_file() else temporary / "file").write_text("new")
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in (target, other, living, *mine)}


def test_what_was_left_on_another_machine_goes_after_a_day_and_what_is_not_ours_never(tmp_path: Path):
    target, long_ago = tmp_path / "report.html", time.time() - 2 * 24 * 3600
    left, mine = ".report.html.vitrail-0123456789ab-17-abcd_123.html", ".report.html.original"
    for name in (left, mine):
        (tmp_path / name).write_text("half")
    os.utime(tmp_path / mine, (long_ago, long_ago))
    for _ in range(2):
        with atomic_file(target) as temporary:
            temporary.write_text("new")
        assert contents(tmp_path) == {"report.html": "new", left: "half", mine: "half"}
    os.utime(tmp_path / left, (long_ago, long_ago))
    with atomic_file(target) as temporary:
        temporary.write_text("new")
    assert contents(tmp_path) == {"report.html": "new", mine: "half"}


def test_a_write_after_a_kill_in_the_middle_of_the_swap_keeps_the_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make_old_folder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: DEAD)
        killed_in_the_swap(tmp_path, monkeypatch)
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "config.json").write_text("new")
    assert contents(tmp_path) == {
        "model/config.json": "new",
        "model/notes.txt": "mine",
        "model/figures/loss.svg": "mine too",
    }


def test_others_are_not_touched_by_the_recovery(tmp_path: Path):
    make_old_folder(tmp_path)
    (tmp_path / ".models").mkdir()
    (tmp_path / ".models/file").write_text("mine")
    (tmp_path / ".model.txt").write_text("a file of mine")
    (tmp_path / ".other.abc").mkdir()
    (tmp_path / ".model.original").mkdir()
    (tmp_path / ".model.original/file").write_text("mine as well")
    before = contents(tmp_path)
    recover(tmp_path / "model")
    recover(tmp_path / "nothing" / "here")
    assert contents(tmp_path) == before
