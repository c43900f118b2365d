"""The end of a server process: every request that was begun is answered, and every answer says that it is the last."""

import asyncio

import pytest
from tests.serving.http.fakes import serving

from vitrail.serving.engine import Reply
from vitrail.serving.http import connection, listener
from vitrail.serving.http.listener import Listener


def test_what_is_under_way_is_answered_and_an_idle_connection_gets_a_last_answer() -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.seconds = 0.4
            busy, idle, uploading = [await server.connect() for _ in range(3)]
            assert (await idle.ask("GET", "/healthz")).headers.get("connection") is None
            waiting = asyncio.ensure_future(busy.ask("POST", "/v1/predictions", b"image"))
            uploading.writer.write(b"POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nim")
            while not server.engine.jobs:
                await asyncio.sleep(0.01)
            server.app.standing.is_draining = True
            draining = asyncio.ensure_future(server.listener.drain(0.3, 5))
            answer = await idle.ask("GET", "/readyz")
            assert (answer.status, answer.json["reason"], answer.headers["connection"]) == (503, "draining", "close")
            assert await idle.is_closed()
            await asyncio.sleep(0.35)
            uploading.writer.write(b"age")
            assert (await waiting).status == 200
            answer = await uploading.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            await asyncio.wait_for(draining, 2)

    asyncio.run(run())


def test_without_connections_it_ends_at_once_and_silent_ones_are_closed_after_a_while() -> None:
    async def run() -> None:
        async with serving() as server:
            silent = await server.connect()
            assert (await silent.ask("GET", "/healthz")).status == 200
            draining = asyncio.ensure_future(server.listener.drain(0.2, 60))
            assert await silent.is_closed()
            await asyncio.wait_for(draining, 2)
            await asyncio.wait_for(server.listener.drain(60, 60), 1)

    asyncio.run(run())


def test_who_comes_while_it_drains_is_answered_by_the_next_process() -> None:
    async def run() -> None:
        async with serving() as server:
            keeps = await server.connect()
            assert (await keeps.ask("GET", "/healthz")).status == 200
            shared = server.listening.dup()
            server.app.standing.is_draining = True
            draining = asyncio.ensure_future(server.listener.drain(0.2, 5))
            await asyncio.sleep(0)
            late = await server.connect()
            asking = asyncio.ensure_future(late.ask("GET", "/healthz"))
            await draining
            following = Listener(server.app.asgi, shared)
            server.app.standing.is_draining = False
            following.accept()
            answer = await asking
            assert (answer.status, answer.headers.get("connection")) == (200, None)
            await following.drain(0, 1)

    asyncio.run(run())


def test_who_came_before_the_end_is_answered_and_later_ones_are_turned_away() -> None:
    async def run() -> None:
        async with serving() as server:
            server.listener.stop_accepting()
            early = [await server.connect() for _ in range(20)]
            server.listener._is_accepting = True
            draining = asyncio.ensure_future(server.listener.drain(1, 5))
            await asyncio.sleep(0)
            with pytest.raises(ConnectionRefusedError):
                await server.connect()
            assert [(await client.ask("GET", "/healthz")).status for client in early] == [200] * 20
            for client in early:
                await client.close()
            await draining

    asyncio.run(run())


def test_a_client_that_does_not_read_is_not_kept_for_ever(monkeypatch) -> None:
    monkeypatch.setattr(connection, "_UNREAD_SECONDS", 0.5)

    async def run() -> None:
        async with serving() as server:
            server.engine.reply = Reply(200, "application/octet-stream", {}, bytes(32 * 2**20))
            client = await server.connect()
            client.writer.transport.pause_reading()
            client.writer.write(
                b"POST /v1/attention?layer=1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
                b"Content-Length: 1\r\n\r\nx"
            )
            for _ in range(60):
                await asyncio.sleep(0.1)
                if server.engine.jobs and not server.listener._state.connections:
                    break
            assert not server.listener._state.connections

    asyncio.run(run())


def test_clients_that_do_not_read_do_not_fill_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(listener, "_MOST_UNREAD", 40 * 2**20)

    async def run() -> None:
        async with serving() as server:
            server.engine.reply = Reply(200, "application/octet-stream", {}, bytes(24 * 2**20))
            clients = [await server.connect() for _ in range(4)]
            for client in clients:
                client.writer.transport.pause_reading()
                client.writer.write(
                    b"POST /v1/attention?layer=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
                )
            connections = server.listener._state.connections
            for _ in range(60):
                await asyncio.sleep(0.1)
                if server.engine.answered == 4 and sum(one.unread for one in connections) <= 40 * 2**20:
                    break
            assert 1 <= len(connections) <= 2
            assert (await server.ask("GET", "/healthz")).status == 200

    asyncio.run(run())
