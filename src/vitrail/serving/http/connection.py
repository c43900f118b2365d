"""One connection: uvicorn's protocol, with limits on what a request brings beside its body and on the time of it all.

What is wrong before there is a request is refused here. The parser is fed in small pieces, so that the limits hold
however the bytes were cut on their way.
"""

import asyncio
import heapq
import json
import resource
import socket
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from vitrail.serving.http.guard import SECURITY_HEADERS
from vitrail.serving.http.problems import problem_record

KEEP_ALIVE = 75
"""Seconds that a connection may be silent between requests; longer than those of the usual reverse proxies."""
_HEAD_SECONDS = 10.0
_HEAD_BYTES = 32 * 2**10
_HEAD_LINES = 200
_AROUND_A_HEADER = len(": \r\n")
# Sizes, extensions and ends of all chunks of a body; a body of 20 MiB in pieces of 1 KiB needs half of it.
_CHUNK_BYTES = 2**20
_PIECE = 4 * 2**10
_MOST_AHEAD = 32
_REST_SECONDS = 10.0
_LINGER_SECONDS = 1.0
_UNREAD_SECONDS = 30.0
# A client that has sent everything may have left or may wait, which look alike; after so long it is found out.
_LEFT_SECONDS = 1.0
# For so long nobody's connection is ended for the sake of another, unless many are as young.
_YOUNG_SECONDS = 1.0
# Left over for the processes that have to be started, whoever is connected.
_KEPT_DESCRIPTORS = 64


def most_connections(descriptors: int) -> int:
    """How many may be open where a process may have so many file descriptors; a negative number is no limit."""
    return 1000 if descriptors < 0 else max(1, min(1000, descriptors - _KEPT_DESCRIPTORS))


MOST_CONNECTIONS = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class _Wrong(Exception):
    """What ends the parser, which then asks for `send_400_response`."""


