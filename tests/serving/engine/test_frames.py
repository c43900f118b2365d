"""Frames come as they were sent, and what is no frame is refused before it takes memory."""

import asyncio
import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.serving.engine.frames import MOST_HEADER, FrameError, packed, read_frame, receive_frame

SMALL = 100


def received(data: bytes):
    async def read():
        stream = asyncio.StreamReader()
        stream.feed_data(data)
        stream.feed_eof()
        return await receive_frame(stream, SMALL)

    return asyncio.run(read())


@given(
    st.dictionaries(st.text().filter(lambda name: name != "body"), st.integers() | st.text()), st.binary(max_size=SMALL)
)
def test_what_is_sent_arrives(header, body) -> None:
    data = b"".join(packed(header, body))
    assert read_frame(io.BytesIO(data), SMALL) == (header, body)
    assert received(data) == (header, body)


def test_the_end_is_no_frame() -> None:
    assert read_frame(io.BytesIO(), SMALL) is None
    assert received(b"") is None


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", 2**32 - 1) + b"{}",
        struct.pack(">I", MOST_HEADER + 1),
        struct.pack(">I", 0),
        b"\0\0",
        struct.pack(">I", 10) + b"{}",
        struct.pack(">I", 3) + b"no!",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 2) + b"{}",
        struct.pack(">I", 12) + b'{"body": 99}',
        struct.pack(">I", 13) + b'{"body": 101}',
        struct.pack(">I", 12) + b'{"body": -1}',
        struct.pack(">I", 14) + b'{"body": true}',
        struct.pack(">I", 100_000) + b"[" * 100_000,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_hostile_frame_is_refused(data) -> None:
    with pytest.raises(FrameError):
        read_frame(io.BytesIO(data), SMALL)
    with pytest.raises(FrameError):
        received(data)


def test_a_header_that_nobody_would_read_is_not_sent() -> None:
    with pytest.raises(FrameError, match="wanted at most"):
        packed({"text": "x" * MOST_HEADER})
