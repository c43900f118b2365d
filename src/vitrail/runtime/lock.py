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
        if fcntl is not None:
            try:
                # Not flock, which worker processes would inherit and hold when this one is killed.
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(busy, fix="Wait for it, or stop it.") from None
        _HELD.add(place)
        yield
        with contextlib.suppress(OSError):
            path.unlink()
    finally:
        _HELD.discard(place)
        os.close(handle)
