"""The clients of `serving.py` and `serving_peers.py`, in a process of their own: plain sockets, loops closed and open.

It reads one line of JSON (what to do), does it until its time is over or another line comes, and prints what it saw.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Open requests at a time; what would be more is counted, and is the client's limit, not the server's.
_MOST_OPEN = 512
_LONGEST = 30.0
# Who is told to come again does not come at once.
_AFTER_REFUSAL = 0.2
_TOGETHER = 8

_BOUNDARY = "----an-image-and-nothing-else"
FORM = f"multipart/form-data; boundary={_BOUNDARY}"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Seen:
    """What came of all requests: (seconds since the start, seconds it took, status), and what was lost."""

    answers: list[tuple[float, float, int]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    skipped: int = 0


class Client:
    """Asks one server."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._port, self._path = task["port"], task["path"]
        images = [Path(name).read_bytes() for name in task["images"]]
        field = task.get("field")
        self._bodies = [form(field, image) for image in images] if field else images
        self._type = FORM if field else "image/jpeg"
        self._idle: list[Connection] = []
        self._asked = 0
        self.began = time.perf_counter()
        self.seen = Seen()

    async def ask(self, *, keeps: bool = True, image: int | None = None) -> bytes:
        """Ask once, with the next image, and note what came of it."""
        self._asked += 1
        body = self._bodies[(self._asked if image is None else image) % len(self._bodies)]
        started = time.perf_counter()
        try:
            async with asyncio.timeout(_LONGEST):
                status, answer = await self._exchange(body, keeps)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.seen.lost.append(f"{time.perf_counter() - self.began:.2f} s: {error!r}")
            return b""
        self.seen.answers.append((started - self.began, time.perf_counter() - started, status))
        return answer if status == 200 else b""

    async def _exchange(self, body: bytes, keeps: bool) -> tuple[int, bytes]:
        # A connection that the server has ended meanwhile is of no use; one that it ends now is a lost request.
        while self._idle and self._idle[-1][0].at_eof():
            self._idle.pop()[1].close()
        connection = (
            self._idle.pop() if keeps and self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        )
        reader, writer = connection
        is_kept = False
        try:
            close = "" if keeps else "Connection: close\r\n"
            head = (
                f"POST {self._path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: {self._type}\r\n"
                f"Content-Length: {len(body)}\r\n{close}\r\n"
            )
            writer.write(head.encode() + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
            headers = dict(line.split(":", 1) for line in lines[1:] if line)
            answer = await _read_body(reader, headers)
            is_kept = keeps and headers.get("connection", "").strip() != "close"
            return int(lines[0].split()[1]), answer
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                writer.close()


def form(field: str, image: bytes) -> bytes:
    """An image as the one file of a form, as servers take it that do not take the file itself."""
    head = (
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; filename="image.jpg"\r\n'
        "Content-Type: image/jpeg\r\n\r\n"
    )
    return head.encode() + image + f"\r\n--{_BOUNDARY}--\r\n".encode()


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    found = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        found += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return found


async def closed_loop(client: Client, task: dict[str, Any], is_over: asyncio.Event) -> None:
    """So many clients, each with one question at a time; some keep their connections."""

    async def one(keeps: bool) -> None:
        while not is_over.is_set():
            is_answered = await client.ask(keeps=keeps)
            await asyncio.sleep(task.get("pause", 0.0) if is_answered else _AFTER_REFUSAL)

    await asyncio.gather(*(one(number < task["keeping"]) for number in range(task["clients"])))


async def open_loop(client: Client, task: dict[str, Any], is_over: asyncio.Event) -> None:
    """Questions that come when they come, whatever the answers do: a Poisson process, at each rate for its seconds."""
    chance, loop = random.Random(0), asyncio.get_running_loop()
    asking: set[asyncio.Task[bytes]] = set()
    due = loop.time()
    for rate, seconds in task["rates"]:
        end = due + seconds
        while due < end and not is_over.is_set():
            await asyncio.sleep(max(0.0, due - loop.time()))
            if len(asking) < _MOST_OPEN:
                question = loop.create_task(client.ask())
                asking.add(question)
                question.add_done_callback(asking.discard)
            else:
                client.seen.skipped += 1
            due += chance.expovariate(rate)
        due = max(due, end)
    await asyncio.gather(*asking)


async def agreement(client: Client, task: dict[str, Any], is_over: asyncio.Event) -> None:
    """Every image alone, then all together; prints the largest difference between logits."""
    count = len(task["images"])
    alone = [json.loads(await client.ask(image=number) or '{"logits": []}')["logits"] for number in range(count)]
    largest, compared = 0.0, 0
    for _ in range(task["rounds"]):
        answers: list[bytes] = []
        for first in range(0, count, _TOGETHER):
            group = range(first, min(first + _TOGETHER, count))
            answers += await asyncio.gather(*(client.ask(image=number) for number in group))
        for logits, answer in zip(alone, answers, strict=True):
            if logits and answer:
                compared += 1
                pairs = zip(logits, json.loads(answer)["logits"], strict=True)
                largest = max(largest, *(abs(one - other) for one, other in pairs))
    task["found"] = {"largest": largest, "compared": compared}


MODES: dict[str, Callable[[Client, dict[str, Any], asyncio.Event], Awaitable[None]]] = {
    "closed": closed_loop,
    "open": open_loop,
    "agreement": agreement,
}


async def main() -> None:
    """Do one task."""
    loop = asyncio.get_running_loop()
    task = json.loads(await asyncio.to_thread(sys.stdin.readline))
    client, is_over = Client(task), asyncio.Event()
    # Whatever comes next, be it the end of the file, is the word to stop.
    loop.add_reader(sys.stdin, is_over.set)
    if "seconds" in task:
        loop.call_later(task["seconds"], is_over.set)
    await MODES[task["mode"]](client, task, is_over)
    seen = client.seen
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - client.began,
                "answers": seen.answers,
                "lost": seen.lost,
                "skipped": seen.skipped,
                "found": task.get("found"),
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
