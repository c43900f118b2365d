"""Connections on which nothing is as it should be."""

import asyncio

import pytest
from tests.serving.http.fakes import serving

from vitrail.serving.http import connection

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


_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a:b\r\n" * 15_000 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a:b\r\n" * 300 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\na:" + b" " * 60_000 + b"b\r\n\r\n",
        HEAD + _CHUNKED + b"0\r\n" + b"a:b\r\n" * 15_000 + b"\r\n",
        HEAD + _CHUNKED + b"3;" + b"a" * 75_000 + b"\r\nabc\r\n0\r\n\r\n",
    ],
    ids=["lines of a head", "few bytes in many lines", "padding", "trailers", "extension of a chunk"],
)
@pytest.mark.parametrize("piece", [10**9, 1000], ids=["at once", "in pieces"])
def test_the_limits_hold_however_the_bytes_are_cut(sent, piece) -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            for start in range(0, len(sent), piece):
                client.writer.write(sent[start : start + piece])
                await asyncio.sleep(0)
            answer = await client.answer()
            assert (answer.status, answer.code) == (431, "long_head")
            assert not server.engine.answered
            assert (await server.ask("GET", "/healthz")).status == 200

    asyncio.run(run())


def test_a_head_of_almost_the_longest_length_is_read_with_the_body_behind_it() -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(HEAD + b"X: " + b"a" * 32_500 + b"\r\nContent-Length: 30000\r\n\r\n" + b"i" * 30_000)
            assert (await client.answer()).status == 200
            assert len(server.engine.jobs[0].body) == 30_000

    asyncio.run(run())


def test_trailers_are_no_headers() -> None:
    """In one segment they were there before the headers were looked at: a token or a host could stand in them."""

    async def run() -> None:
        async with serving(token="a-token-of-some-length") as server:
            client = await server.connect()
            client.writer.write(HEAD + _CHUNKED + b"0\r\nAuthorization: Bearer a-token-of-some-length\r\n\r\n")
            assert (await client.answer()).status == 401
            assert not server.engine.jobs

    asyncio.run(run())


@pytest.mark.parametrize("chunk", [b"1;" + b"e" * 1000 + b"\r\na\r\n", b"1\r\na\r\n"])
def test_what_chunks_cost_beside_the_body_has_a_limit_over_all_of_them(chunk, monkeypatch) -> None:
    monkeypatch.setattr(connection, "_CHUNK_BYTES", 100_000)

    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * (300_000 // len(chunk)))
            answer = await client.answer()
            assert (answer.status, answer.code) == (400, "bad_request")
            assert "chunks" in answer.json["error"]["message"]

    asyncio.run(run())


@pytest.mark.parametrize(
    "codings",
    [
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: , chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b'Transfer-Encoding: "chunked"\r\n',
        b"Transfer-Encoding: chunked;q=1\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"Transfer-Encoding: chunked, chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: \x0bchunked\r\n",
        b"Transfer-Encoding:\r\n chunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 3\r\nContent-Length: 3\r\n",
        b"Content-Length: 3\r\nContent-Length: 4\r\n",
        b"Content-Length: 3, 3\r\n",
        b"Content-Length: +3\r\n",
        b"Content-Length: 0x3\r\n",
        b"Content-Length:\r\n",
        b"Content-Length:\r\n 3\r\n",
        b"Content-Length: 3\nX: y\r\n",
        b"Content-Length: 99999999999999999999\r\n",
    ],
)
def test_a_body_whose_end_others_may_see_elsewhere_is_refused_and_the_connection_ends(codings) -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(HEAD + codings + b"\r\n3\r\nabc\r\n0\r\n\r\n")
            client.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.code) in [(400, "bad_request"), (501, "bad_coding")]
            assert await client.is_closed()
            assert not server.engine.answered

    asyncio.run(run())


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (HEAD.replace(b"1.1", b"1.0") + _CHUNKED + b"0\r\n\r\n", 501, "bad_coding"),
        (b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, "bad_version"),
        (b"GET ftp://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
        (HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nimage", 400, "bad_request"),
    ],
)
def test_what_another_version_would_mean_is_refused(sent, status, code) -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(sent)
            answer = await client.answer()
            assert (answer.status, answer.code) == (status, code)
            assert await client.is_closed()
            assert not server.engine.jobs

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


def test_what_is_wrong_after_a_request_does_not_take_its_answer() -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.seconds = 0.1
            client = await server.connect()
            client.writer.write(HEAD + b"Content-Length: 5\r\n\r\nimage" + b"no HTTP\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.is_closed()

    asyncio.run(run())


def test_a_flood_of_requests_sent_ahead_is_cut_off_behind_the_first_ones() -> None:
    """Each of them waited as an object of its own: 256 KiB of them took 20 MB."""

    async def run() -> None:
        async with serving() as server:
            server.engine.seconds = 0.1
            client = await server.connect()
            client.writer.write(HEAD + b"Content-Length: 5\r\n\r\nimage")
            client.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
            async with asyncio.timeout(10):
                answers = (await client.reader.read()).count(b"HTTP/1.1 200")
            assert 30 <= answers <= 40
            assert (await server.ask("GET", "/healthz")).status == 200

    asyncio.run(run())


@pytest.mark.parametrize(("version", "ahead"), [("1.1", 1), ("1.0", 1), ("1.1", 3)])
def test_a_client_that_says_it_sends_no_more_gets_its_answers(version, ahead) -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.seconds = 0.1
            client = await server.connect()
            one = HEAD.replace(b"1.1", version.encode()) + b"Content-Length: 5\r\n\r\nimage"
            client.writer.write(one * ahead)
            client.writer.write_eof()
            assert [(await client.answer()).status for _ in range(ahead)] == [200] * ahead
            assert await client.is_closed()
            assert server.engine.answered == ahead

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"GET /heal", HEAD + b"Content-Length: 5\r\n\r\nima"])
def test_a_client_that_says_it_sends_no_more_within_a_request_has_left(sent) -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            client.writer.write(sent)
            client.writer.write_eof()
            assert await client.is_closed()
            assert not server.engine.jobs

    asyncio.run(run())


