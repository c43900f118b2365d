"""One connection: uvicorn's protocol, with limits on the head of a request and on the time of everything around it."""

import asyncio
import json
import resource
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from vitrail.serve.http.guard import SECURITY_HEADERS
from vitrail.serve.http.problems import problem_record

KEEP_ALIVE = 75
"""Seconds that a connection may be silent between requests; longer than those of the usual reverse proxies."""
_HEAD_SECONDS = 10.0
_HEAD_BYTES = 32 * 2**10
_REST_SECONDS = 10.0
_UNREAD_SECONDS = 30.0
# Left over for the processes that have to be started, whoever is connected.
_KEPT_DESCRIPTORS = 64


def most_connections(descriptors: int) -> int:
    """How many may be open where a process may have so many file descriptors; a negative number is no limit."""
    return 1000 if descriptors < 0 else max(1, min(1000, descriptors - _KEPT_DESCRIPTORS))


MOST_CONNECTIONS = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class Connection(HttpToolsProtocol):
    """Reads heads and bodies; what is wrong before there is a request is refused here, in the words of the rest."""

    _timer: asyncio.TimerHandle | None = None
    _phase = ""
    _is_in_head = _is_in_body = False
    _bare_bytes = _unread = 0
    """Bytes since the last that belonged to a body: a head, or what chunks bring beside it, such as trailers."""
    _unread_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._refuse(503, "busy", f"The server has {MOST_CONNECTIONS:,} connections; ask again in 1 s.", retry=1)
            return
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._bare_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if (self._is_in_head or self._is_in_body) and self._bare_bytes > _HEAD_BYTES:
            self._refuse_long_head()
            return
        self._settle()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self._is_long():
            raise ValueError("a long head")  # What ends the parser, which then asks for `send_400_response`.
        self._is_in_head, self._is_in_body, self._bare_bytes = False, True, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bare_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body, self._bare_bytes = False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._settle()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or too much of it."""
        if self._is_in_head and self._is_long():
            self._refuse_long_head()
        else:
            self._refuse(400, "bad_request", "The request is no HTTP/1.1 that could be read; wanted one.")

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self._phase in ("", "idle")

    @property
    def unread(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self.transport.get_write_buffer_size()

    def drop_unread(self, now: float) -> None:
        """End a connection whose client has read nothing of its answer for a while; it would be kept for ever."""
        left = self.unread
        if left == 0 or left != self._unread:
            self._unread, self._unread_since = left, now
        elif now - self._unread_since > _UNREAD_SECONDS:
            self.transport.abort()

    def _is_long(self) -> bool:
        """Whether a head that came in one piece is too long."""
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > _HEAD_BYTES

    def _refuse_long_head(self) -> None:
        self._refuse(431, "long_head", f"The head is longer than {_HEAD_BYTES:,} bytes; wanted a shorter one.")

    def _settle(self) -> None:
        """Give the connection the time that its phase has; a request that is being answered has its own limits."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        phase = "busy" if is_answering else "head" if self._is_in_head else "rest" if self._is_in_body else "idle"
        if phase == self._phase and phase != "idle":
            return
        self._phase = phase
        self._stop_timer()
        seconds = {"idle": KEEP_ALIVE, "head": _HEAD_SECONDS, "rest": _REST_SECONDS}.get(phase)
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self._timed_out)

    def _timed_out(self) -> None:
        if self.transport.is_closing():
            return
        if self._phase == "head":
            self._refuse(408, "slow_head", f"The head did not come in {_HEAD_SECONDS:g} s; wanted all of it.")
        else:
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, code: str, message: str, retry: int | None = None) -> None:
        body = json.dumps(problem_record(code, message)).encode()
        headers: list[tuple[bytes, bytes]] = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *SECURITY_HEADERS,
        ]
        if retry is not None:
            headers.append((b"retry-after", str(retry).encode()))
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + body)
        self.transport.close()


def idle(connections: set[Any]) -> list[Connection]:
    """Those of the connections on which nothing is under way."""
    return [one for one in cast("set[Connection]", connections) if one.is_idle]


def drop_most_unread(connections: set[Any], at_most: int) -> None:
    """End those that leave the most unread, until all of them together keep no more bytes than this."""
    largest = sorted(cast("set[Connection]", connections), key=lambda one: one.unread)
    total = sum(one.unread for one in largest)
    while total > at_most:
        one = largest.pop()
        total -= one.unread
        one.transport.abort()
