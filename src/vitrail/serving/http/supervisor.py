"""The process that stays: it holds the address, and starts, replaces and ends the children that answer at it."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from vitrail.config import to_json
from vitrail.config.serve import ServeConfig
from vitrail.errors import VitrailError
from vitrail.serving.http.control import Control

_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_MOST_FAILURES = 3
# A child that answered for so long did not fail at its start.
_PROVEN = 10.0
# What is left to a child beyond all that its limits allow.
_GRACE = 5.0
_log = logging.getLogger("vitrail.serving")

Announce = Callable[[dict[str, Any]], None]


class Child:
    """One server process."""

    def __init__(self, process: asyncio.subprocess.Process, control: Control) -> None:
        self.process, self.control = process, control
        self.ready_at: float | None = None
        self.is_leaving = False
        self.failure: VitrailError | None = None
        self.is_sure = False
        """Whether another try would fail as well."""

    def leave(self) -> None:
        """Let it answer what it has, and end."""
        self.is_leaving = True
        self.control.tell(do="drain")

    def kill(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Supervisor:
    """Watches children; one that dies is replaced, and where the first three cannot even start, that is the end."""

    def __init__(
        self,
        config: ServeConfig,
        listening: socket.socket,
        announce: Announce,
        *,
        logs_access: bool = False,
        module: str = "vitrail.serving.http.server",
    ) -> None:
        """`announce` is told of the model once it answers; `module` is what a child runs."""
        self._module = module
        self._config, self._listening, self._announce, self._logs_access = config, listening, announce, logs_access
        self._current: Child | None = None
        self._next: Child | None = None
        self._watches: dict[Child, asyncio.Task[None]] = {}
        self._failures, self._pause = 0, _PAUSE
        self._is_stopping = self._was_ready = self._is_replacing = self._must_replace = False
        self._end: asyncio.Future[None]

    async def run(self) -> None:
        """Serve until a signal; raises what kept the children from starting."""
        loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        _handle_signals(loop, self.stop, self.replace, self.swap)
        self._current = await self._start(accepts=True)
        try:
            await self._end
        finally:
            for child in list(self._watches):
                child.kill()
            await asyncio.gather(*self._watches.values(), return_exceptions=True)

    def stop(self) -> None:
        """Answer what is under way and end; asked twice, end now."""
        if self._is_stopping:
            self._finish()
            return
        self._is_stopping = True
        _log.info("ending: what is under way is answered first; a second signal ends it now")
        self._listening.close()
        for child in self._watches:
            child.leave()
        limit = self._config.drain + self._config.body_seconds + self._config.deadline + 2 * _GRACE
        asyncio.get_running_loop().call_later(limit, self._finish)
        if not self._watches:
            self._finish()

    def replace(self) -> None:
        """Start a child with the code and the model as they are now; it takes over when it is ready."""
        if self._is_stopping:
            return
        if self._is_replacing or self._current is None or self._current.ready_at is None:
            # One is starting already, and may have read what has changed since.
            self._must_replace = True
            return
        _log.info("starting a new server process; the old one answers until it is ready")
        self._is_replacing = True
        self._spawn(self._start_next())

    def swap(self) -> None:
        """Let the model be read again by the process that serves."""
        for child in (self._current, self._next):
            if child is not None and not self._is_stopping:
                child.control.tell(do="swap")

    async def _start_next(self) -> None:
        if self._is_stopping:
            return
        try:
            self._next = await self._start(accepts=False)
        except VitrailError as error:
            self._is_replacing = False
            _log.error("the old server process goes on. %s", error)

    async def _start(self, *, accepts: bool) -> Child:
        here, there = socket.socketpair()
        descriptors = (self._listening.fileno(), there.fileno())
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", self._module, *map(str, descriptors)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=descriptors,
                # Ctrl-C in a terminal is for the supervisor, which lets the child finish.
                start_new_session=True,
            )
        except OSError as error:
            here.close()
            raise _error(f"no process can be started ({error.strerror})", 1) from None
        finally:
            there.close()
        child = Child(process, await Control.open(here))
        child.control.tell(config=to_json(self._config), accepts=accepts, logs_access=self._logs_access)
        self._watches[child] = self._spawn(self._watch(child))
        if self._is_stopping:
            child.leave()
        return child

    async def _watch(self, child: Child) -> None:
        """Hear what a child says, until it ends."""
        try:
            while (record := await child.control.hear()) is not None:
                if record["event"] == "ready":
                    self._ready(child, record["facts"])
                elif record["event"] == "failed":
                    child.failure, child.is_sure = _error(record["message"], record["exit_code"]), record["is_sure"]
            code = await child.process.wait()
        finally:
            child.control.close()
            del self._watches[child]
        self._ended(child, code)

    def _ready(self, child: Child, facts: dict[str, Any]) -> None:
        child.ready_at = asyncio.get_running_loop().time()
        self._failures = 0
        if child is self._next:
            if self._current is not None:
                self._current.leave()
            self._take_over(child)
            _log.info("the new server process has taken over")
        elif not self._was_ready:
            self._announce(facts)
        self._was_ready = True
        self._replace_if_asked_meanwhile()

    def _replace_if_asked_meanwhile(self) -> None:
        if self._must_replace:
            self._must_replace = False
            self.replace()

    def _ended(self, child: Child, code: int) -> None:
        if self._is_stopping:
            if not self._watches:
                self._finish()
        elif child is self._next:
            self._next, self._is_replacing = None, False
            _log.error("the new server process did not start; the old one goes on. %s", _reason(child, code))
            self._replace_if_asked_meanwhile()
        elif child is self._current:
            self._lost(child, code)

    def _lost(self, child: Child, code: int) -> None:
        """The child that served has ended; another takes its place."""
        self._current = None
        now = asyncio.get_running_loop().time()
        if child.ready_at is None:
            self._failures += 1
        elif now - child.ready_at > _PROVEN:
            self._pause = _PAUSE
        error = child.failure or _error(f"the server process ended at its start ({_how(code)})", 1)
        if not self._was_ready and (self._failures >= _MOST_FAILURES or child.is_sure):
            self._finish(error)
        elif self._next is not None:
            self._next.control.tell(do="accept")
            self._take_over(self._next)
        else:
            _log.error("%s; another is started in %.1f s", _reason(child, code).rstrip("."), self._pause)
            self._spawn(self._start_again(self._pause))
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _take_over(self, child: Child) -> None:
        self._current, self._next, self._is_replacing = child, None, False

    async def _start_again(self, pause: float) -> None:
        """Begin anew after a while; where not even a process can be started, after a longer one again."""
        await asyncio.sleep(pause)
        while self._current is None and not self._is_stopping:
            try:
                self._current = await self._start(accepts=True)
            except VitrailError as error:
                _log.error("%s", error)
                await asyncio.sleep(_LONGEST_PAUSE)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something meanwhile; what goes wrong with it is the end."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: None if done.cancelled() else self._after(done.exception()))
        return task

    def _after(self, error: BaseException | None) -> None:
        if error is not None:
            self._finish(error)

    def _finish(self, error: BaseException | None = None) -> None:
        if self._end.done():
            return
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)


def _error(message: str, exit_code: int) -> VitrailError:
    error = VitrailError(message)
    error.exit_code = exit_code
    return error


def _reason(child: Child, code: int) -> str:
    return str(child.failure) if child.failure else f"The server process ended ({_how(code)})."


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _handle_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], replace: Callable[[], None], swap: Callable[[], None]
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGUSR1, swap)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        # Started by nohup, which is meant to outlive its terminal.
        return
    had_terminal = _has_terminal()
    loop.add_signal_handler(signal.SIGHUP, lambda: stop() if had_terminal and not _has_terminal() else replace())


def _has_terminal() -> bool:
    """Whether there is a terminal; one that was closed sends the signal that otherwise asks for a restart."""
    try:
        os.close(os.open(Path("/dev/tty"), os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
