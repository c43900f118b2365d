"""The OpenAPI document is true: valid, complete, and every answer is as it says (row 30 of the fault table)."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving.http.fakes import FACTS, FakeEngine, serving

from vitrail.config.serve import ServeConfig
from vitrail.serving.http.openapi import openapi
from vitrail.serving.http.routes import ENDPOINTS
from vitrail.serving.http.schemas import SCHEMAS


def test_every_route_is_described_and_every_description_has_a_route() -> None:
    document = openapi(ServeConfig(source="fake"), FACTS)
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert described == {(one.path, one.method) for one in ENDPOINTS} | {("/page/{file}", "GET")}
    names = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(names) == len(set(names))
    assert {one.gives for one in ENDPOINTS if one.gives[0].isupper()} <= set(SCHEMAS)
    for reference in set(json.dumps(document).split("#/components/schemas/")[1:]):
        assert reference.split('"')[0] in SCHEMAS


def test_bounds_come_from_the_model_and_a_token_is_said() -> None:
    def parameters(path: str, method: str, facts: dict | None) -> dict:
        found = openapi(ServeConfig(source="fake", token="a-token-of-some-length"), facts)["paths"][path][method]
        assert "401" in found["responses"]
        return {one["name"]: one["schema"] for one in found["parameters"]}

    assert parameters("/v1/predictions", "post", FACTS)["top_k"] == {
        "type": "integer", "minimum": 1, "maximum": 4, "default": 4,
    }  # fmt: skip
    assert "maximum" not in parameters("/v1/predictions", "post", None)["top_k"]
    assert parameters("/v1/attention", "post", FACTS)["layer"]["maximum"] == 11
    assert "securitySchemes" not in openapi(ServeConfig(source="fake"), FACTS)["components"]


@pytest.fixture
def address() -> Iterator[str]:
    """A server with an engine that has no model, in a thread of its own."""
    ready, port = threading.Event(), [0]
    stop: list = []

    async def run() -> None:
        async with serving(body_seconds=2.0) as server:
            server.engine.facts = {**FACTS, "can": dict.fromkeys(FACTS["can"], True)}
            server.engine.ask = _answers(server.engine)  # type: ignore[method-assign]
            ended = asyncio.Event()
            stop.append((asyncio.get_running_loop(), ended))
            port[0] = server.port
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    ready.wait(10)
    yield f"http://127.0.0.1:{port[0]}"
    loop, ended = stop[0]
    loop.call_soon_threadsafe(ended.set)
    thread.join(10)


def test_answers_are_as_described(address) -> None:
    checker = pytest.importorskip("jsonschema_rs", reason="it comes with schemathesis")
    document = _json(address, "GET", "/openapi.json")
    for path, method, body in (
        ("/healthz", "GET", None),
        ("/readyz", "GET", None),
        ("/v1/model", "GET", None),
        ("/v1/filters", "GET", None),
        ("/v1/predictions", "POST", b"image"),
        ("/v1/embeddings", "POST", b"image"),
        ("/v1/inspections", "POST", b"image"),
        ("/v1/occlusions?patches=1", "POST", b"image"),
    ):
        schema = document["paths"][path.split("?")[0]][method.lower()]["responses"]["200"]["content"][
            "application/json"
        ]
        whole = {**schema["schema"], "components": document["components"]}
        checker.validator_for(whole).validate(_json(address, method, path, body))
    with pytest.raises(urllib.error.HTTPError) as refused:
        _json(address, "GET", "/nothing")
    error = {"$ref": "#/components/schemas/Error", "components": document["components"]}
    checker.validator_for(error).validate(json.loads(refused.value.read()))


def _json(address: str, method: str, path: str, body: bytes | None = None):
    request = urllib.request.Request(address + path, body, {"Content-Type": "image/png"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def _answers(engine: FakeEngine):
    """Answers of the right form for every kind."""
    from vitrail.serving.engine import Reply

    top = [{"index": 0, "label": None, "probability": 0.5, "logit": -1.0}]
    made = {
        "predictions": {"top": top, "frames": 1, "generation": 1, "seconds": {"queue": 0, "decode": 0, "model": 0.1}},
        "embeddings": {"features": [0.5], "frames": 1, "generation": 1},
        "inspections": {"top": top, "frames": 1, "generation": 1, "rollout": [[0.5]]},
        "occlusions": {"top": top, "covered": [1], "generation": 1},
        "filters": {"layer": "embedding", "count": 1, "shares": [1.0], "components": [[[[0.5]]]]},
    }

    async def ask(job, deadline) -> Reply:
        if job.kind in made:
            return Reply(200, "application/json", {}, json.dumps(made[job.kind]).encode())
        return Reply(200, "application/octet-stream", {"X-Shape": "1", "X-Generation": "1"}, bytes(4))

    return ask


@pytest.mark.slow
def test_schemathesis_finds_nothing(address, tmp_path) -> None:
    program = Path(sys.executable).with_name("schemathesis")
    if not program.exists():
        pytest.skip("schemathesis is not installed")
    found = subprocess.run(
        [
            str(program), "run", f"{address}/openapi.json", "--max-examples", "50", "--seed", "1",
            "--no-color", "--generation-database", "none", "--request-timeout", "10",
            # Bytes that are no image are refused, as they should be.
            "--exclude-checks", "positive_data_acceptance,negative_data_rejection,missing_required_header",
        ],
        capture_output=True, text=True, timeout=500, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-1000:]
    assert "No issues found" in found.stdout


def test_random_bytes_to_every_route_are_answered_or_refused(address) -> None:
    """A poor man's fuzzer beside the good one: what no HTTP client would send."""
    import random

    chance = random.Random(0)
    host, port = address.removeprefix("http://").split(":")
    pieces = [b"GET ", b"POST ", b"/v1/predictions", b"/", b"?top_k=", b" HTTP/1.1", b"\r\n", b"\r\n\r\n"]
    pieces += [b"Host: localhost", b"Content-Length: 3", b"Transfer-Encoding: chunked", b"0\r\n\r\n"]
    pieces += [b"\0", b"\xff", b"a" * 100]
    for _ in range(200):
        with socket.create_connection((host, int(port)), timeout=5) as client:
            client.sendall(b"".join(chance.choices(pieces, k=chance.randint(1, 20))))
            client.shutdown(socket.SHUT_WR)
            heard = b"".join(iter(lambda: _heard(client), b""))
        for line in heard.split(b"\r\n"):
            if line.startswith(b"HTTP/1.1 "):
                assert line[9:10] in b"1234", line


def _heard(client: socket.socket) -> bytes:
    try:
        return client.recv(65536)
    except ConnectionError:
        return b""
