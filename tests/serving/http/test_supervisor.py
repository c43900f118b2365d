"""Restarts, swaps and deaths of server processes (rows 27 and 28): nothing is lost, nothing hangs."""

import asyncio
import os
import signal
import socket
import time

import pytest
from tests.serving.http.started import Load, children_of, started


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(condition, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def is_ready(server) -> bool:
    try:
        return server.get("/readyz")["ready"]
    except OSError:
        return False


async def under_load(server, signals: list[tuple[signal.Signals, str]], clients: int = 8):
    """Send signals while clients ask, each when the one before was obeyed and every client was answered after that."""
    load = Load(server.port, clients)
    await load.all_answered()
    counts: dict[str, int] = {}
    for number, told in signals:
        counts[told] = counts.get(told, 0) + 1
        server.signal(number)
        assert await asyncio.to_thread(server.has_logged, told, counts[told])
        await load.all_answered()
    # Until the processes that were replaced have ended.
    await asyncio.sleep(0.8)
    return await load.stop()


def test_restarts_and_swaps_lose_no_request(tmp_path) -> None:
    with started(tmp_path, "fake", "--drain", "0.5") as server:
        first = server.wait_ready().children()
        restart, swap = (signal.SIGHUP, "has taken over"), (signal.SIGUSR1, "the model was read again")
        tally = asyncio.run(under_load(server, [restart, swap, restart, swap]))
        assert tally.lost == []
        assert set(tally.statuses) == {200}
        assert tally.answered == tally.asked
        assert tally.generations == {1, 2}
        assert wait_for(lambda: len(server.children()) == 1)
        assert server.children() != first


@pytest.mark.slow
def test_twenty_restarts_and_five_swaps_lose_no_request(tmp_path) -> None:
    with started(tmp_path, "fake", "--drain", "0.5") as server:
        server.wait_ready()
        restart, swap = (signal.SIGHUP, "has taken over"), (signal.SIGUSR1, "the model was read again")
        tally = asyncio.run(under_load(server, [*[restart] * 4, swap] * 5, clients=32))
        assert (tally.lost, set(tally.statuses)) == ([], {200})
        assert tally.answered == tally.asked


def test_a_server_that_is_killed_is_replaced(tmp_path) -> None:
    with started(tmp_path, "fake", "--drain", "0.5") as server:
        [child] = server.wait_ready().children()
        os.kill(child, signal.SIGKILL)
        assert server.has_logged("another is started in 0.1 s")
        assert wait_for(lambda: server.children() not in ([], [child]))
        # Whoever comes while there is none waits in the kernel for the next, and is answered.
        assert server.get("/healthz") == {"status": "ok"}
        assert wait_for(lambda: server.get("/readyz")["ready"])


def test_a_terminated_server_ends_its_children_and_says_so(tmp_path) -> None:
    with started(tmp_path, "fake", "--drain", "0.3") as server:
        [child] = server.wait_ready().children()
        server.signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        assert not is_alive(child)
        assert "what is under way is answered first" in server.log.read_text()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), timeout=2)


def test_a_request_under_way_is_answered_at_the_end_and_a_second_signal_ends_at_once(tmp_path) -> None:
    async def run(server) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = (
            "POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 3\r\n\r\n"
        )
        writer.write(head.encode() + b"ab")
        await asyncio.sleep(0.2)
        server.signal(signal.SIGTERM)
        await asyncio.sleep(0.8)
        writer.write(b"c")
        answer = await asyncio.wait_for(reader.read(), 5)
        assert b"connection: close" in answer
        return int(answer.split()[1])

    with started(tmp_path, "fake", "--drain", "0.3") as server:
        assert asyncio.run(run(server.wait_ready())) == 200
        assert server.process.wait(60) == 0
    # Far longer than what is waited below, which a second signal that is not heard would outlast.
    with started(tmp_path, "fake", "--drain", "600") as server:
        held = socket.create_connection(("127.0.0.1", server.wait_ready().port))
        [child] = server.children()
        time.sleep(0.2)
        server.signal(signal.SIGTERM)
        time.sleep(0.5)
        assert is_alive(child)
        server.signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert wait_for(lambda: not is_alive(child))
        held.close()


