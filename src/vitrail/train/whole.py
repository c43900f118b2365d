"""What several runs that belong together share: one lock, and signals that are heard between them too."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vitrail.runtime.lock import only_one
from vitrail.runtime.processes import Processes
from vitrail.train.folder import NamedFolder
from vitrail.train.stopping import Interrupted, Stopped, Stopping


@contextmanager
def held(folder: NamedFolder, processes: Processes) -> Iterator[None]:
    """The lock of the whole, which the first of several processes holds for all."""
    with ExitStack() as locks:
        with processes.together():
            if processes.is_first:
                locks.enter_context(only_one(folder.lock, busy=f"another process is working on {folder.path}"))
        yield


@contextmanager
def stoppable(stopping: Stopping, command: str, *, between: str) -> Iterator[None]:
    """A signal between two of them is heard as well as one within; `command` goes on."""
    try:
        with stopping.listening():
            yield
    except Interrupted:
        raise Stopped(f"stopped between two {between}, and everything is saved", fix=f"To go on: {command}") from None
