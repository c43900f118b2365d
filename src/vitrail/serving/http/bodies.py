"""Reading an upload: refused unread when it is too large or of a wrong type, given up when it is too slow."""

import asyncio
import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.types import Receive

from vitrail.config.serve import ServeConfig
from vitrail.serving.engine import Refused
from vitrail.serving.http.problems import Gone, Problem

# So many of the largest uploads may be in memory together.
_LARGEST_TOGETHER = 4
# Above this, base64 is decoded beside the loop that answers others.
_LONG_TEXT = 2**20
_HOW = "Send the file itself: curl -H 'Content-Type: image/jpeg' --data-binary @photo.jpg"


class Memory:
    """Bytes that all uploads together may take, from their first byte to their answer."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    @contextmanager
    def part(self) -> "Iterator[Part]":
        """What one upload takes; it is given back whatever happens."""
        part = Part(self)
        try:
            yield part
        finally:
            self._left += part.taken

    def take(self, count: int) -> None:
        """Some more bytes, if they are there."""
        if count > self._left:
            raise Refused("busy", 1.0)
        self._left -= count


class Part:
    """The bytes of one upload."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self.taken = memory, 0

    def grow(self, size: int) -> None:
        """Take what is missing to `size` bytes."""
        if size > self.taken:
            self._memory.take(size - self.taken)
            self.taken = size


def memory_for(config: ServeConfig) -> Memory:
    """Room for a few uploads of the largest size, or many small ones."""
    return Memory(_LARGEST_TOGETHER * config.max_bytes)


async def read_image(headers: Headers, receive: Receive, config: ServeConfig, part: Part) -> bytes:
    """The bytes of an image file, however they were sent."""
    is_text = _is_text(headers)
    limit = config.max_bytes if not is_text else config.max_bytes * 4 // 3 + 256
    body = await _read(headers, receive, config, limit, part)
    if not body:
        raise Problem(400, "no_image", f"The request has no body; wanted an image. {_HOW}")
    if not is_text:
        return body
    image = await asyncio.to_thread(_from_data_url, body) if len(body) > _LONG_TEXT else _from_data_url(body)
    if len(image) > config.max_bytes:
        raise _too_large(f"{len(image):,}", config.max_bytes)
    return image


def _is_text(headers: Headers) -> bool:
    """Whether a data URL comes; other types than images are refused."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise Problem(415, "wrong_type", f"The body is encoded as {encoding[:60]!r}; wanted it as it is. {_HOW}")
    kind = headers.get("content-type", "application/octet-stream").split(";")[0].strip().lower()
    if kind == "text/plain":
        return True
    if kind == "image/svg+xml":
        raise Problem(415, "wrong_type", "The body is an SVG drawing; wanted an image of pixels, such as JPEG or PNG.")
    if kind == "application/octet-stream" or (kind.startswith("image/") and len(kind) > len("image/")):
        return False
    raise Problem(415, "wrong_type", f"The content type is {kind[:60]!r}; wanted image/* or a data URL as text. {_HOW}")


async def _read(headers: Headers, receive: Receive, config: ServeConfig, limit: int, part: Part) -> bytes:
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(f"{int(declared):,}", config.max_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(config.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise _too_large(f"more than {config.max_bytes:,}", config.max_bytes)
                # What has come, and not what is announced: whoever only announces keeps nobody else out.
                part.grow(size)
                chunks.append(chunk)
                if not message.get("more_body"):
                    return b"".join(chunks)
    except TimeoutError:
        problem = f"Only {size:,} bytes came in {config.body_seconds:g} s; wanted all of the body in that time."
        raise Problem(408, "slow_body", problem, {"Connection": "close"}) from None


def _too_large(size: str, limit: int) -> Problem:
    return Problem(413, "too_large", f"The body has {size} bytes; wanted at most {limit:,}. Send a smaller image.")


def _from_data_url(body: bytes) -> bytes:
    head, comma, data = body.partition(b",")
    words = head.strip().lower().split(b";")
    if not comma or not words[0].startswith(b"data:image/") or words[-1] != b"base64":
        raise Problem(400, "bad_data_url", "The text is no data URL; wanted data:image/png;base64,... as text/plain.")
    try:
        return base64.b64decode(data.strip(), validate=True)
    except binascii.Error as error:
        raise Problem(400, "bad_data_url", f"The data URL is no base64 ({error}); wanted all of it.") from None
