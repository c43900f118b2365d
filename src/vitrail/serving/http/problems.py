"""Every refusal over HTTP: a status, a code for programs, and one sentence for people."""

import math

from starlette.responses import Response

from vitrail.runtime.json_text import json_text


class Problem(Exception):
    """A request that is not answered as it was asked."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers or {}


class Gone(Exception):
    """The client left before its answer was there."""


# What is said when the engine takes no more; the reasons are the engine's.
_BUSY = {
    "busy": "the server has as much to do as it can answer in time",
    "loading": "the model is still being read",
    "draining": "the server is about to end",
    "broken": "the process of the model ended, and is being started again",
    "late": "the answer was not there in time",
}


def busy(reason: str, retry_after: float) -> Problem:
    """Come again later."""
    seconds = max(1, math.ceil(retry_after))
    message = f"{_BUSY.get(reason, reason)}; ask again in {seconds} s.".capitalize()
    return Problem(503, reason, message, {"Retry-After": str(seconds)})


def json_answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer for programs; nothing keeps it, because the model may change."""
    body = json_text(value).encode()
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, media_type="application/json")


def problem_answer(problem: Problem) -> Response:
    """The one shape of every refusal."""
    return json_answer(problem_record(problem.code, problem.message), problem.status, problem.headers)


def problem_record(code: str, message: str) -> dict[str, dict[str, str]]:
    """What is said in place of an answer."""
    return {"error": {"code": code, "message": message}}
