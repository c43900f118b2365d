"""What travels between two processes: four bytes with the length of a JSON header, the header, and a body of bytes.

The header says how long the body is. Nothing is unpickled, and what is longer than agreed is not read.
"""

import asyncio
import json
import struct
from typing import Any, BinaryIO

Frame = tuple[dict[str, Any], bytes]

MOST_HEADER = 2**20
_LENGTH = struct.Struct(">I")
_BODY = "body"


class FrameError(Exception):
    """Bytes that are no frame, from a process that is broken or hostile."""


def packed(header: dict[str, Any], body: bytes = b"") -> list[bytes]:
    """A frame in two pieces, so that a large body is not copied."""
    text = json.dumps({**header, _BODY: len(body)}, allow_nan=False, separators=(",", ":")).encode()
    if len(text) > MOST_HEADER:
        raise FrameError(f"the header has {len(text):,} bytes; wanted at most {MOST_HEADER:,}")
    return [_LENGTH.pack(len(text)) + text, body]


def read_frame(stream: BinaryIO, most_body: int) -> Frame | None:
    """The next frame of a stream that blocks, or None where it ends."""
    start = stream.read(_LENGTH.size)
    if not start:
        return None
    header, count = _header(_whole(stream, _header_length(start)), most_body)
    return header, _whole(stream, count)


async def receive_frame(stream: asyncio.StreamReader, most_body: int) -> Frame | None:
    """The same in a loop of events."""
    try:
        start = await stream.readexactly(_LENGTH.size)
    except asyncio.IncompleteReadError as ended:
        if ended.partial:
            raise FrameError("the stream ended within a frame") from None
        return None
    try:
        header, count = _header(await stream.readexactly(_header_length(start)), most_body)
        return header, await stream.readexactly(count)
    except asyncio.IncompleteReadError:
        raise FrameError("the stream ended within a frame") from None


def _whole(stream: BinaryIO, count: int) -> bytes:
    found = stream.read(count)
    if len(found) != count:
        raise FrameError("the stream ended within a frame")
    return found


def _header_length(start: bytes) -> int:
    if len(start) != _LENGTH.size:
        raise FrameError("the stream ended within a frame")
    [count] = _LENGTH.unpack(start)
    if not 0 < count <= MOST_HEADER:
        raise FrameError(f"the header is said to have {count:,} bytes; wanted 1 to {MOST_HEADER:,}")
    return count


def _header(text: bytes, most_body: int) -> tuple[dict[str, Any], int]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise FrameError("the header is not JSON") from None
    count = header.pop(_BODY, None) if isinstance(header, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= most_body:
        raise FrameError(f"the body is said to have {count!r} bytes; wanted 0 to {most_body:,}")
    return header, count
