"""Connections from a listening socket that another process may share, and their end without a lost request."""

import asyncio
import socket
import time
from email.utils import formatdate
from typing import cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from vitrail.serving.http.connection import KEEP_ALIVE, Connection, drop_most_unread, idle

_AT_ONCE = 64
# A few of the largest answers.
_MOST_UNREAD = 256 * 2**20
_PAUSE = 0.1
_TICK = 0.02


class Listener:
    """Accepts connections until told to drain.

    asyncio's own server drops connections that it accepted in the moment of its closing; here stopping is one call
    between two connections, and those that nobody accepted yet stay in the kernel for the next process.
    """

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        self._config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
        )
        self._config.load()
        self._state = ServerState()
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._clock = self._loop.create_task(self._tick())
        self._is_accepting = self._is_draining = False

    def accept(self) -> None:
        """Begin to accept."""
        if not self._is_accepting and not self._is_draining:
            self._is_accepting = True
            self._listening.setblocking(False)
            self._loop.add_reader(self._listening, self._accept)

    def stop_accepting(self) -> None:
        """Leave whoever comes now to another process."""
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._listening)

    async def drain(self, seconds: float, at_most: float) -> None:
        """Wait until every connection has ended: idle ones for some seconds, others as long as their request takes.

        Whoever asks meanwhile gets an answer that says that it is the last.
        """
        if self._is_accepting:
            # Whoever has come before this moment is ours, also where nobody takes over.
            self._accept()
        self._is_draining = True
        self.stop_accepting()
        self._listening.close()
        begin = self._loop.time()
        while self._state.connections or self._opening:
            waited = self._loop.time() - begin
            if waited >= seconds:
                for connection in idle(self._state.connections):
                    connection.transport.close()
            if waited >= at_most:
                break
            await asyncio.sleep(_TICK)
        self._clock.cancel()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of file descriptors, most likely: look again when some have been given back.
                self.stop_accepting()
                self._loop.call_later(_PAUSE, self.accept)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> Connection:
        return Connection(self._config, self._state, {}, _loop=self._loop)

    async def _tick(self) -> None:
        """Once a second: the date for all answers, and the end of those who do not read theirs."""
        while True:
            self._state.default_headers = [(b"date", formatdate(time.time(), usegmt=True).encode())]
            for connection in list(self._state.connections):
                cast("Connection", connection).drop_unread(self._loop.time())
            drop_most_unread(self._state.connections, _MOST_UNREAD)
            await asyncio.sleep(1)
