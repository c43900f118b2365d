"""Of several processes one speaks; the others are silent, unless something happens to them alone."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from vitrail.errors import VitrailError


def processes_started() -> int:
    """How many processes torchrun started with this command; known before anything heavy is imported."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def _rank() -> int:
    return int(os.environ["RANK"]) if processes_started() > 1 else 0


@contextmanager
def one_speaker() -> Iterator[None]:
    """Let the first process print what it likes, and the others nothing; errors that leave here are printed by any."""
    if not _rank():
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def what_to_say(error: VitrailError) -> str:
    """What this process has to say about an error: nothing, where another one says it."""
    # Only a process that has joined the others can have an error of its own; it has imported this long ago.
    processes = sys.modules.get("vitrail.runtime.processes")
    if processes is not None and isinstance(error, processes.Elsewhere):
        return ""
    if not _rank():
        return str(error)
    has_joined = processes is not None and processes.has_joined()
    # Those that a loss leaves behind all notice it; the first of them speaks, if it is there.
    gone = getattr(error, "gone", ())
    if not has_joined or error.is_shared or (gone and 0 not in gone):
        return ""
    return f"process {_rank()}: {error}"
