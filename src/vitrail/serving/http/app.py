"""The application: the table of routes, each with the function that answers it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope

from vitrail.config.serve import ServeConfig
from vitrail.serving.engine import Engine, Job, Refused, Reply
from vitrail.serving.http.bodies import memory_for, read_image
from vitrail.serving.http.guard import Guard, Standing
from vitrail.serving.http.metrics import CONTENT_TYPE, Metrics
from vitrail.serving.http.openapi import openapi
from vitrail.serving.http.options import Facts, ensure_can, read_options
from vitrail.serving.http.page_files import PageFile, page_answer, read_page
from vitrail.serving.http.problems import Gone, Problem, busy, json_answer
from vitrail.serving.http.routes import ENDPOINTS, Endpoint, ensure_small

Answering = Callable[[Request], Awaitable[Response]]

_PAGE = "/page/"
_PATHS = {endpoint.path for endpoint in ENDPOINTS}
_OPEN = {endpoint.path for endpoint in ENDPOINTS if endpoint.is_open}
_log = logging.getLogger("vitrail.serving")


class App:
    """Answers requests with the help of an engine."""

    def __init__(
        self,
        config: ServeConfig,
        engine: Engine,
        *,
        page: dict[str, PageFile] | None = None,
        logs_access: bool = False,
    ) -> None:
        self.config, self.engine, self.standing = config, engine, Standing()
        self.metrics = Metrics(lambda: self._unready() is None, lambda: (engine.facts or {}).get("generation", 0))
        self._page = read_page() if page is None else page
        self._memory = memory_for(config)
        self._logs_access = logs_access
        own: dict[str, Answering] = {
            "/healthz": self._health,
            "/readyz": self._readiness,
            "/metrics": self._metrics,
            "/openapi.json": self._document,
            "/": self._index,
            "/v1/model": self._model,
        }
        routes = [
            Route(one.path, own[one.path] if one.kind is None else self._job(one), methods=[one.method])
            for one in ENDPOINTS
        ]
        routes.append(Route(f"{_PAGE}{{file:path}}", self._file))
        router = Router(routes, redirect_slashes=False)
        self.asgi: ASGIApp = Guard(_Caught(router), config, self.standing, _is_open, self._seen)

    def _unready(self) -> str | None:
        """Why no prediction would be answered now."""
        if self.standing.is_draining:
            return "draining"
        return None if self.engine.state in ("ready", "swapping") else self.engine.state

    async def _health(self, request: Request) -> Response:
        return json_answer({"status": "ok"})

    async def _readiness(self, request: Request) -> Response:
        reason = self._unready()
        if reason is None:
            return json_answer({"ready": True})
        return json_answer({"ready": False, "reason": reason}, 503, {"Retry-After": "1"})

    async def _metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    async def _document(self, request: Request) -> Response:
        return json_answer(openapi(self.config, self.engine.facts, self._page))

    async def _index(self, request: Request) -> Response:
        return page_answer(self._page, "index.html", request)

    async def _file(self, request: Request) -> Response:
        return page_answer(self._page, request.path_params["file"], request)

    async def _model(self, request: Request) -> Response:
        return json_answer(self._facts())

    def _facts(self) -> Facts:
        if self.engine.facts is None:
            raise Refused("loading", 1.0)
        return self.engine.facts

    def _job(self, endpoint: Endpoint) -> Answering:
        kind = endpoint.kind
        assert kind is not None

        async def answer(request: Request) -> Response:
            facts = self._facts()
            ensure_can(facts, endpoint.ability, endpoint.path)
            options = read_options(request.query_params.multi_items(), endpoint.options, facts)
            ensure_small(kind, options, facts)
            self.engine.ensure_room(kind)
            with self._memory.part() as part:
                body = b""
                if endpoint.takes_image:
                    body = await read_image(request.headers, request.receive, self.config, part)
                deadline = asyncio.get_running_loop().time() + self.config.deadline
                reply = await _unless_gone(self.engine.ask(Job(kind, options, body), deadline), request.receive)
            return _answer(reply)

        async def answer_or_refuse(request: Request) -> Response:
            try:
                return await answer(request)
            except Refused as refused:
                self.metrics.refused(refused.reason)
                raise

        return answer_or_refuse

    def _seen(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"]
        route = path if path in _PATHS else _PAGE if path.startswith(_PAGE) else "other"
        self.metrics.request(route, status, seconds)
        if self._logs_access:
            who = (scope.get("client") or ("-",))[0]
            shown = path.encode("unicode_escape").decode()[:200]
            _log.info("%s %s %s %d %.3f s", who, scope["method"], shown, status, seconds)


def _is_open(path: str) -> bool:
    """Whether a path is answered without the token: the page has to ask for it."""
    return path in _OPEN or path.startswith(_PAGE)


class _Caught:
    """Turns what the routes raise into refusals; a fault of ours is logged, and the client may ask again."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Any) -> None:
        # Told that it is part of an application, the router raises what it would otherwise say itself, as plain text.
        scope["app"] = self
        try:
            await self._app(scope, receive, send)
        except Refused as refused:
            raise busy(refused.reason, refused.retry_after) from None
        except HTTPException as error:
            raise _problem(error, scope) from None
        except (Problem, Gone):
            raise
        except Exception as error:
            _log.exception("answering %s failed", scope["path"])
            raise busy("broken", 1.0) from error


def _problem(error: HTTPException, scope: Scope) -> Problem:
    """What the router has to say, in our words."""
    headers = dict(error.headers or {})
    shown = scope["path"][:80]
    if error.status_code == 405:
        wanted = headers.get("Allow", "another method")
        return Problem(405, "wrong_method", f"The method is {scope['method']}; wanted {wanted} for {shown}.", headers)
    known = ", ".join(sorted(_PATHS))
    return Problem(404, "not_found", f"There is nothing at {shown!r}; wanted one of {known}.", headers)


def _answer(reply: Reply) -> Response:
    headers = {"Cache-Control": "no-store", **reply.headers, "Content-Type": reply.content_type}
    return Response(reply.body, reply.status, headers)


async def _unless_gone(asking: Coroutine[Any, Any, Reply], receive: Receive) -> Reply:
    """The answer, unless the client leaves first: then the work is dropped."""
    work = asyncio.ensure_future(asking)
    left = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise Gone
    finally:
        for task in (work, left):
            task.cancel()
        await asyncio.gather(work, left, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