class Connection(HttpToolsProtocol):
    """Reads heads and bodies; what is wrong before there is a request is refused here, in the words of the rest."""

    _timer: asyncio.TimerHandle | None = None
    _phase = ""
    _phase_since = _unread_since = 0.0
    _is_in_head = _is_in_body = _is_deaf = False
    has_asked = False
    """Whether a whole request has come."""
    _bare_bytes = 0
    """Bytes since the last that belonged to a body: a head, or what chunks bring beside it, such as trailers."""
    _chunk_bytes = 0
    """Bytes since the head that did not belong to the body."""
    _unread = 0
    _wrong: tuple[int, str, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._settle()
        if len(self.connections) > MOST_CONNECTIONS and not make_room(self.connections, self):
            self._refuse(503, "busy", _FULL, retry=1)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            if self._is_deaf or self.transport.is_closing():
                return
            piece = view[start : start + _PIECE]
            self._bare_bytes += len(piece)
            self._chunk_bytes += len(piece)
            super().data_received(cast("bytes", piece))
            if (self._is_in_head or self._is_in_body) and self._bare_bytes > _HEAD_BYTES:
                self._refuse(*_LONG_HEAD)
        if not self._is_deaf and not self.transport.is_closing():
            self._settle()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more; whoever has asked for something whole is answered before the connection ends."""
        if not self._is_answering or self._is_in_body:
            return False
        # Of requests sent ahead this is the last.
        self.cycle.keep_alive = False
        self.loop.call_later(_LEFT_SECONDS, self._drop_left)
        return True

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are no headers: whoever passed the request on has not looked at them.
        if self._is_in_head:
            super().on_header(name, value)
            if len(self.headers) > _HEAD_LINES:
                self._end_parser(*_LONG_HEAD)

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) + _AROUND_A_HEADER for name, value in self.headers) > _HEAD_BYTES:
            self._end_parser(*_LONG_HEAD)
        if len(self.pipeline) >= _MOST_AHEAD:
            self._end_parser(400, "bad_request", f"More than {_MOST_AHEAD} requests were sent ahead; wanted fewer.")
        self._ensure_framed()
        self._take_authority()
        self._is_in_head, self._is_in_body, self._bare_bytes, self._chunk_bytes = False, True, 0, 0
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """A chunk begins; what it brings beside the body is counted over all of them."""
        if self._chunk_bytes > _CHUNK_BYTES:
            self._end_parser(400, "bad_request", "There is more to the chunks than to the body; wanted larger ones.")

    def on_body(self, body: bytes) -> None:
        self._bare_bytes = 0
        self._chunk_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body, self._bare_bytes, self.has_asked = False, 0, True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._settle()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or too much of it."""
        self._refuse(*self._wrong or _NO_HTTP)

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self._phase in ("", "idle")

    @property
    def unread(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self.transport.get_write_buffer_size()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def drop_unread(self, now: float) -> None:
        """End a connection whose client has read nothing of its answer for a while; it would be kept for ever."""
        left = self.unread
        if left == 0 or left != self._unread:
            self._unread, self._unread_since = left, now
        elif now - self._unread_since > _UNREAD_SECONDS:
            self.transport.abort()

    def dispensable(self, *, spares_young: bool) -> tuple[bool, bool, int, float] | None:
        """How soon it is ended when another needs its place, the smallest first; None for a request that is whole.

        Those who never asked for anything go before those who did, unless they are young and such are spared.
        """
        if self.transport.is_closing() or (self._is_answering and not self._is_in_body):
            return None
        is_young = self.loop.time() - self._phase_since < _YOUNG_SECONDS
        rank = 3 if self.unread else 0 if self.is_idle else 2 if self._is_answering else 1
        return self.has_asked or (is_young and spares_young), is_young, 0 if is_young else rank, self._phase_since

    def make_way(self) -> None:
        """End, because another needs the place."""
        if self.unread:
            self.transport.abort()
        elif self.is_idle:
            self.transport.close()
        else:
            self._refuse(503, "busy", _FULL, retry=1)
            self.transport.close()

    def _ensure_framed(self) -> None:
        """Refuse what others on the way might cut into other requests than we; the parser has let it through."""
        codings = b",".join(value for name, value in self.headers if name == b"transfer-encoding").lower()
        parser = cast("httptools.HttpRequestParser", self.parser)
        version = parser.get_http_version()
        if version not in ("1.0", "1.1", "0.9"):
            self._end_parser(505, "bad_version", f"The version is HTTP/{version}; wanted HTTP/1.1.")
        if codings and (version != "1.1" or codings.strip(b" \t") != b"chunked"):
            self._end_parser(501, "bad_coding", "The transfer coding is not known; wanted chunked alone, in HTTP/1.1.")
        if parser.should_upgrade() and any(name in _BODY_HEADERS for name, _ in self.headers):
            self._end_parser(400, "bad_request", "A request with a body wants to upgrade; wanted HTTP/1.1 as it is.")
        if version != "1.1":
            self.expect_100_continue = False

    def _take_authority(self) -> None:
        """Where the target names a host, that is the host which was asked for, whatever the header says."""
        if self.url.startswith(b"/") or self.url == b"*":
            return
        scheme, _, rest = self.url.partition(b"://")
        hosts = [value for name, value in self.headers if name == b"host"]
        if scheme.lower() not in (b"http", b"https") or len(hosts) > 1:
            self._end_parser(*_NO_HTTP)
        authority = rest.partition(b"/")[0].partition(b"?")[0]
        # The scope of the request holds this very list.
        self.headers[:] = [(name, value) for name, value in self.headers if name != b"host"] + [(b"host", authority)]

    def _end_parser(self, status: int, code: str, message: str) -> None:
        self._wrong = status, code, message
        raise _Wrong

    def _drop_left(self, *, is_asked: bool = False) -> None:
        """Find out whether a client that sends no more still reads: who has left answers any byte with a reset."""
        if self.transport.is_closing() or not self._is_answering:
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        may_ask = not (is_asked or self.pipeline or self.cycle.response_started)
        if may_ask and self.cycle.scope["http_version"] == "1.1":
            self.transport.write(STATUS_LINE[100] + b"\r\n")
            is_asked = True
        self.loop.call_later(_LEFT_SECONDS, lambda: self._drop_left(is_asked=is_asked))

    def _settle(self) -> None:
        """Give the connection the time that its phase has; a request that is being answered has its own limits."""
        phase = "busy" if self._is_answering else "head" if self._is_in_head else "rest" if self._is_in_body else "idle"
        if phase == self._phase:
            return
        self._phase, self._phase_since = phase, self.loop.time()
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
        """Say what is wrong and end; a request before it that is still being answered is answered first."""
        self._is_deaf = True
        if self._is_answering and not self._is_in_body:
            self.cycle.keep_alive = False
            return
        if self._is_answering and (self.cycle.response_started or self.pipeline):
            self.transport.close()
            return
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
        # Closing now would reset the connection under a client that still sends, and take the answer with it.
        self.transport.write_eof()
        self._stop_timer()
        self._phase, self._timer = "idle", self.loop.call_later(_LINGER_SECONDS, self.transport.close)
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()


_FULL = f"The server has {MOST_CONNECTIONS:,} connections; ask again in 1 s."
_NO_HTTP = (400, "bad_request", "The request is no HTTP/1.1 that could be read; wanted one.")
_LONG_HEAD = (
    431,
    "long_head",
    f"The head or the trailers have more than {_HEAD_BYTES:,} bytes or {_HEAD_LINES} lines; wanted fewer.",
)
_BODY_HEADERS = (b"content-length", b"transfer-encoding")


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


def make_room(connections: set[Any], newcomer: Connection) -> bool:
    """End some connections that have done nothing for the longest; False where all are being answered."""
    others = [one for one in cast("set[Connection]", connections) if one is not newcomer]
    if sum(not one.transport.is_closing() for one in others) < MOST_CONNECTIONS:
        return True
    # Who has just come needs a moment to ask. But where half of all have just come, that is a crowd, and it makes way
    # for itself before those who asked for something and will again.
    spares_young = 2 * sum(not one.has_asked for one in others) <= MOST_CONNECTIONS
    ranks = [one.dispensable(spares_young=spares_young) for one in others]
    ranked = [(rank, place) for place, rank in enumerate(ranks) if rank is not None]
    # Several, so that not everyone who comes has to look through all of them.
    for _, place in heapq.nsmallest(1 + MOST_CONNECTIONS // 250, ranked):
        others[place].make_way()
    return bool(ranked)
