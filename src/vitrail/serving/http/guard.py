"""What every request passes: who may ask, from where, and what every answer carries."""

import asyncio
import hmac
import ipaddress
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitrail.config.serve import ServeConfig
from vitrail.serving.http.problems import Gone, Problem, problem_answer

SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        b"media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(self)"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_WILDCARDS = ("0.0.0.0", "::")
_SAME_SITE = ("same-origin", "none")
# A client that was too slow for its body is not waited for again.
_SHORT_LINGER = 1.0
_REQUEST_TIMEOUT = 408
CLIENT_GONE = 499

Seen = Callable[[Scope, int, float], None]


@dataclass
class Standing:
    """Where a server stands, as its connections need to know it."""

    is_draining: bool = False
    """Whether each answer is the last one on its connection."""


class Guard:
    """Lets a request through to the routes, or refuses it before its body is read."""

    def __init__(
        self, app: ASGIApp, config: ServeConfig, standing: Standing, is_open: Callable[[str], bool], seen: Seen
    ) -> None:
        """`is_open` says which paths need no token; `seen` is told the status and seconds of every request."""
        self._app, self._config, self._standing, self._is_open, self._seen = app, config, standing, is_open, seen
        self._hosts = _known_hosts(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = _Exchange(receive, send, self._standing, self._config.body_seconds)
        headers = Headers(scope=scope)
        exchange.expects = "expect" in headers
        exchange.must_close = _is_last(scope, headers)
        begin = time.perf_counter()
        try:
            self._ensure_allowed(scope, headers)
            await self._app(scope, exchange.receive, exchange.send)
        except Problem as problem:
            await problem_answer(problem)(scope, exchange.receive, exchange.send)
        except Gone:
            exchange.status = CLIENT_GONE
        finally:
            self._seen(scope, exchange.status, time.perf_counter() - begin)

    def _ensure_allowed(self, scope: Scope, headers: Headers) -> None:
        self._ensure_host(headers)
        if self._config.token is not None and not self._is_open(scope["path"]):
            ensure_bearer(headers.get("authorization", ""), self._config.token)
        if scope["method"] not in ("GET", "HEAD"):
            _ensure_same_site(headers)

    def _ensure_host(self, headers: Headers) -> None:
        """A name that leads here by somebody else's doing (DNS rebinding) is not ours."""
        given = headers.getlist("host")
        name = _without_port(given[0]).lower() if len(given) == 1 else ""
        if name in self._hosts or (self._config.host in _WILDCARDS and _is_address(name)):
            return
        shown = given[0][:80] if given else "missing"
        raise Problem(
            421,
            "wrong_host",
            f"The host is {shown!r}; wanted one of {', '.join(sorted(self._hosts))}. "
            f"Start the server with --allow-host NAME to add a name.",
        )


def _is_last(scope: Scope, headers: Headers) -> bool:
    """Whether nothing can follow on this connection; what comes after a refused upgrade would be read as nothing."""
    return scope["http_version"] == "1.0" or "close" in headers.get("connection", "").lower() or "upgrade" in headers


def ensure_bearer(given: str, token: str) -> None:
    """Refuse a caller without the token, in the same time whatever was sent."""
    scheme, _, value = given.partition(" ")
    is_right = hmac.compare_digest(value.strip().encode("utf-8", "surrogateescape"), token.encode())
    if scheme.lower() != "bearer" or not is_right:
        message = "The token is wrong" if given else "There is no token"
        raise Problem(
            401,
            "no_token",
            f"{message}; wanted the header Authorization: Bearer TOKEN, with the token the server was started with.",
            {"WWW-Authenticate": "Bearer"},
        )


def _ensure_same_site(headers: Headers) -> None:
    """Browsers say which page a request comes from; only our own may make them ask."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    # Compared as text: what browsers send is `scheme://host`, and anything else is nobody's page.
    is_ours = origin is None or origin.lower().partition("://")[2] == headers.get("host", "").lower()
    if not is_ours or (site is not None and site not in _SAME_SITE):
        came = f"The page at {origin[:80]!r}" if origin else "A page of another site"
        raise Problem(
            403, "cross_site", f"{came} asked for this; wanted the server's own page, or a program that is no browser."
        )


def _known_hosts(config: ServeConfig) -> frozenset[str]:
    own = f"[{config.host}]" if ":" in config.host else config.host
    names = {*_LOOPBACK, own, *config.allow_host}
    if config.host in _WILDCARDS:
        names = (names - {own}) | {socket.gethostname()}
    return frozenset(name.lower() for name in names)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and (port.isdigit() or not port) and not name.endswith(":") else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


class _Exchange:
    """One request and its answer: adds what every answer carries, and ends the connection so that nothing is lost."""

    def __init__(self, receive: Receive, send: Send, standing: Standing, linger: float) -> None:
        self._receive, self._send, self._standing, self._linger = receive, send, standing, linger
        self.status = CLIENT_GONE
        self.expects = self.must_close = self._has_body = False

    async def receive(self) -> Message:
        # Asking for the body is what tells a client that waits to send it.
        self.expects = False
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            self._has_body = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            await self._send({**message, "headers": self._headers(list(message["headers"]))})
        elif message.get("more_body") or not self.must_close or self._has_body:
            await self._send(message)
        else:
            # Closing now would reset the connection under a client that still sends, and take the answer with it.
            await self._send({**message, "more_body": True})
            await self._drop_body()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        self.must_close |= any(name.lower() == b"connection" and value == b"close" for name, value in headers)
        # Where the body was not asked for, it is not known whether it comes; so nothing else can on this connection.
        self.must_close |= self.expects or self._standing.is_draining
        if self.must_close:
            headers = [(name, value) for name, value in headers if name.lower() != b"connection"]
            headers.append((b"connection", b"close"))
        return headers + list(SECURITY_HEADERS)

    async def _drop_body(self) -> None:
        try:
            async with asyncio.timeout(_SHORT_LINGER if self.status == _REQUEST_TIMEOUT else self._linger):
                while not self._has_body:
                    await self.receive()
        except TimeoutError:
            return
