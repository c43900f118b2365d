"""Runs of a few seconds in several processes that are joined as torchrun joins them."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from tests.training.tiny_run import CPU, PROCESSES, last_word, quietly

from vitrail.config import RunConfig
from vitrail.config.training import Parallel
from vitrail.errors import VitrailError
from vitrail.runtime.processes import Processes, joined
from vitrail.training.folder import RunFolder
from vitrail.training.log import Watcher
from vitrail.training.run import run
from vitrail.training.session import Session
from vitrail.training.sources import open_run_data
from vitrail.training.spread import Placement
from vitrail.training.start import Allowed, begin, resume

Setup = Callable[[Session, Connection], Watcher]
Work = Callable[[Processes, Connection], None]


class Group:
    """Processes that are joined; each sends what it has to say through its own connection."""

    def __init__(self, ranks: int, work: Work) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.processes: list[BaseProcess] = []
        self.connections: list[Connection] = []
        for rank in range(ranks):
            here, there = PROCESSES.Pipe()
            process = PROCESSES.Process(target=_join, args=(there, rank, ranks, port, work))
            process.start()
            there.close()
            self.processes.append(process)
            self.connections.append(here)

    def words(self) -> list[tuple[str, str]]:
        """How each of them ended."""
        return [last_word(*pair) for pair in zip(self.processes, self.connections, strict=True)]


def _join(connection: Connection, rank: int, ranks: int, port: int, work: Work) -> None:
    torch.set_num_threads(1)
    # Else data workers would be started as this process was.
    multiprocessing.set_start_method(None, force=True)
    names = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    try:
        with joined(CPU) as processes:
            work(processes, connection)
        connection.send(("ended", ""))
    except VitrailError as error:
        connection.send((type(error).__name__, str(error)))
        raise SystemExit(error.exit_code) from None


class Train:
    """Trains to the end: a new run with settings, else the one in the folder."""

    def __init__(
        self,
        folder: Path,
        settings: RunConfig | None = None,
        *,
        parallel: Parallel = "ddp",
        setup: Setup | None = None,
        **allowed: Any,
    ) -> None:
        self.folder, self.settings, self.parallel, self.setup, self.allowed = folder, settings, parallel, setup, allowed

    def session(self, processes: Processes) -> Session:
        """Before its next step."""
        placement = Placement(processes=processes, parallel=self.parallel)
        folder, settings = RunFolder(self.folder), self.settings
        if settings is None:
            return resume(folder, CPU, quietly, Allowed(**self.allowed), placement=placement)
        data = processes.in_turn(lambda: open_run_data(settings.data, CPU, quietly))
        return begin(settings, data, folder, CPU, placement=placement)

    def __call__(self, processes: Processes, connection: Connection) -> None:
        session = self.session(processes)
        watcher = self.setup(session, connection) if self.setup else lambda _event: None
        run(session, RunFolder(self.folder), watcher)


def train_in(ranks: int, folder: Path, settings: RunConfig | None = None, **more: Any) -> None:
    """A run in so many processes, to its end, without a mishap."""
    assert Group(ranks, Train(folder, settings, **more)).words() == [("ended", "")] * ranks
