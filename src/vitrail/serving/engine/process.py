"""One worker as the server sees it: a child process, a socket to it, and the questions that are open."""

import asyncio
import itertools
import json
import logging
import math
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from vitrail.config import to_json
from vitrail.config.serve import ServeConfig
from vitrail.serving.engine.frames import FrameError, packed, receive_frame
from vitrail.serving.engine.job import Job, Reason, Refused
from vitrail.serving.looks.reply import MOST_BYTES, Reply

Told = Callable[[dict[str, Any]], None]

# The largest array, and what JSON needs more.
_MOST_REPLY = 2 * MOST_BYTES
# Python itself has to start before it can say that it lives.
_LONGEST_START = 60.0
_LONGEST_END = 2.0
_RETRY = 1.0
# Threads of torch that wait for each other by spinning slow a busy machine down tenfold; and what decoders free goes
# back to the system instead of to a store of each thread.
_QUIET_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "MALLOC_ARENA_MAX": "2"}
# Nothing that the process in which strangers' files are decoded has to know.
_TOKEN = "VITRAIL_TOKEN"

_log = logging.getLogger("vitrail.serving.engine")


class WorkerProcess:
    """A worker from its start to its end; all methods belong to one loop of events."""

    def __init__(self, config: ServeConfig, told: Told) -> None:
        self._config, self._told = config, told
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[Reply]] = {}
        self._has_none_open = asyncio.Event()
        self._has_none_open.set()
        self._settled = asyncio.Event()
        self._heard = math.inf
        self._longest = 0.0
        self._why_gone: Reason = "broken"
        self.gone = asyncio.Event()
        self.facts: dict[str, Any] | None = None
        """What the model is, once it is loaded."""
        self.hello: dict[str, Any] = {}
        """What the worker said when it was ready: its pace."""
        self.failure: tuple[str, int] | None = None
        """Why the model could not be loaded, and the exit code of that."""

    async def launch(self, generation: int) -> None:
        """Start the process and tell it what to load."""
        ours, theirs = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "vitrail.serving.engine.worker", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                # Out of the terminal's reach.
                start_new_session=True,
                env=_QUIET_THREADS | {name: value for name, value in os.environ.items() if name != _TOKEN},
            )
            self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()  # A worker without a socket ends by itself.
            raise
        finally:
            theirs.close()
        self._started = asyncio.get_running_loop().time()
        self._send({"config": to_json(self._config) | {"token": None}, "generation": generation})
        self._reading, self._watching = asyncio.create_task(self._read()), asyncio.create_task(self._watch())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        return self.gone.is_set()

    async def is_ready(self) -> bool:
        """Wait until the model is loaded, or is known not to be."""
        await self._settled.wait()
        return self.facts is not None and not self.is_gone

    async def ask(self, job: Job, deadline: float) -> Reply:
        """Send a job and wait; who stops waiting takes it back, and it is dropped if it has not begun."""
        if self.is_gone:
            raise Refused(self._why_gone, _RETRY)
        # A worker that does not read fills our memory.
        if self._writer.transport.get_write_buffer_size() > self._config.max_bytes:
            raise Refused("busy", _RETRY)
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        answered = self._open[number] = loop.create_future()
        self._has_none_open.clear()
        head = {"do": "job", "number": number, "kind": job.kind, "options": job.options}
        self._send({**head, "asked": loop.time(), "deadline": deadline}, job.body)
        try:
            return await answered
        finally:
            if self._open.pop(number, None) is not None and not self.is_gone:
                self._send({"do": "cancel", "number": number})
            if not self._open:
                self._has_none_open.set()

    async def finish(self) -> None:
        """Wait for the open answers, then end it."""
        await self._has_none_open.wait()
        await self.end()

    async def end(self) -> None:
        """Close the socket, upon which the worker ends by itself; one that does not is killed."""
        if not self.is_gone:
            self._why_gone = "draining"
            self._writer.close()
            try:
                await asyncio.wait_for(self._process.wait(), _LONGEST_END)
            except TimeoutError:
                self.kill()
        await asyncio.wait([self._reading])

    def kill(self) -> None:
        """At once, whatever it is doing."""
        if self._process.returncode is None:
            self._process.kill()

    def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        for piece in packed(header, body):
            self._writer.write(piece)

    async def _read(self) -> None:
        """Take what the worker says until it says no more."""
        try:
            while (frame := await receive_frame(self._reader, _MOST_REPLY)) is not None:
                self._heard = asyncio.get_running_loop().time()
                self._take(*frame)
        except OSError:
            pass  # It was killed while it had something to read.
        except (FrameError, KeyError, TypeError, ValueError, AttributeError) as error:
            _log.error("the worker sent what cannot be understood: %r", error)
        finally:
            self._over()
        await self._process.wait()

    def _take(self, header: dict[str, Any], body: bytes) -> None:
        kind = header["is"]
        if kind == "reply":
            answered = self._open.pop(header["number"], None)
            if answered is not None and not answered.done():
                answered.set_result(Reply(int(header["status"]), header["type"], dict(header["headers"]), body))
                self._told(header)
        elif kind == "alive":
            self._longest = float(header["longest"])
        elif kind in ("ready", "facts"):
            self.facts = json.loads(body)
            self.hello = header if kind == "ready" else self.hello
            self._told(header)
            self._settled.set()
        elif kind == "failed":
            self.failure = str(header["message"]), int(header["exit_code"])
        elif kind == "done":
            self._told(header)
        else:
            raise FrameError(f"a frame is {kind!r}")

    async def _watch(self) -> None:
        """Kill a worker that is stuck: on one piece of work, or so that it says nothing any more."""
        limit = self._config.wedged
        while not self.is_gone:
            await asyncio.sleep(min(1.0, limit / 4))
            now = asyncio.get_running_loop().time()
            is_silent = now - self._started > _LONGEST_START if self._heard == math.inf else now - self._heard > limit
            if (self._longest > limit or is_silent) and not self.is_gone:
                _log.error("the worker %d is stuck for more than %g s, and is killed", self.pid, limit)
                self.kill()
                return

    def _over(self) -> None:
        """The worker is no more: everybody who waits is told."""
        self.gone.set()
        self._settled.set()
        self._watching.cancel()
        self.kill()
        self._writer.close()
        for answered in self._open.values():
            if not answered.done():
                answered.set_exception(Refused(self._why_gone, _RETRY))
        self._open.clear()
        self._has_none_open.set()
