"""`vitrail serve` as it is started: what it says, refuses and survives, with a real model."""

import asyncio
import base64
import io
import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cli.test_evaluate import make_model
from tests.serving.http.started import Started, children_of, started

from vitrail.cli import main
from vitrail.cli.serve import greeting
from vitrail.prediction import Predictor

NAMES = ("개미", "bee <script>", 'cow "black"', "🐕")
FACTS = {
    "name": "pets",
    "network": "ViT-Ti/16",
    "parameters": 5_717_416,
    "num_classes": 37,
    "image_size": [224, 224],
    "backend": "openvino",
}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return str(Path(make_model("pets", NAMES)).absolute())


def picture(seed: int = 0) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def ask(server: Started, path: str, body: bytes, kind: str = "image/png") -> dict:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", body, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_it_answers_as_predict_does_and_outlives_its_worker(model, tmp_path) -> None:
    with started(tmp_path, "serve", model, "--backend", "torch", "--drain", "0.2", module="vitrail") as server:
        server.wait_ready()
        assert server.said[0].startswith(f"reading {model}; the first time")
        assert server.said[1].startswith("serving pets: ")
        assert "4 classes" in server.said[1]
        assert "computed by torch" in server.said[1]
        assert f"curl -H 'Content-Type: image/jpeg' --data-binary @photo.jpg http://127.0.0.1:{server.port}/" in (
            "\n".join(server.said)
        )
        expected = Predictor(model, backend="torch")([Image.open(io.BytesIO(picture()))], top_k=4)[0]
        text = b"data:image/png;base64," + base64.b64encode(picture())
        for answer in (ask(server, "/v1/predictions", picture()), ask(server, "/v1/predictions", text, "text/plain")):
            assert [one["label"] for one in answer["top"]] == [label for label, _ in expected]
            assert np.allclose(
                [one["probability"] for one in answer["top"]], [chance for _, chance in expected], atol=1e-4
            )
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(server, "/v1/predictions", b"<svg xmlns='http://www.w3.org/2000/svg'/>")
        assert refused.value.code == 400
        assert json.load(refused.value)["error"]["code"] == "unreadable_image"
        # Row 27: the model's process is killed; the server says so, and is well again by itself.
        [child] = server.children()
        [worker] = children_of(child)
        os.kill(worker, signal.SIGKILL)
        statuses = asyncio.run(until_answered(server))
        assert set(statuses) <= {200, 503}
        assert statuses[-1] == 200
        assert server.children() == [child]
        assert server.log.read_text().count("Traceback") == 0


async def until_answered(server: Started) -> list[int]:
    """Ask until there is an answer again; no question may hang."""
    found: list[int] = []
    end = time.monotonic() + 30
    while time.monotonic() < end and (not found or found[-1] != 200 or 503 not in found):
        try:
            await asyncio.to_thread(ask, server, "/v1/predictions", picture())
            found.append(200)
        except urllib.error.HTTPError as error:
            assert error.headers["Retry-After"]
            found.append(error.code)
        await asyncio.sleep(0.1)
    return found


def test_a_model_that_is_not_there_is_one_sentence(model, tmp_path) -> None:
    with started(tmp_path, "serve", "no-such-model", module="vitrail") as server:
        assert server.process.wait(30) in (2, 3)
        errors = [line for line in server.log.read_text().splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert "no-such-model" in errors[0]
        assert "Traceback" not in server.log.read_text()


def test_a_port_that_is_taken_is_one_sentence(capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "model", "--port", str(port)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"error: port {port} is taken by another program. Choose another")
    assert said.out == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--host", "0.0.0.0"], "there is no token"),
        (["--host", "0.0.0.0", "--token", "short"], "the token has 5 characters"),
        (["--host", "no.such.host.invalid", "--token", "a-token-of-some-length"], "is not known"),
        (["--host", "203.0.113.7", "--token", "a-token-of-some-length"], "is no address of this computer"),
        (["--port", "70000"], "from 0 to 65,535"),
        (["--queue-seconds", "0"], "queue_seconds"),
    ],
)
def test_what_is_refused_before_anything_starts(words, reason, capsys, monkeypatch) -> None:
    monkeypatch.delenv("VITRAIL_TOKEN", raising=False)
    assert main(["serve", "model", *words]) == 2
    said = capsys.readouterr()
    assert reason in said.err
    assert "Traceback" not in said.err


def test_the_token_of_the_environment_is_used(monkeypatch, capsys) -> None:
    monkeypatch.setenv("VITRAIL_TOKEN", "short")
    assert main(["serve", "model"]) == 2
    assert "the token has 5 characters" in capsys.readouterr().err


def test_the_greeting_says_what_where_and_how() -> None:
    lines = greeting(FACTS, "http://127.0.0.1:8265/", has_token=False)
    assert lines[0] == (
        "serving pets: ViT-Ti/16, 5.7 M parameters, 37 classes, images of 224x224, computed by openvino"
    )
    text = "\n".join(lines)
    assert "http://127.0.0.1:8265/v1/predictions" in text
    assert "Ctrl-C" in text
    assert "Authorization" not in text
    assert "Bearer $VITRAIL_TOKEN" in "\n".join(greeting(FACTS, "http://127.0.0.1:8265/", has_token=True))


def test_a_model_without_classes_is_asked_for_what_it_has() -> None:
    text = "\n".join(greeting({**FACTS, "num_classes": 0}, "http://127.0.0.1:8265/", has_token=False))
    assert "http://127.0.0.1:8265/v1/embeddings" in text
    assert "predictions" not in text


def test_a_name_cannot_move_the_cursor() -> None:
    lines = greeting(
        {**FACTS, "name": "\x1b[2Jpets", "parameters": None, "num_classes": 0}, "http://[::1]:1/", has_token=False
    )
    assert lines[0].startswith("serving \\x1b[2Jpets: ViT-Ti/16, no classes")
