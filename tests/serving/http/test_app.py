"""Routes: what is answered, what is refused before a body is read, and who leaves before the answer."""

import asyncio
import json

import pytest
from tests.serving.http.fakes import FACTS, LABELS, serving

from vitrail.serving.engine import Refused, Reply
from vitrail.serving.http import connection
from vitrail.serving.http.page_files import read_page


def test_a_prediction_comes_back_as_the_engine_gave_it() -> None:
    async def run() -> None:
        async with serving() as server:
            answer = await server.ask("POST", "/v1/predictions?top_k=2&logits=1", b"image")
            assert answer.status == 200
            assert answer.json["top"][0]["label"] == LABELS[1]
            assert answer.headers["content-type"] == "application/json"
            [job] = server.engine.jobs
            assert (job.kind, job.options, job.body) == ("predictions", {"top_k": 2, "logits": True}, b"image")

    asyncio.run(run())


def test_headers_and_bytes_of_a_reply_are_passed_on() -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.reply = Reply(200, "application/octet-stream", {"X-Shape": "3,2"}, bytes(24))
            answer = await server.ask("POST", "/v1/attention?layer=11&query=196", b"image")
            assert (answer.body, answer.headers["x-shape"]) == (bytes(24), "3,2")
            assert server.engine.jobs[0].options == {"layer": 11, "query": 196}
            server.engine.reply = Reply(413, "application/json", {}, b'{"error":{"code":"pixels","message":"No."}}')
            assert (await server.ask("POST", "/v1/predictions", b"image")).code == "pixels"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("/v1/predictions", {"top_k": 4, "logits": False}),
        ("/v1/embeddings", {}),
        ("/v1/inspections", {"parts": ["seen", "rollout", "maps", "lens"], "top_k": 4}),
        ("/v1/inspections?parts=lens,seen", {"parts": ["seen", "lens"], "top_k": 4}),
        ("/v1/attention?layer=0", {"layer": 0, "query": None}),
        ("/v1/occlusions?patches=195,3,3", {"patches": [3, 195], "top_k": 4}),
        ("/v1/occlusions?patches=", {"patches": [], "top_k": 4}),
    ],
)
def test_options_and_their_defaults(target, options) -> None:
    async def run() -> None:
        async with serving() as server:
            assert (await server.ask("POST", target, b"image")).status == 200
            assert server.engine.jobs[0].options == options

    asyncio.run(run())


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/v1/predictions?top_k=0", "from 1 to 4"),
        ("/v1/predictions?top_k=5", "from 1 to 4"),
        ("/v1/predictions?top_k=-1", "whole number"),
        ("/v1/predictions?top_k=1_0", "whole number"),
        ("/v1/predictions?top_k=%D9%A3", "whole number"),
        ("/v1/predictions?top_k=" + "9" * 5000, "whole number"),
        ("/v1/predictions?top_k=", "whole number"),
        ("/v1/predictions?top_k=1&top_k=2", "twice"),
        ("/v1/predictions?top-k=1", "Did you mean 'top_k'?"),
        ("/v1/predictions?logits=yes", "0 or 1"),
        ("/v1/embeddings?top_k=1", "wanted none"),
        ("/v1/attention", "layer is missing"),
        ("/v1/attention?layer=12", "from 0 to 11"),
        ("/v1/attention?layer=0&query=197", "from 0 to 196"),
        ("/v1/occlusions", "patches is missing"),
        ("/v1/occlusions?patches=196", "from 0 to 195"),
        ("/v1/occlusions?patches=1,,2", "whole numbers"),
        ("/v1/inspections?parts=sen", "seen, rollout"),
        ("/v1/inspections?parts=", "seen, rollout"),
    ],
)
def test_wrong_options_are_refused_before_the_body_is_read(target, reason) -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 9\r\n\r\n"
            client.writer.write(head.encode())
            answer = await client.answer()
            assert (answer.status, answer.code) == (400, "bad_option")
            assert reason in answer.json["error"]["message"]
            assert len(answer.body) < 500
            client.writer.write(b"123456789")
            assert (await client.ask("GET", "/healthz")).status == 200

    asyncio.run(run())


@pytest.mark.parametrize("target", ["/v1/filters", "/v1/inspections?parts=distance"])
def test_what_the_network_has_not_got_is_not_there(target) -> None:
    async def run() -> None:
        async with serving() as server:
            answer = await server.ask("GET" if "filters" in target else "POST", target)
            assert (answer.status, answer.code) == (404, "not_available")

    asyncio.run(run())


def test_attention_that_is_too_large_is_refused_unread() -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.facts["tokens"] = 4097
            client = await server.connect()
            client.writer.write(b"POST /v1/attention?layer=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.code) == (400, "too_large")
            assert "query=0" in answer.json["error"]["message"]

    asyncio.run(run())


@pytest.mark.parametrize(("reason", "seconds", "header"), [("busy", 0.2, "1"), ("broken", 2.3, "3"), ("late", 1, "1")])
def test_overload_is_told_before_the_body_is_read_and_the_connection_stays(reason, seconds, header) -> None:
    """Row 25: the refusal waits for nothing, and 16 clients that are refused can ask again."""

    async def run() -> None:
        async with serving() as server:
            server.engine.refuses = Refused(reason, seconds)
            clients = [await server.connect() for _ in range(16)]
            head = b"POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
            for client in clients:
                client.writer.write(head)
            for client in clients:
                answer = await client.answer()
                assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, reason, header)
                assert "connection" not in answer.headers
            server.engine.refuses = None
            for client in clients:
                client.writer.write(b"123456789")
                assert (await client.ask("POST", "/v1/predictions", b"image")).status == 200
            assert f'vitrail_refused_total{{reason="{reason}"}} 16.0' in server.app.metrics.text().decode()

    asyncio.run(run())


