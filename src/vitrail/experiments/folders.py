"""Where an experiment is kept: its name, the folder that it claims, and the launch that began it."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vitrail.data import Source
from vitrail.data.outside import ensure_outside
from vitrail.errors import UsageError, VitrailError, setting
from vitrail.experiments.kinds import resume_command
from vitrail.runtime.processes import Processes
from vitrail.training.folder import RunFolder, is_vacant
from vitrail.training.whole import ensure_in_place, held

# Bytes; what is written beside a folder has longer names, and most disks take 255.
_LONGEST_NAME = 200
_DEVICES = {"con", "prn", "aux", "nul", *(f"{kind}{number}" for kind in ("com", "lpt") for number in range(1, 10))}
_MARK = ".launch"


@dataclass(frozen=True)
class Destination:
    """Where an experiment goes: a folder of runs and a name, with a number behind it unless the name was asked for."""

    out: Path
    name: str
    is_exact: bool


def ensure_plain_name(name: str | None) -> None:
    """Refuse a name that is no plain name of a folder: `out` says where it lies, and other systems may have it too."""
    if name is None:
        return
    is_plain = bool(name) and name.isprintable() and not set("/\\") & set(name)
    is_plain = is_plain and not name.startswith((".", "-", " ")) and not name.endswith((".", " "))
    if not is_plain or name.split(".")[0].lower() in _DEVICES:
        raise UsageError(
            f"{setting('name')} is {name!r}",
            wanted="the plain name of one folder on any system: no / or \\, no dot at its ends, no device such as con",
            fix=f"{setting('out')} says in which folder it lies.",
        )
    if len(os.fsencode(name)) > _LONGEST_NAME:
        raise UsageError(f"{setting('name')} has {len(os.fsencode(name))} bytes", wanted=f"at most {_LONGEST_NAME}")


def next_folder(
    destination: Destination, sources: Sequence[Source], is_spare: Callable[[Path], bool] = lambda _path: False
) -> RunFolder:
    """The folder of a new run, which is made here, so that of two processes only one gets it; never inside the data.

    A folder of the name that was asked for is taken where nothing in it would be lost: `is_spare` says so.
    """
    out = destination.out.expanduser()
    if out.is_symlink() and not out.exists():
        raise UsageError("is a link that leads nowhere", where=str(out), fix=f"Choose another {setting('out')}.")
    number = 1
    while True:
        path = out / (destination.name if destination.is_exact else f"{destination.name}-{number}")
        ensure_outside(sources, path)
        try:
            path.mkdir(parents=True)
            return RunFolder(path)
        except FileExistsError:
            if destination.is_exact:
                _ensure_free(path, is_spare)
                return RunFolder(path)
            number += 1


@contextmanager
def claimed(
    destination: Destination,
    sources: Sequence[Source],
    processes: Processes,
    is_spare: Callable[[Path], bool] = lambda _path: False,
    has_begun: Callable[[RunFolder], bool] | None = None,
) -> Iterator[RunFolder]:
    """The folder of a new run, whose lock is held before anything is written into it.

    What comes to an end before it `has_begun` leaves nothing behind; if not said, that is before its first checkpoint.
    """
    folder = RunFolder(Path(processes.first_says(lambda: str(next_folder(destination, sources, is_spare).path))))
    with held(folder, processes):
        with processes.together():
            if processes.is_first:
                # Again: another command may have held it in between, and begun.
                _ensure_free(folder.path, is_spare)
        with beginning(folder, processes, has_begun or _has_begun):
            yield folder


def _ensure_free(path: Path, is_spare: Callable[[Path], bool]) -> None:
    """The folder of a name that someone asked for and that is there: only an empty one will do, or a spare one."""
    if is_spare(path):
        return
    if (path / "config.json").is_file():
        raise UsageError(
            "there is a run already",
            where=str(path),
            fix=f"Go on with it ({resume_command(path)}), or choose another {setting('name')}.",
        )
    if not is_vacant(path):
        raise UsageError(
            "is there already and holds something else", where=str(path), fix=f"Choose another {setting('name')}."
        )


@contextmanager
def beginning(folder: RunFolder, processes: Processes, has_begun: Callable[[RunFolder], bool]) -> Iterator[None]:
    """What cannot even begin leaves nothing behind: the folder was empty when it was taken."""
    refused = True
    try:
        yield
        refused = False
    finally:
        with suppress(VitrailError):
            if refused and processes.is_first and folder.path.is_dir() and not has_begun(folder):
                # Of a folder that was moved away, nothing is known any more.
                ensure_in_place(folder)
                shutil.rmtree(folder.path, ignore_errors=True)


def _has_begun(folder: RunFolder) -> bool:
    """Whether a run in it, or one of those that it is made of, has computed something."""
    return any(next(folder.path.rglob(pattern), None) for pattern in ("log.jsonl", "checkpoints/step-*"))


# A restart by torchrun gives every process the same command again; `.launch` in the folder of a run says which launch
# began it, so that the restarted command goes on with it.


def mark_launch(folder: Path, what: str) -> None:
    """Note which launch began what in a folder; a script may ask for several things."""
    if (name := _launch()) is not None:
        (folder / _MARK).write_text(f"{name} {what}\n", encoding="utf-8")


def begun_by_this_launch(out: str, what: str) -> str | None:
    """The folder of the same that this very launch began, before torchrun restarted it."""
    name = _launch()
    if name is None or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        return None
    found = Path(out).expanduser().glob(f"*/{_MARK}")
    marks = [mark for mark in found if mark.read_text(encoding="utf-8").strip() == f"{name} {what}"]
    newest = max(marks, key=lambda mark: mark.stat().st_mtime, default=None)
    return str(newest.parent) if newest is not None and newest.with_name("config.json").is_file() else None


def _launch() -> str | None:
    """What all restarts of one launch have in common, and no other launch."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    # Without --rdzv-id torchrun calls every launch "none"; its process is the same as long as it lives.
    return f"{socket.gethostname()}:{os.getppid()}" if name == "none" else name