def test_children_do_not_outlive_a_supervisor_that_was_killed(tmp_path) -> None:
    with started(tmp_path, "fake", "--drain", "0.2") as server:
        [child] = server.wait_ready().children()
        server.signal(signal.SIGKILL)
        server.process.wait(60)
        assert wait_for(lambda: not is_alive(child))


def test_a_model_that_cannot_be_read_is_a_sentence_and_an_exit_code(tmp_path) -> None:
    (tmp_path / "model.unreadable").touch()
    with started(tmp_path, str(tmp_path / "model")) as server:
        assert server.process.wait(60) == 3
        assert server.log.read_text() == "error: unreadable: this is no model. Name another.\n"


def test_three_deaths_at_the_start_are_the_end(tmp_path) -> None:
    with started(tmp_path, "crashing") as server:
        assert server.process.wait(90) == 1
        lines = server.log.read_text().splitlines()
        assert [line.split("; ")[-1] for line in lines[:-1]] == [
            "another is started in 0.1 s",
            "another is started in 0.2 s",
        ]
        assert lines[-1] == "error: the server process ended at its start (exit code 7)."


def test_a_restart_that_fails_leaves_the_old_one_serving(tmp_path) -> None:
    with started(tmp_path, str(tmp_path / "model"), "--drain", "0.3") as server:
        children = server.wait_ready().children()
        (tmp_path / "model.unreadable").touch()
        server.signal(signal.SIGHUP)
        assert server.has_logged("the old one goes on. unreadable: this is no model")
        assert server.get("/readyz") == {"ready": True}
        (tmp_path / "model.unreadable").unlink()
        server.signal(signal.SIGHUP)
        assert server.has_logged("has taken over")
        assert wait_for(lambda: len(server.children()) == 1 and server.children() != children)


def test_two_restarts_asked_for_in_one_moment_leave_one_process(tmp_path) -> None:
    with started(tmp_path, "fake", "--drain", "0.2") as server:
        server.wait_ready()
        # Not even a process can be started between them.
        server.signal(signal.SIGHUP)
        time.sleep(0.001)
        server.signal(signal.SIGHUP)
        assert server.has_logged("has taken over")
        assert wait_for(lambda: len(server.children()) == 1), "one that nobody knows of any more would stay"
        assert server.get("/readyz") == {"ready": True}


def test_a_restart_asked_for_during_one_that_fails_is_made(tmp_path) -> None:
    with started(tmp_path, str(tmp_path / "model"), "--drain", "0.2") as server:
        server.wait_ready()
        (tmp_path / "model.unreadable").touch()
        server.signal(signal.SIGHUP)
        assert server.has_logged("starting a new server process")
        server.signal(signal.SIGHUP)
        assert server.has_logged("did not start; the old one goes on", 2)
        (tmp_path / "model.unreadable").unlink()
        server.signal(signal.SIGHUP)
        assert server.has_logged("has taken over")


@pytest.mark.slow
def test_a_server_that_has_served_is_started_again_until_its_model_is_back(tmp_path) -> None:
    with started(tmp_path, str(tmp_path / "model"), "--drain", "0") as server:
        [child] = server.wait_ready().children()
        (tmp_path / "model.unreadable").touch()
        os.kill(child, signal.SIGKILL)
        assert server.has_logged("unreadable: this is no model. Name another; another is started", 3)
        (tmp_path / "model.unreadable").unlink()
        assert wait_for(lambda: is_ready(server), 20)
        assert server.process.poll() is None


def test_many_restarts_asked_for_at_once_are_few(tmp_path) -> None:
    with started(tmp_path, "fake", "--drain", "0.2") as server:
        server.wait_ready()
        server.signal(signal.SIGHUP)
        assert server.has_logged("starting a new server process")
        # All of these come while the first is under way, however fast the machine is.
        for _ in range(9):
            server.signal(signal.SIGHUP)
        assert server.has_logged("has taken over", 2)
        assert wait_for(lambda: len(server.children()) == 1)
        assert server.log.read_text().count("has taken over") == 2
        assert server.get("/readyz") == {"ready": True}
        assert children_of(server.process.pid) == server.children()