def test_who_wants_the_connection_closed_still_reads_the_refusal() -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.refuses = Refused("busy", 1)
            client = await server.connect()
            head = (
                "POST /v1/predictions HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n"
            )
            client.writer.write(head.encode())
            assert (await client.answer()).status == 503
            client.writer.write(b"\0" * 3_000_000)
            await client.writer.drain()
            assert await client.is_closed()

    asyncio.run(run())


def test_a_model_that_is_loading_refuses_at_once() -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.facts, server.engine.state = None, "loading"  # type: ignore[assignment]
            for method, target in (("GET", "/v1/model"), ("POST", "/v1/predictions"), ("GET", "/v1/positions")):
                answer = await server.ask(method, target)
                assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "loading", "1")
            answer = await server.ask("GET", "/readyz")
            assert (answer.status, answer.json) == (503, {"ready": False, "reason": "loading"})
            assert (await server.ask("GET", "/healthz")).status == 200
            assert (await server.ask("GET", "/openapi.json")).status == 200

    asyncio.run(run())


@pytest.mark.parametrize(
    ("state", "status"), [("ready", 200), ("swapping", 200), ("restarting", 503), ("stopped", 503)]
)
def test_readiness_follows_the_engine(state, status) -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.state = state
            assert (await server.ask("GET", "/readyz")).status == status

    asyncio.run(run())


def test_a_client_that_leaves_while_it_waits_drops_its_work(monkeypatch) -> None:
    """Row 26: the engine's question is cancelled, and nobody else's."""
    monkeypatch.setattr(connection, "_LEFT_SECONDS", 0.05)

    async def run() -> None:
        async with serving() as server:
            server.engine.seconds = 0.3
            patient, hasty = await server.connect(), await server.connect()
            waiting = asyncio.ensure_future(patient.ask("POST", "/v1/predictions", b"image"))
            asking = asyncio.ensure_future(hasty.ask("POST", "/v1/predictions", b"image"))
            while len(server.engine.jobs) < 2:
                await asyncio.sleep(0.01)
            await hasty.close()
            assert (await waiting).status == 200
            assert (server.engine.answered, server.engine.dropped) == (1, 1)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await asking
            assert 'code="499"' in server.app.metrics.text().decode()

    asyncio.run(run())


def test_a_fault_of_ours_is_no_broken_connection() -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.reply = "no reply"  # type: ignore[assignment]
            client = await server.connect()
            answer = await client.ask("POST", "/v1/predictions", b"image")
            assert (answer.status, answer.code) == (503, "broken")
            assert (await client.ask("GET", "/healthz")).status == 200

    asyncio.run(run())


def test_head_and_other_methods() -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            for target in ("/", "/healthz", "/v1/model", "/openapi.json", "/page/app.js"):
                head, get = await client.ask("HEAD", target), await client.ask("GET", target)
                assert (head.status, get.status, head.body) == (200, 200, b"")
                assert head.headers["content-length"] == str(len(get.body))
            for method, target, allowed in (
                ("DELETE", "/v1/model", {"GET", "HEAD"}),
                ("OPTIONS", "/v1/predictions", {"POST"}),
                ("HEAD", "/v1/predictions", {"POST"}),
                ("GET", "/v1/predictions", {"POST"}),
                ("POST", "/healthz", {"GET", "HEAD"}),
            ):
                answer = await client.ask(method, target)
                assert (answer.status, set(answer.headers["allow"].split(", "))) == (405, allowed)

    asyncio.run(run())


def test_the_page_is_sent_once_and_then_known() -> None:
    async def run() -> None:
        async with serving() as server:
            client = await server.connect()
            first = await client.ask("GET", "/page/app.js")
            assert first.headers["content-type"] == "text/javascript; charset=utf-8"
            assert first.headers["cache-control"] == "no-cache"
            for known in (first.headers["etag"], f'"x", W/{first.headers["etag"]}', "*"):
                again = await client.ask("GET", "/page/app.js", headers={"If-None-Match": known})
                assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
            assert (await client.ask("GET", "/page/app.js", headers={"If-None-Match": '"x"'})).status == 200

    asyncio.run(run())


@pytest.mark.parametrize(
    "name", ["gone.js", "../http/app.py", "..%2fhttp%2fapp.py", "%2e%2e/__init__.py", "/etc/passwd", "", ".", "app.js/"]
)
def test_only_files_of_the_page_are_sent(name) -> None:
    async def run() -> None:
        async with serving() as server:
            assert (await server.ask("GET", f"/page/{name}")).status == 404

    asyncio.run(run())


def test_a_page_that_is_not_there_is_said(tmp_path) -> None:
    assert read_page(tmp_path) == {}
    (tmp_path / "index.html").write_text("<p>")
    (tmp_path / "secret.py").write_text("")
    (tmp_path / "fonts").mkdir()
    (tmp_path / "fonts" / "a.woff2").write_bytes(b"x")
    found = read_page(tmp_path)
    assert set(found) == {"index.html", "fonts/a.woff2"}
    assert found["fonts/a.woff2"].kind == "font/woff2"


def test_class_names_are_data() -> None:
    async def run() -> None:
        async with serving() as server:
            answer = await server.ask("GET", "/v1/model")
            assert json.loads(answer.body) == FACTS
            assert answer.headers["content-type"] == "application/json"

    asyncio.run(run())


def test_a_class_name_that_is_no_text_is_told_all_the_same() -> None:
    async def run() -> None:
        async with serving() as server:
            server.engine.facts["labels"] = ["cat \ud800", "고양이"]
            answer = await server.ask("GET", "/v1/model")
            assert (answer.status, answer.json["labels"]) == (200, ["cat \ud800", "고양이"])

    asyncio.run(run())
