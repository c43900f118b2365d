"""One process at a time, in a folder that stays where it is."""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vitrail.errors import DiskError, UsageError, notice
from vitrail.runtime.patience import PATIENCE, may_pass

try:
    import fcntl
except ImportError:  # Windows has no such locks; whoever works there is told.
    fcntl = None

_HELD: set[str] = set()
# Seconds for which a network drive that cannot be asked is waited for.
_PAUSES = (PATIENCE, 1.0, 5.0)
# Of what is read to say who holds a lock; whatever else may stand there is not ours.
_LONGEST_HOLDER = 300


class MovedFolder(DiskError):
    """A folder that is not where it was when work in it began."""

    def __init__(self, was: Path, now: Path | None, *, fix: str = "") -> None:
        self.was, self.now = was, now
        came = "was removed or replaced" if now is None else f"was moved to {now}"
        super().__init__(
            f"the folder {came} while it was being written, so nothing more is written",
            where=str(was),
            fix=fix,
        )


@dataclass(frozen=True)
class Hold:
    """A lock that this process has, and the folder in which it lies."""

    folder: Path | None = None
    handle: int | None = None
    """Of the folder: as long as it is open, no other folder can have its number."""

    def ensure_in_place(self) -> None:
        """Raise where the folder was moved, replaced or removed: what is written by its old name would be apart."""
        if self.folder is None or self.handle is None:
            return
        for pause in (*_PAUSES, None):
            try:
                if os.path.samestat(os.fstat(self.handle), self.folder.stat()):
                    return
            except OSError as error:
                if may_pass(error):
                    if pause is None:
                        raise DiskError(f"could not be looked at ({error.strerror})", where=str(self.folder)) from None
                    time.sleep(pause)
                    continue
            raise MovedFolder(self.folder, _found(self.handle))


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
def only_one(path: Path, *, busy: str) -> Iterator[Hold]:
    """Hold the lock file `path`; a process that finds it held gets a UsageError. A dead process holds nothing."""
    place = os.path.realpath(path)
    # Such a lock is no obstacle to the process that has it, and opening it twice would let go of it.
    if place in _HELD:
        raise UsageError(f"{busy} (this very process)", fix="Wait for it, or stop it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise DiskError(f"could not be written ({error.strerror})", where=str(path)) from None
    try:
        if not _takes(handle, path):
            raise UsageError(f"{busy}{_holder(handle)}", fix="Wait for it, or stop it.")
        _HELD.add(place)
        _sign(handle)
        with watched(path.parent) as hold:
            try:
                yield hold
            finally:
                # Only this one: after a move, one of another process may be there.
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.fstat(handle), path.stat()):
                        path.unlink()
    finally:
        _HELD.discard(place)
        os.close(handle)


def _holder(handle: int) -> str:
    """Who holds a lock, where that can be read."""
    with contextlib.suppress(OSError):
        # Not opened again: closing it would let go of a lock that this process has.
        holder = os.pread(handle, _LONGEST_HOLDER, 0).decode("utf-8", "replace").strip()
        if holder.startswith("process ") and holder.isprintable():
            return f" ({holder})"
    return ""


def _sign(handle: int) -> None:
    """Say in the file who holds it; where that cannot be written, it is held all the same."""
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())


@contextmanager
def watched(folder: Path) -> Iterator[Hold]:
    """What notices when a folder is moved, where the system can tell folders apart."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield Hold()
        return
    try:
        is_known = os.path.samestat(os.fstat(handle), folder.stat())
        # Absolute, because a program may change the folder that it works in.
        yield Hold(folder.absolute(), handle) if is_known else Hold()
    finally:
        os.close(handle)


def _found(handle: int) -> Path | None:
    """Where an open folder is now, where the system says it."""
    with contextlib.suppress(OSError):
        now = Path(f"/proc/self/fd/{handle}").readlink()
        if os.path.samestat(os.fstat(handle), now.stat()):
            return now
    return None


def _takes(handle: int, path: Path) -> bool:
    if fcntl is None:
        notice(
            f"{path.parent}: this system has no locks to rely on, so nothing keeps a second process from "
            "writing here at the same time. Begin only one for each folder."
        )
        return True
    try:
        # Not flock, which worker processes would inherit and hold when this one is killed.
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held it may have removed the file after it was opened here; the next one would then hold another.
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.ENOENT):
            return False
        raise DiskError(f"could not be locked ({error.strerror})", where=str(path)) from None
