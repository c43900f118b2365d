"""Files that appear whole or not at all."""

import errno
import functools
import glob
import hashlib
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vitrail.errors import DiskError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it is flushed to disk and renamed, on failure removed."""
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_signed(path), suffix=path.suffix)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`; on success it takes the place of `path` and keeps its other files."""
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=_signed(path)))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            for written in temporary.iterdir():
                if written.is_file():
                    written.chmod(0o666 & ~_umask())
                _sync(written)
            put_in_place(temporary, path)
            _sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def put_in_place(temporary: Path, path: Path) -> None:
    """Move a finished file or folder to `path`; a folder that is there is replaced and its other files are kept."""
    if temporary.is_file() or not path.exists():
        temporary.replace(path)
        return
    for kept in path.iterdir():
        if not (temporary / kept.name).exists():
            _copy(kept, temporary / kept.name)
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=_signed(path)))
    path.rename(aside / path.name)
    try:
        temporary.rename(path)
    except BaseException:
        # Nothing is removed before the new one stands: should even this fail, the old one is still in `aside`.
        (aside / path.name).rename(path)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


def recover(path: Path) -> None:
    """Put back what `put_in_place` had moved aside when its process was killed, and remove what else it left."""
    for leftover in sorted(path.parent.glob(f".{glob.escape(path.name[:100])}.*")):
        if leftover.is_dir() and leftover_of(leftover.name, path.name):
            _clear(leftover, path)


def leftover_of(name: str, target: str) -> re.Match[str] | None:
    """Whether a name is one that is given here to what is being written for `target`, and by whom."""
    before = f".{target[:100]}."
    return _LEFTOVER.fullmatch(name[len(before) :]) if name.startswith(before) else None


def _clear(leftover: Path, path: Path) -> None:
    if leftover.is_dir() and (leftover / path.name).exists() and not path.exists():
        (leftover / path.name).rename(path)
    if leftover.is_dir():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)


def _signed(path: Path) -> str:
    """How a temporary name begins: for whom it is, and which process writes it."""
    return f".{path.name[:100]}.vitrail-{_machine()}-{os.getpid()}-"


def _sweep(path: Path) -> None:
    """Remove what processes that are dead left half written for this very place, never what a living one writes."""
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            ours = leftover_of(entry.name, path.name)
            if ours and _is_dead(ours["machine"], ours["process"], entry):
                _clear(Path(entry.path), path)


# Nothing shorter: a person may keep .report.html.original beside a report.
_LEFTOVER = re.compile(r"vitrail-(?P<machine>[0-9a-f]{12})-(?P<process>\d+)-[a-z0-9_]{8}(\.[^.]*)?", flags=re.ASCII)
# Seconds after which a file that no living process of this machine is known to write is a leftover.
_OLD = 24 * 3600


def _is_dead(machine: str, process: str, entry: os.DirEntry[str]) -> bool:
    if machine == _machine() and not _is_alive(int(process)):
        return True
    # Of another machine, of an earlier start of this one, or of a number that another process has got since.
    return process != str(os.getpid()) and time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":
        # There the question would end the process.
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@functools.cache
def _machine() -> str:
    """Twelve letters for where a process number means this process: a container has numbers of its own."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _copy(source: Path, target: Path) -> None:
    """Links are copied as links, so that one that leads nowhere does no harm."""
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        fix = "Free some space, or write to another disk." if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise DiskError(f"could not be written ({reason})", where=str(path), fix=fix) from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
