"""Files that appear whole or not at all."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vitrail.errors import DiskError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it is flushed to disk and renamed, on failure removed."""
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=path.suffix)
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
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:100]}."))
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
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:100]}.old."))
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
    for leftover in sorted(path.parent.glob(f".{path.name[:100]}.*")):
        if leftover.is_dir() and (leftover / path.name).exists() and not path.exists():
            (leftover / path.name).rename(path)
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)


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
