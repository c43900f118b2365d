"""One process at a time."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vitrail.errors import DiskError, UsageError

try:
    import fcntl
except ImportError:  # Windows has no such locks; two processes that write one target are then the user's affair.
    fcntl = None

_HELD: set[str] = set()


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file now; nothing is written."""
    if os.path.realpath(path) in _HELD:
        return True
    if fcntl is None:
        return False
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


@contextmanager
def only_one(path: Path, *, busy: str) -> Iterator[None]:
    """Hold the lock file `path`; a process that finds it held gets a UsageError. A dead process holds nothing."""
    place = os.path.realpath(path)
    # Such a lock is no obstacle to the process that has it, and opening it twice would let go of it.
    if place in _HELD:
        raise UsageError(busy, fix="Wait for it, or stop it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise DiskError(f"could not be written ({error.strerror})", where=str(path)) from None
    try:
        if not _takes(handle, path):
            raise UsageError(busy, fix="Wait for it, or stop it.")
        _HELD.add(place)
        yield
        with contextlib.suppress(OSError):
            path.unlink()
    finally:
        _HELD.discard(place)
        os.close(handle)


def _takes(handle: int, path: Path) -> bool:
    if fcntl is None:
        return True
    try:
        # Not flock, which worker processes would inherit and hold when this one is killed.
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held it may have removed the file after it was opened here; the next one would then hold another.
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
