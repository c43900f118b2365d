"""An answer on its way to the one who asked; the web server reads it too, and loads nothing for it."""

from dataclasses import dataclass, field
from typing import Any

from vitrail.errors import UsageError
from vitrail.runtime.json_text import json_text

JSON = "application/json"
MOST_BYTES = 64 * 2**20
"""Of one array; a page that wants more asks for a part of it."""


@dataclass(frozen=True)
class Reply:
    """A status in the sense of HTTP, and a body."""

    status: int
    content_type: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class NotAvailable(UsageError):
    """Something that this network has not got."""


def json_reply(value: dict[str, Any]) -> Reply:
    """An object as JSON."""
    return Reply(200, JSON, {}, json_text(value).encode())


def error_reply(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Reply:
    """What is wrong, as programs and people read it."""
    return Reply(status, JSON, headers or {}, json_text({"error": {"code": code, "message": message}}).encode())
