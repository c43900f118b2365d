"""The server process: answers over HTTP and asks the engine; started by the supervisor, and never by people.

It imports no torch and decodes no image, so that nothing in an upload can stop it.
"""

import asyncio
import logging
import signal
import socket
import sys
import time

from vitrail.config import from_json
from vitrail.config.serve import ServeConfig
from vitrail.config.spelling import OPTIONS
from vitrail.errors import VitrailError
from vitrail.serving.engine import Engine
from vitrail.serving.http.app import App
from vitrail.serving.http.control import Control
from vitrail.serving.http.listener import Listener

_GRACE = 5.0
# A large model on a slow disk.
_LONGEST_START = 3600.0
# Of what nobody foresaw, and what may go better another time.
_UNKNOWN = 1
_log = logging.getLogger("vitrail.serving")


def main(engine: type[Engine] = Engine) -> None:
    """Run with the descriptors of the listening socket and of the supervisor's socket as arguments."""
    listening, control = (socket.socket(fileno=int(word)) for word in sys.argv[1:3])
    logging.basicConfig(level=logging.INFO, format="vitrail: %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(asyncio.run(_run(listening, control, engine)))


async def _run(listening: socket.socket, end: socket.socket, engine: type[Engine]) -> int:
    control = await Control.open(end)
    first = await control.hear()
    if first is None:
        return 1
    config = from_json(ServeConfig, first["config"], where="the supervisor")
    # Counted on from the clock, so that no model of another process has the same number.
    server = _Server(config, engine(config, int(time.time())), listening, control)
    try:
        await server.run(accepts=first["accepts"], logs_access=first["logs_access"])
    except VitrailError as error:
        # Shown to those who started it, at the command line.
        error.spell(OPTIONS)
        control.tell(event="failed", message=str(error), exit_code=error.exit_code, is_sure=error.exit_code != _UNKNOWN)
        await control.told()
        return error.exit_code
    finally:
        control.close()
    return 0


class _Server:
    """An engine, an application over it, and what the supervisor asks of both."""

    def __init__(self, config: ServeConfig, engine: Engine, listening: socket.socket, control: Control) -> None:
        self._config, self._engine, self._listening, self._control = config, engine, listening, control
        self._must_drain = asyncio.Event()
        self._swapping: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def run(self, *, accepts: bool, logs_access: bool) -> None:
        """Serve until told to drain; raises what keeps the model from being read at the start."""
        app = App(self._config, self._engine, logs_access=logs_access)
        self._engine.observe = app.metrics
        listener = Listener(app.asgi, self._listening)
        if accepts:
            listener.accept()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._must_drain.set)
        hearing = loop.create_task(self._hear(listener))
        starting = loop.create_task(self._start(listener))
        starting.add_done_callback(self._started)
        await self._must_drain.wait()
        app.standing.is_draining = True
        hearing.cancel()
        longest = self._config.drain + self._config.body_seconds + self._config.deadline + _GRACE
        await listener.drain(self._config.drain, longest)
        starting.cancel()
        await self._engine.stop()
        if self._failure is not None:
            raise self._failure

    async def _start(self, listener: Listener) -> None:
        # What goes wrong before the first answer is told by the supervisor, once.
        engine_log = logging.getLogger("vitrail.serving.engine")
        engine_log.setLevel(logging.CRITICAL)
        await self._engine.start()
        if not await self._engine.wait_ready(_LONGEST_START):
            raise _failed(self._engine)
        engine_log.setLevel(logging.NOTSET)
        listener.accept()
        self._control.tell(event="ready", facts=self._engine.facts)

    def _started(self, starting: "asyncio.Task[None]") -> None:
        if not starting.cancelled() and (error := starting.exception()) is not None:
            self._failure = error
            self._must_drain.set()

    async def _hear(self, listener: Listener) -> None:
        """Do what the supervisor says; without one there is nothing to serve for."""
        while (record := await self._control.hear()) is not None:
            if record["do"] == "accept":
                listener.accept()
            elif record["do"] == "swap":
                task = asyncio.get_running_loop().create_task(self._swap())
                self._swapping.add(task)
                task.add_done_callback(self._swapping.discard)
            elif record["do"] == "drain":
                self._must_drain.set()
        self._must_drain.set()

    async def _swap(self) -> None:
        if await self._engine.swap():
            _log.info("the model was read again")


def _failed(engine: Engine) -> VitrailError:
    """Why the first model does not answer; the engine has logged what it cannot say in a sentence."""
    message, exit_code = engine.failure or ("the process of the model ended before it was ready", _UNKNOWN)
    error = VitrailError(message)
    error.exit_code = exit_code
    return error


if __name__ == "__main__":
    main()
