"""What holds a folder while it is worked on: one lock, and signals that are heard between several runs too."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from vitrail.errors import UsageError
from vitrail.runtime.lock import Hold, only_one, watched
from vitrail.runtime.processes import Processes
from vitrail.training.folder import NamedFolder
from vitrail.training.stopping import Interrupted, Stopped, Stopping

_MINE: ContextVar[dict[str, Hold]] = ContextVar("_MINE", default={})  # noqa: B039 (never changed, only replaced)


@contextmanager
def held(folder: NamedFolder, processes: Processes, *, doing: str = "working on") -> Iterator[Hold]:
    """The lock of a folder, which the first of several processes holds for all.

    It is taken before anything is written into the folder, by whoever begins; what is done within takes it again, and
    finds it held by itself.
    """
    place = os.path.realpath(folder.lock)
    with ExitStack() as locks:
        hold = _MINE.get().get(place, Hold())
        with processes.together():
            if processes.is_first and place not in _MINE.get():
                if folder.lock.is_symlink():
                    raise UsageError("is a link", wanted="files of the folder itself", where=str(folder.lock))
                hold = locks.enter_context(only_one(folder.lock, busy=f"another process is {doing} {folder.path}"))
        token = _MINE.set({**_MINE.get(), place: hold})
        try:
            yield hold
        finally:
            _MINE.reset(token)


@contextmanager
def nothing_held() -> Iterator[None]:
    """Something of its own, even from within: what is held around it is held by another."""
    token = _MINE.set({})
    try:
        yield
    finally:
        _MINE.reset(token)


@contextmanager
def watched_over(folder: NamedFolder) -> Iterator[None]:
    """A folder that several commands share is not locked, but that it stays in its place is noticed all the same."""
    with watched(folder.path) as hold:
        token = _MINE.set({**_MINE.get(), os.path.realpath(folder.lock): hold})
        try:
            yield
        finally:
            _MINE.reset(token)


def ensure_in_place(folder: NamedFolder) -> None:
    """Raise where a folder that is held further out is no longer where it was, before something is written by name."""
    _MINE.get().get(os.path.realpath(folder.lock), Hold()).ensure_in_place()


@contextmanager
def stoppable(stopping: Stopping, command: str, *, between: str) -> Iterator[None]:
    """A signal between two of them is heard as well as one within; `command` goes on."""
    try:
        with stopping.listening():
            yield
    except Interrupted:
        raise Stopped(f"stopped between two {between}, and everything is saved", fix=f"To go on: {command}") from None
