"""An engine without a model, a server around it, and a client that writes its own HTTP."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitrail.config.serve import ServeConfig
from vitrail.serving.engine import Job, Refused, Reply
from vitrail.serving.http.app import App
from vitrail.serving.http.listener import Listener
from vitrail.serving.http.page_files import PageFile

LABELS = ["<script>alert(1)</script>", "고양이", 'dog "big"', "🦊"]
FACTS: dict[str, Any] = {
    "name": "fake",
    "generation": 1,
    "network": "ViT-Ti/16",
    "kind": "vit",
    "parameters": 5_717_416,
    "backend": "onnx",
    "labels": LABELS,
    "num_classes": len(LABELS),
    "channels": 3,
    "image_size": [224, 224],
    "patch_size": [16, 16],
    "stem": None,
    "grid": [14, 14],
    "tokens": 197,
    "prefix_tokens": 1,
    "class_token": True,
    "registers": 0,
    "width": 192,
    "depth": 12,
    "num_heads": 3,
    "head_dim": 64,
    "mlp_width": 768,
    "position": "learned_1d",
    "pool": "token",
    "loss": "softmax",
    "preprocessing": {"mean": [0.5, 0.5, 0.5]},
    "can": {
        "predictions": True,
        "embeddings": True,
        "attention": True,
        "rollout": True,
        "lens": True,
        "distance": False,
        "positions": True,
        "filters": False,
        "occlusion": True,
    },
    "limits": {"bytes": 1, "pixels": 1, "seconds": 1.0},
}
TOP = [{"index": 1, "label": LABELS[1], "probability": 0.5, "logit": 1.25}]
PAGE = {
    "index.html": PageFile(b"<!doctype html><title>vitrail</title>", "text/html; charset=utf-8", '"one"'),
    "app.js": PageFile(b"export {}", "text/javascript; charset=utf-8", '"two"'),
}


class FakeEngine:
    """Answers after a while; `source` says how it behaves where it runs in another process."""

    def __init__(self, config: ServeConfig, _generation: int = 0) -> None:
        self.config = config
        self.state, self.facts = "ready", dict(FACTS)
        self.jobs: list[Job] = []
        self.answered = self.dropped = 0
        self.seconds = 0.0
        self.refuses: Refused | None = None
        self.reply: Reply | None = None
        self.failure: tuple[str, int] | None = None
        self.observe: Any = None

    async def start(self) -> None:
        if self.config.source == "crashing":
            os._exit(7)
        if Path(self.config.source).with_suffix(".unreadable").exists():
            self.failure = "unreadable: this is no model. Name another.", 3
        self.seconds = 0.01

    async def wait_ready(self, timeout: float) -> bool:
        await asyncio.sleep(0.05)
        return self.failure is None

    def ensure_room(self, kind: str) -> None:
        if self.refuses is not None:
            raise self.refuses

    async def ask(self, job: Job, deadline: float) -> Reply:
        self.jobs.append(job)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.dropped += 1
            raise
        self.answered += 1
        record = {"top": TOP, "frames": 1, "generation": self.facts["generation"], "bytes": len(job.body)}
        return self.reply or Reply(200, "application/json", {}, json.dumps(record).encode())

    async def swap(self) -> bool:
        self.facts = {**self.facts, "generation": self.facts["generation"] + 1}
        return True

    async def stop(self) -> None:
        self.state = "stopped"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes
    names: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self.reader, self.writer, self.port = reader, writer, port

    async def ask(
        self, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a whole request and read its answer."""
        given = {"Host": f"127.0.0.1:{self.port}"}
        if body is not None:
            given |= {"Content-Length": str(len(body)), "Content-Type": "image/png"}
        given |= headers or {}
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self.writer.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b""))
        return await self.answer(is_head=method == "HEAD")

    async def answer(self, *, is_head: bool = False) -> Answer:
        """Read the next answer."""
        async with asyncio.timeout(10):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = [line.split(": ", 1) for line in lines[1:] if line]
            headers = {name.lower(): value for name, value in pairs}
            has_body = not is_head and "content-length" in headers
            body = await self.reader.readexactly(int(headers["content-length"])) if has_body else b""
        return Answer(int(lines[0].split()[1]), headers, body, [name.lower() for name, _ in pairs])

    async def is_closed(self) -> bool:
        """Whether the server ended the connection, without another byte."""
        async with asyncio.timeout(10):
            return await self.reader.read() == b""

    async def close(self) -> None:
        self.writer.close()


@dataclass
class Served:
    """A running server."""

    app: App
    engine: FakeEngine
    listener: Listener
    listening: socket.socket
    port: int

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port), self.port)

    async def ask(self, *words: Any, **options: Any) -> Answer:
        """Ask on a connection of its own."""
        client = await self.connect()
        try:
            return await client.ask(*words, **options)
        finally:
            await client.close()


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Served]:
    """A server in this loop, at a port of its own."""
    config = ServeConfig(source="fake", **options)
    engine = FakeEngine(config)
    app = App(config, engine, page=PAGE)  # type: ignore[arg-type]
    listening = socket.create_server(("127.0.0.1", 0))
    listener = Listener(app.asgi, listening)
    listener.accept()
    try:
        yield Served(app, engine, listener, listening, listening.getsockname()[1])
    finally:
        await listener.drain(0, 0.1)
        listening.close()
