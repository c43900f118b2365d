"""Several processes of one Python module on this machine, with torchrun's own agent to watch over them."""

import dataclasses
import logging
import os
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vitrail.errors import notice
from vitrail.runtime.cores import usable_cores
from vitrail.runtime.watch import INTERRUPTED, Ear, Interruptions, patience_seconds

# Seconds that processes have to save and end when they are asked to.
_PATIENCE = 300
_STOPPED = 75
# Seconds within which a signal that came twice is one.
_TOGETHER = 0.5


def launch(module: str, arguments: Sequence[str], processes: int) -> None:
    """Run `python -m MODULE ARGUMENTS` in so many processes on this machine, until all have ended."""
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
            elastic_launch(config, sys.executable)("-m", module, *arguments)
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
