"""Several processes from one command: `--processes N` starts them, torchrun's own agent watches over them.

A restart by torchrun gives every process the same command again; `.launch` in the folder of a run says which launch
began it, so that the restarted command goes on with it.
"""

import dataclasses
import logging
import os
import socket
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vitrail.errors import UsageError, notice
from vitrail.runtime.cores import usable_cores
from vitrail.runtime.watch import INTERRUPTED, Ear, Interruptions, patience_seconds

_MARK = ".launch"
# Seconds that processes have to save and end when they are asked to.
_PATIENCE = 300
_STOPPED = 75
# Seconds within which a signal that came twice is one.
_TOGETHER = 0.5


def split_processes(words: Sequence[str]) -> tuple[int | None, list[str]]:
    """The number after `--processes`, if it is there, and the other words."""
    rest: list[str] = []
    found: str | None = None
    waiting = iter(words)
    for word in waiting:
        name, equals, value = word.partition("=")
        if name == "--processes":
            found = value if equals else next(waiting, "")
        else:
            rest.append(word)
    if found is None:
        return None, rest
    if not found.isdecimal() or not 1 <= int(found) <= 1024:
        raise UsageError(f"--processes is {found!r}", wanted="a number from 1 to 1024")
    if "RANK" in os.environ:
        raise UsageError(
            "--processes is given to one of several processes", fix="Leave it out: torchrun has its --nproc-per-node."
        )
    return int(found), rest


def launch(verb: str, words: Sequence[str], processes: int) -> None:
    """Run `vitrail VERB WORDS` in so many processes on this machine, until all have ended."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from vitrail.runtime.processes import Elsewhere, LostProcess

    # A mistake that each of them would find.
    patience_seconds()
    # What went wrong is told below, in a sentence, and by the processes themselves.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(usable_cores() // processes, 1)))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        **_patience(LaunchConfig),
    )
    try:
        with _ending_when_asked_twice():
            elastic_launch(config, sys.executable)("-m", "vitrail", verb, *words)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            notice(f"Process {rank} of {processes} (id {failure.pid}) was ended by {failure.signal_name()}.")
        raise Elsewhere(failure.exitcode if failure.exitcode > 0 else LostProcess.exit_code) from None
    except SignalException:
        raise Elsewhere(_STOPPED) from None


@contextmanager
def _ending_when_asked_twice() -> Iterator[None]:
    """The first Ctrl-C goes to all processes, which save; after a second this one ends, and they end with it."""
    ear, has_ended, interruptions = Ear(), threading.Event(), Interruptions(_TOGETHER)

    def listen() -> None:
        while not has_ended.is_set():
            if interruptions.is_second(ear.heard(0.25)):
                print("stopped", file=sys.stderr, flush=True)
                os._exit(INTERRUPTED)

    thread = threading.Thread(target=listen, name="vitrail launch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
        ear.close()


def _patience(config: type) -> dict[str, Any]:
    """Time to save in, where this version of torch lets it be set."""
    known = {field.name for field in dataclasses.fields(config)}
    return {"shutdown_timeout": _PATIENCE} if "shutdown_timeout" in known else {}


def is_restarted() -> bool:
    """Whether torchrun gave this command before, and a process of it ended."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def mark_launch(folder: Path) -> None:
    """Note which launch began the run in a folder."""
    if (name := _launch()) is not None:
        (folder / _MARK).write_text(name + "\n", encoding="utf-8")


def folder_of_this_launch(out: Path) -> Path | None:
    """The run that this very launch began, before torchrun restarted it."""
    name = _launch()
    if name is None or not is_restarted():
        return None
    marks = [mark for mark in out.expanduser().glob(f"*/{_MARK}") if mark.read_text(encoding="utf-8").strip() == name]
    return max(marks, key=lambda mark: mark.stat().st_mtime).parent if marks else None


def _launch() -> str | None:
    """What all restarts of one launch have in common, and no other launch."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    # Without --rdzv-id torchrun calls every launch "none"; its process is the same as long as it lives.
    return f"{socket.gethostname()}:{os.getppid()}" if name == "none" else name