def test_a_client_that_waits_for_long_is_asked_whether_it_is_there(monkeypatch) -> None:
    """Who has left and who waits look alike; only a byte that is sent tells, and 100 is one that means nothing."""
    monkeypatch.setattr(connection, "_LEFT_SECONDS", 0.05)

    async def run() -> None:
        async with serving() as server:
            server.engine.seconds = 0.4
            waiting, leaving = await server.connect(), await server.connect()
            for client in (waiting, leaving):
                client.writer.write(HEAD + b"Content-Length: 5\r\n\r\nimage")
            waiting.writer.write_eof()
            while len(server.engine.jobs) < 2:
                await asyncio.sleep(0.01)
            await leaving.close()
            assert [(await waiting.answer()).status for _ in range(2)] == [100, 200]
            assert (server.engine.answered, server.engine.dropped) == (1, 1)

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


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        b"GET /heal",
        HEAD + b"Content-Length: 5\r\n\r\nim",
        HEAD + b"Content-Length: 99\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["silent", "an empty line", "in the head", "in the body", "in the body of a refusal", "idle"],
)
def test_who_does_nothing_makes_way_for_newcomers(sent, monkeypatch) -> None:
    """A thousand idle connections kept everybody out for 75 s, health checks too."""
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 3)

    async def run() -> None:
        async with serving(max_bytes=10) as server:
            idle = [await server.connect() for _ in range(3)]
            for client in idle:
                client.writer.write(sent)
                await asyncio.sleep(0.02)
            for _ in range(5):
                assert (await server.ask("GET", "/healthz")).status == 200
            async with asyncio.timeout(10):
                await idle[0].reader.read()

    asyncio.run(run())


def test_the_one_that_was_silent_for_the_longest_goes_first_and_nobody_who_waits_for_an_answer(monkeypatch) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(connection, "_YOUNG_SECONDS", 0.0)

    async def run() -> None:
        async with serving() as server:
            server.engine.seconds = 0.5
            asking, older, newer = [await server.connect() for _ in range(3)]
            waiting = asyncio.ensure_future(asking.ask("POST", "/v1/predictions", b"image"))
            for client in (older, newer):
                assert (await client.ask("GET", "/healthz")).status == 200
                await asyncio.sleep(0.02)
            newcomer = await server.connect()
            assert await older.is_closed()
            assert (await newer.ask("GET", "/healthz")).status == 200
            assert (await newcomer.ask("GET", "/healthz")).status == 200
            assert (await waiting).status == 200

    asyncio.run(run())


@pytest.mark.parametrize(("crowd", "pausing_stays"), [(6, True), (2, False)])
def test_a_crowd_that_never_asks_makes_way_for_itself_and_a_few_newcomers_are_given_time(
    crowd, pausing_stays, monkeypatch
) -> None:
    """Connections that were younger than a second drove out clients who paused between two requests."""
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(connection, "_YOUNG_SECONDS", 60.0)

    async def run() -> None:
        async with serving() as server:
            pausing = [await server.connect() for _ in range(8 - crowd)]
            for client in pausing:
                assert (await client.ask("GET", "/healthz")).status == 200
            for one in server.listener._state.connections:
                one._phase_since -= 120
            silent = []
            for _ in range(crowd):
                silent.append(await server.connect())
                await asyncio.sleep(0.02)
            newcomer = await server.connect()
            first, others = (silent[0], silent[1:]) if pausing_stays else (pausing[0], pausing[1:])
            assert await first.is_closed()
            for client in (newcomer, *others, *(pausing if pausing_stays else silent)):
                assert (await client.ask("GET", "/healthz")).status == 200

    asyncio.run(run())


def test_where_every_connection_waits_for_an_answer_others_are_told_to_come_again(monkeypatch) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 3)

    async def run() -> None:
        async with serving() as server:
            server.engine.seconds = 0.4
            clients = [await server.connect() for _ in range(3)]
            waiting = [asyncio.ensure_future(client.ask("POST", "/v1/predictions", b"image")) for client in clients]
            while len(server.engine.jobs) < 3:
                await asyncio.sleep(0.01)
            late = await server.connect()
            answer = await late.answer()
            assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "busy", "1")
            assert [(await one).status for one in waiting] == [200] * 3
            assert (await server.ask("GET", "/healthz")).status == 200

    asyncio.run(run())
