"""Uploads that are too large, too slow or no images (row 24 of the fault table): refused, and others are unaffected."""

import asyncio
import base64
import resource

import pytest
from tests.serving.http.fakes import Client, Served, serving

PREDICT = "/v1/predictions"


async def begin(client: Client, headers: str) -> None:
    """Send a head, and keep the body back."""
    client.writer.write(f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    await client.writer.drain()


async def is_usable(client: Client, server: Served) -> bool:
    """Whether the same connection answers the next request."""
    answer = await client.ask("POST", PREDICT, b"image")
    return answer.status == 200 and server.engine.jobs[-1].body == b"image"


def test_a_length_over_the_limit_is_refused_before_a_byte_of_the_body_came() -> None:
    async def run() -> None:
        async with serving(max_bytes=1000) as server:
            client = await server.connect()
            await begin(client, "Content-Type: image/png\r\nContent-Length: 50000000\r\n")
            answer = await client.answer()
            assert (answer.status, answer.code) == (413, "too_large")
            assert "50,000,000 bytes; wanted at most 1,000" in answer.json["error"]["message"]
            assert not server.engine.jobs

    asyncio.run(run())


def test_fifty_megabytes_are_dropped_without_being_kept_and_the_connection_goes_on() -> None:
    async def run() -> None:
        async with serving(max_bytes=1000) as server:
            client, other = await server.connect(), await server.connect()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await begin(client, "Content-Type: image/png\r\nContent-Length: 50000000\r\n")
            piece = b"\0" * 100_000
            for _ in range(500):
                client.writer.write(piece)
                await client.writer.drain()
            assert (await other.ask("GET", "/healthz")).status == 200
            assert (await client.answer()).status == 413
            assert await is_usable(client, server)
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000

    asyncio.run(run())


def test_chunks_are_counted() -> None:
    async def run() -> None:
        async with serving(max_bytes=100_000) as server:
            client = await server.connect()
            await begin(client, "Content-Type: image/png\r\nTransfer-Encoding: chunked\r\n")
            for _ in range(30):
                client.writer.write(b"186a0\r\n" + b"\0" * 100_000 + b"\r\n")
            client.writer.write(b"0\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.code) == (413, "too_large")
            assert await is_usable(client, server)

    asyncio.run(run())


def test_a_chunked_image_arrives_whole() -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            await begin(client, "Content-Type: image/png\r\nTransfer-Encoding: chunked\r\n")
            client.writer.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            assert (await client.answer()).status == 200
            assert server.engine.jobs[0].body == b"abcde"

    asyncio.run(run())


def test_a_slow_body_is_given_up_and_says_how_much_came() -> None:
    async def run() -> None:
        async with serving(body_seconds=0.3) as server:
            slow, other = await server.connect(), await server.connect()
            await begin(slow, "Content-Type: image/png\r\nContent-Length: 1000\r\n")
            slow.writer.write(b"0123456789")
            assert (await other.ask("POST", PREDICT, b"image")).status == 200
            answer = await slow.answer()
            assert (answer.status, answer.code, answer.headers["connection"]) == (408, "slow_body", "close")
            assert "Only 10 bytes came in 0.3 s" in answer.json["error"]["message"]
            assert await slow.is_closed()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"Content-Type": "text/html"}, 415, "'text/html'; wanted image/*"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "--data-binary"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415, "multipart"),
        ({"Content-Type": "image/svg+xml"}, 415, "SVG"),
        ({"Content-Type": "image/"}, 415, "'image/'"),
        ({"Content-Type": "application/json"}, 415, "json"),
        ({"Content-Encoding": "gzip"}, 415, "gzip"),
        ({"Content-Type": "text/plain"}, 400, "no data URL"),
        ({"Content-Type": "IMAGE/JPEG; q=1"}, 200, ""),
        ({"Content-Type": "application/octet-stream"}, 200, ""),
        ({"Content-Encoding": "identity"}, 200, ""),
    ],
)
def test_types(headers, status, reason) -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            answer = await client.ask("POST", PREDICT, b"<svg>" * 1000, headers)
            assert answer.status == status
            assert reason in answer.body.decode()
            assert await is_usable(client, server)

    asyncio.run(run())


def test_a_data_url_is_the_image_it_holds() -> None:
    image = bytes(range(256)) * 8

    async def run() -> None:
        async with serving(max_bytes=len(image)) as server:
            text = b"data:image/png;base64," + base64.b64encode(image)
            assert (await server.ask("POST", PREDICT, text, {"Content-Type": "text/plain;charset=UTF-8"})).status == 200
            assert server.engine.jobs[0].body == image
            longer = b"data:image/png;base64," + base64.b64encode(image + b"123")
            assert (await server.ask("POST", PREDICT, longer, {"Content-Type": "text/plain"})).status == 413

    asyncio.run(run())


@pytest.mark.parametrize(
    "text",
    [
        b"data:image/png,abc",
        b"data:text/html;base64,YWJj",
        b"data:image/png;base64,####",
        b"data:image/png;base64,YWJ",
        b"http://example.org/cat.png",
        b"file:///etc/passwd",
        b"\xff\xfe\x00",
        b",",
    ],
)
def test_what_is_no_data_url_is_never_fetched(text) -> None:
    async def run() -> None:
        async with serving() as server:
            answer = await server.ask("POST", PREDICT, text, {"Content-Type": "text/plain"})
            assert (answer.status, answer.code) == (400, "bad_data_url")
            assert not server.engine.jobs

    asyncio.run(run())


def test_no_body_is_no_image() -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            for body in (b"", None):
                answer = await client.ask("POST", PREDICT, body)
                assert (answer.status, answer.code) == (400, "no_image")

    asyncio.run(run())


def test_all_uploads_together_have_a_limit_which_is_given_back() -> None:
    async def run() -> None:
        async with serving(max_bytes=1000) as server:
            clients = [await server.connect() for _ in range(4)]
            for client in clients:
                await begin(client, "Content-Type: image/png\r\nContent-Length: 1000\r\n")
            fifth = await server.connect()
            # Who only says that much will come takes nothing from others.
            assert (await fifth.ask("POST", PREDICT, b"\0" * 1000)).status == 200
            for client in clients:
                client.writer.write(b"\0" * 999)
            await asyncio.sleep(0.05)
            answer = await fifth.ask("POST", PREDICT, b"\0" * 1000)
            assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "busy", "1")
            assert 'vitrail_refused_total{reason="busy"} 1.0' in server.app.metrics.text().decode()
            for client in clients:
                client.writer.write(b"\0")
                assert (await client.answer()).status == 200
            assert (await fifth.ask("POST", PREDICT, b"\0" * 1000)).status == 200

    asyncio.run(run())


def test_who_leaves_in_the_middle_of_a_body_leaves_nothing_behind() -> None:
    async def run() -> None:
        async with serving(max_bytes=1000) as server:
            for _ in range(20):
                client = await server.connect()
                await begin(client, "Content-Type: image/png\r\nContent-Length: 1000\r\n")
                client.writer.write(b"abc")
                await client.close()
            await asyncio.sleep(0.05)
            assert (await server.ask("POST", PREDICT, b"\0" * 1000)).status == 200
            assert len(server.engine.jobs) == 1

    asyncio.run(run())
