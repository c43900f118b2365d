import asyncio

from prometheus_client.parser import text_string_to_metric_families
from tests.serving.http.fakes import serving

from vitrail.serving.http.metrics import Metrics


def test_every_request_is_counted_by_route_and_code_and_routes_are_few() -> None:
    async def run() -> str:
        async with serving() as server:
            for number in range(50):
                await server.ask("GET", f"/nothing/{number}")
            await server.ask("GET", "/page/app.js")
            await server.ask("POST", "/v1/predictions", b"image")
            answer = await server.ask("GET", "/metrics")
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            return answer.body.decode()

    text = asyncio.run(run())
    families = {family.name: family for family in text_string_to_metric_families(text)}
    counted = {
        (sample.labels["route"], sample.labels["code"]): sample.value
        for sample in families["vitrail_requests"].samples
        if sample.name == "vitrail_requests_total"
    }
    assert counted == {("other", "404"): 50.0, ("/page/", "200"): 1.0, ("/v1/predictions", "200"): 1.0}
    assert families["vitrail_ready"].samples[0].value == 1
    assert families["vitrail_model_generation"].samples[0].value == 1


def test_what_the_engine_tells_is_there() -> None:
    metrics = Metrics(lambda: False, lambda: 3)
    metrics.waiting(7)
    metrics.batch(5)
    metrics.batch(8)
    for stage in ("queue", "decode", "model"):
        metrics.seconds(stage, 0.02)
    metrics.restarted()
    text = metrics.text().decode()
    assert "vitrail_queue_depth 7.0" in text
    assert 'vitrail_batch_size_bucket{le="8.0"} 2.0' in text
    assert 'vitrail_stage_seconds_count{stage="decode"} 1.0' in text
    assert "vitrail_worker_restarts_total 1.0" in text
    assert "vitrail_ready 0.0" in text
    assert "process_resident_memory_bytes" in text
