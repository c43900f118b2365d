"""The process that holds the model: `python -m vitrail.serving.engine.worker FD`, where FD is one end of a socket pair.

Its main thread reads what is asked, others decode, one computes, one says once in a while that all are alive. It ends
when the socket does, whatever it is doing, so that no worker outlives its server.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from vitrail.config import from_json
from vitrail.config.serve import ServeConfig
from vitrail.config.spelling import OPTIONS
from vitrail.errors import Notice, VitrailError
from vitrail.runtime.cores import usable_cores
from vitrail.serving.engine.board import Board, Task
from vitrail.serving.engine.compute import Computer, said, tell
from vitrail.serving.engine.frames import FrameError, packed, read_frame
from vitrail.serving.engine.watch import Watch
from vitrail.serving.looks.loaded import Loaded, load

_MOST_DECODERS, _MOST_HEAVY = 8, 4
_LONGEST_SILENCE = 1.0
# A look is several passes through the network, in torch.
_PASSES_OF_A_LOOK = 10


class Worker:
    """One connection, one model."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._watch = Watch()

    def serve(self) -> None:
        """Load the model that the first frame names, then answer until the socket ends."""
        stream = self._connection.makefile("rb")
        first = read_frame(stream, 0)
        if first is None:
            return
        config = from_json(ServeConfig, first[0].get("config"), where="the first frame")
        board = Board(config.batch_size, config.batch_wait)
        _start(self._live, config)
        _start(self._load, config, int(first[0]["generation"]), board)
        while (frame := read_frame(stream, config.max_bytes)) is not None:
            _take(board, *frame)

    def _load(self, config: ServeConfig, generation: int, board: Board) -> None:
        """Become ready, then compute; or say why not, and end."""
        try:
            loaded = load(config, generation)
            computer = Computer(config, loaded, board, self._watch, self._send)
            seconds = computer.warm_up()
        except VitrailError as error:
            self._send({"is": "failed", "message": said(error), "exit_code": error.exit_code})
            os._exit(error.exit_code)
        self._send(
            {"is": "ready", "seconds": seconds, "look_seconds": seconds * _PASSES_OF_A_LOOK},
            json.dumps(loaded.facts).encode(),
        )
        _start(computer.weigh_forever)
        for _ in range(min(_MOST_DECODERS, usable_cores())):
            _start(computer.decode_forever)
        for _ in range(min(_MOST_HEAVY, usable_cores())):
            _start(computer.decode_heavy_forever)
        _start(self._prepare_for_more, loaded, board, computer)
        computer.compute_forever()

    def _prepare_for_more(self, loaded: Loaded, board: Board, computer: Computer) -> None:
        """What the first predictions need not wait for, one after the other."""
        self._load_network(loaded, board)
        computer.start_decoder()

    def _load_network(self, loaded: Loaded, board: Board) -> None:
        """Torch takes its time; predictions do not wait for it, and looks no longer than they must."""
        if loaded.network is not None:
            try:
                loaded.facts["parameters"] = loaded.network.parameters()
            except (VitrailError, MemoryError, RuntimeError) as error:
                tell(f"the network cannot be looked into, predictions go on: {said(error)}")
                loaded.without_network()
            self._send({"is": "facts"}, json.dumps(loaded.facts).encode())
        board.open_looks()

    def _live(self, config: ServeConfig) -> None:
        """Say how long the oldest piece of work has taken; the server decides what is too long."""
        while True:
            self._send({"is": "alive", "longest": self._watch.longest()})
            time.sleep(min(_LONGEST_SILENCE, config.wedged / 4))

    def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        try:
            with self._sending:
                for piece in packed(header, body):
                    self._connection.sendall(piece)
        except OSError:
            os._exit(0)


def _take(board: Board, header: dict[str, Any], body: bytes) -> None:
    """Do what the server says."""
    if header.get("do") == "job":
        number, asked, deadline = header["number"], header["asked"], header["deadline"]
        board.receive(Task(number, header["kind"], header["options"], body, asked, deadline))
    elif header.get("do") == "cancel":
        board.cancel(header["number"])
    else:
        raise FrameError(f"a frame says to do {header.get('do')!r}")


def _start(target: Callable[..., None], *arguments: Any) -> None:
    """A thread whose unforeseen end is the end of the process: half a worker is none."""

    def run() -> None:
        try:
            target(*arguments)
        except BaseException:
            import traceback

            tell(f"a thread ended\n{traceback.format_exc()}")
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()


def _show_warning(message: Any, category: type[Warning], *_rest: Any) -> None:
    tell(f"note: {message.spelled(OPTIONS) if isinstance(message, Notice) else message}")


def main() -> None:
    """Serve the socket whose number is the only argument."""
    # Ctrl-C in a terminal, or a service that is stopped, reaches every process; the server alone decides when we end.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    warnings.showwarning = _show_warning
    connection = socket.socket(fileno=int(sys.argv[1]))
    # What libraries print belongs into the log.
    os.dup2(2, 1)
    try:
        Worker(connection).serve()
    except (FrameError, VitrailError, KeyError, TypeError, ValueError) as error:
        tell(f"the server sent what cannot be understood: {error!r}")
        os._exit(1)
    except OSError:
        pass
    # Not `sys.exit`, which would wait for the threads.
    os._exit(0)


if __name__ == "__main__":
    main()
