"""Connections on which nothing is as it should be."""

import asyncio

import pytest
from tests.serve.http.fakes import serving

from vitrail.serve.http import connection

HEAD = b"POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/predictions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/predictions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\0" * 100,
    ],
)
def test_what_is_no_http_is_refused_with_a_reason_and_others_are_answered(sent) -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(sent)
            answer = await client.answer()
            assert (answer.status, answer.code, answer.headers["connection"]) == (400, "bad_request", "close")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert await client.is_closed()
            assert (await server.ask("GET", "/healthz")).status == 200
            assert not server.engine.jobs

    asyncio.run(run())


@pytest.mark.parametrize(
    "line", [b"X-Long: " + b"a" * 40_000, b"".join(b"X-%d: 1\r\n" % number for number in range(9000))]
)
def test_a_long_head_is_refused(line) -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + line)
            answer = await client.answer()
            assert (answer.status, answer.code) == (431, "long_head")

    asyncio.run(run())


def test_a_long_head_that_comes_at_once_is_refused_too() -> None:
    async def run() -> None:
        async with serving() as server:
            for lines in (b"X-Long: " + b"a" * 32_768 + b"\r\n", b"a: b\r\n" * 20_000):
                client = await server.connect()
                client.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")
                answer = await client.answer()
                assert (answer.status, answer.code) == (431, "long_head")
                assert await client.is_closed()

    asyncio.run(run())


@pytest.mark.parametrize(
    "endless",
    [b"".join(b"x%d: y\r\n" % number for number in range(5000)), b"x: " + b"a" * 50_000, b"3;" + b"a" * 50_000],
)
def test_what_chunks_bring_beside_the_body_has_a_limit(endless) -> None:
    """300 MB of trailers made 3.5 GB of headers."""

    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            await asyncio.sleep(0.05)
            client.writer.write(endless if endless.startswith(b"3;") else b"0\r\n" + endless)
            answer = await client.answer()
            assert (answer.status, answer.code) == (431, "long_head")
            assert not server.engine.jobs
            assert (await server.ask("POST", "/v1/predictions", b"image")).status == 200

    asyncio.run(run())


def test_a_body_of_many_small_chunks_is_no_long_head() -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 30_000)
            client.writer.write(b"0\r\nx: a trailer\r\n\r\n")
            assert (await client.answer()).status == 200
            assert server.engine.jobs[0].body == b"a" * 30_000

    asyncio.run(run())


def test_a_slow_head_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(connection, "_HEAD_SECONDS", 0.2)

    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            for letter in b"GET /":
                client.writer.write(bytes([letter]))
                await asyncio.sleep(0.03)
            answer = await client.answer()
            assert (answer.status, answer.code) == (408, "slow_head")
            assert await client.is_closed()

    asyncio.run(run())


def test_a_silent_connection_is_closed(monkeypatch) -> None:
    monkeypatch.setattr(connection, "KEEP_ALIVE", 0.2)

    async def run() -> None:
        async with serving() as server:
            never, once = await server.connect(), await server.connect()
            assert (await once.ask("GET", "/healthz")).status == 200
            assert await never.is_closed()
            assert await once.is_closed()

    asyncio.run(run())


def test_the_rest_of_a_refused_body_has_a_time_limit_and_silence_after_it_too(monkeypatch) -> None:
    monkeypatch.setattr(connection, "_REST_SECONDS", 0.2)
    monkeypatch.setattr(connection, "KEEP_ALIVE", 0.2)

    async def run() -> None:
        async with serving(max_bytes=10) as server:
            slow, done = await server.connect(), await server.connect()
            for client in (slow, done):
                client.writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")
                assert (await client.answer()).status == 413
            done.writer.write(b"\0" * 1000)
            assert await slow.is_closed()
            assert await done.is_closed()

    asyncio.run(run())


def test_a_client_that_waits_to_be_asked_sends_nothing_that_is_refused() -> None:
    async def run() -> None:
        async with serving(max_bytes=10) as server:
            refused, asked = await server.connect(), await server.connect()
            refused.writer.write(HEAD + b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
            answer = await refused.answer()
            assert (answer.status, answer.headers["connection"]) == (413, "close")
            asked.writer.write(HEAD + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            assert (await asked.answer()).status == 100
            asked.writer.write(b"image")
            answer = await asked.answer()
            assert answer.status == 200
            assert "connection" not in answer.headers
            assert (await asked.ask("GET", "/healthz")).status == 200

    asyncio.run(run())


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.seconds = 0.05
            client = await server.connect()
            one = HEAD + b"Content-Length: 5\r\n\r\nimage"
            client.writer.write(one + b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n" + one)
            assert [(await client.answer()).status for _ in range(3)] == [200, 404, 200]

    asyncio.run(run())


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
def test_an_upgrade_is_not_made(upgrade) -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            answer = await client.ask("GET", "/healthz", headers={"Connection": "Upgrade", "Upgrade": upgrade})
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.is_closed()

    asyncio.run(run())


def test_an_old_client_is_answered_and_left() -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.is_closed()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("descriptors", "most"), [(1024, 960), (256, 192), (65, 1), (10, 1), (2**20, 1000), (-1, 1000)]
)
def test_connections_leave_descriptors_for_processes(descriptors, most) -> None:
    assert connection.most_connections(descriptors) == most


def test_more_connections_than_allowed_are_told_to_come_again(monkeypatch) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 3)

    async def run() -> None:
        async with serving() as server:
            clients = [await server.connect() for _ in range(3)]
            for client in clients:
                assert (await client.ask("GET", "/healthz")).status == 200
            late = await server.connect()
            answer = await late.answer()
            assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "busy", "1")
            await clients[0].close()
            await asyncio.sleep(0.05)
            assert (await server.ask("GET", "/healthz")).status == 200

    asyncio.run(run())
