"""Servers in processes of their own, and many clients that count what they lose."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
BODY = b"\0" * 5000


class Started:
    """A running supervisor."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self.log = process, log
        self.said: list[str] = []
        self.port = 0

    def wait_ready(self) -> "Started":
        """Read what it says until it says how to stop it."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if "  page" in line:
                self.port = int(line.rsplit(":", 1)[1].strip("/\n"))
            if line.startswith("kill -HUP"):
                return self
        raise AssertionError(f"it ended with {self.process.wait()}: {self.log.read_text()}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def has_logged(self, text: str, times: int = 1, seconds: float = 60) -> bool:
        """Wait until something is in the log."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.log.read_text().count(text) >= times:
                return True
            time.sleep(0.05)
        return False

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def children(self) -> list[int]:
        """Its server processes."""
        return children_of(self.process.pid)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that live."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(folder.name))
    return sorted(found)


@contextmanager
def started(
    tmp_path: Path, *words: str, module: str = "tests.serving.http.fake_supervisor", **environment: str
) -> Iterator[Started]:
    """Start a server on a free port; it is ended whatever happens."""
    log = tmp_path / "log.txt"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words, "--port", "0"],
            stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **environment},
            # What starts the tests may ignore it, as nohup does, and a server that inherits that leaves it so.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )  # fmt: skip
    server = Started(process, log)
    try:
        yield server
    finally:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                process.send_signal(number)
                try:
                    process.wait(8)
                except subprocess.TimeoutExpired:
                    continue
        assert process.stdout
        process.stdout.close()


@dataclass
class Tally:
    """What clients saw."""

    asked: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    generations: set[int] = field(default_factory=set)

    @property
    def answered(self) -> int:
        return sum(self.statuses.values())


class Load:
    """Clients that ask one thing after the other until they are stopped; half of them keep their connections."""

    def __init__(self, port: int, clients: int) -> None:
        self.port, self.tally, self._is_over = port, Tally(), False
        self._answers = [0] * clients
        self._tasks = [asyncio.ensure_future(self._client(number)) for number in range(clients)]

    async def all_answered(self, seconds: float = 60) -> None:
        """Wait until every client has an answer to something it asked after this moment."""
        # The first of two may have been asked before.
        wanted = [count + 2 for count in self._answers]
        async with asyncio.timeout(seconds):
            while any(count < least for count, least in zip(self._answers, wanted, strict=True)):
                await asyncio.sleep(0.01)

    async def stop(self) -> Tally:
        self._is_over = True
        await asyncio.gather(*self._tasks)
        return self.tally

    async def _client(self, number: int) -> None:
        keeps, connection = number % 2 == 0, None
        while not self._is_over:
            try:
                connection = connection or await asyncio.open_connection("127.0.0.1", self.port)
                may_ask_again = await asyncio.wait_for(self._ask(*connection, keeps), 20)
                self._answers[number] += 1
                if not may_ask_again:
                    connection[1].close()
                    connection = None
            except (OSError, EOFError, TimeoutError) as error:
                self.tally.lost.append(repr(error))
                connection = None
            await asyncio.sleep(0.005)
        if connection is not None:
            connection[1].close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keeps: bool) -> bool:
        """Ask once; says whether the connection may be used again."""
        close = "" if keeps else "Connection: close\r\n"
        head = (
            f"POST /v1/predictions HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: image/png\r\n"
            f"Content-Length: {len(BODY)}\r\n{close}\r\n"
        )
        self.tally.asked += 1
        writer.write(head.encode() + BODY)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        status = int(lines[0].split()[1])
        self.tally.statuses[status] = self.tally.statuses.get(status, 0) + 1
        if status == 200:
            self.tally.generations.add(json.loads(body)["generation"])
        return headers.get("connection") != "close"
