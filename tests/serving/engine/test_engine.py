"""A model in a process of its own: it answers, it comes back, it is swapped, and nobody is left waiting."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.serving.looks.served import EXPORTED, logits_of, network, photo

from vitrail.config.serve import ServeConfig
from vitrail.prediction import Predictor
from vitrail.serving.engine import Engine, Job, Refused

PATIENCE = 60.0


@pytest.fixture
def source(tmp_path):
    shutil.copy(EXPORTED[0], tmp_path / "served.onnx")
    return tmp_path / "served.onnx"


@asynccontextmanager
async def running(source, **limits):
    engine = Engine(ServeConfig(source=str(source), **limits))
    await engine.start()
    try:
        assert await engine.wait_ready(PATIENCE), engine.failure
        yield engine
    finally:
        await engine.stop()
        assert engine.state == "stopped"


async def ask(engine, body=None, kind="predictions", seconds=PATIENCE, **options):
    deadline = asyncio.get_running_loop().time() + seconds
    return await engine.ask(Job(kind, options, photo() if body is None else body), deadline)


async def until(condition) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, "it never came"
        await asyncio.sleep(0.01)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Counted:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.most, self.now, self.sizes, self.stages, self.restarts = 0, 0, [], [], 0

    def waiting(self, count):
        self.now, self.most = count, max(self.most, count)

    def batch(self, size):
        self.sizes.append(size)

    def seconds(self, stage, seconds):
        self.stages.append((stage, seconds))

    def restarted(self):
        self.restarts += 1


def test_it_answers_what_the_network_answers_alone_and_in_batches(source, monkeypatch) -> None:
    monkeypatch.setenv("VITRAIL_TOKEN", "a-secret-of-the-server")
    photos = [photo(seed, (12 + seed, 20)) for seed in range(20)]
    # Not by a Predictor here: onnxruntime stays out of the process that runs the tests.
    expected = [logits_of(0, body) for body in photos]

    async def scenario():
        async with running(source) as engine:
            engine.observe = seen = Counted()
            assert (engine.state, engine.facts["generation"]) == ("ready", 1)
            assert engine.facts["backend"].startswith("onnxruntime")
            pid = engine._worker.pid
            assert b"a-secret" not in Path(f"/proc/{pid}/environ").read_bytes(), "where strangers' files are decoded"
            assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text(), "an exported file needs no torch"
            single = [await ask(engine, body, logits=True) for body in photos[:3]]
            together = await asyncio.gather(*(ask(engine, body, logits=True) for body in photos))
            embedded = await ask(engine, kind="embeddings")
            missing = await ask(engine, b"", kind="filters")
            bad = await ask(engine, b"<svg xmlns=''/>")
            large = await ask(engine, b"\0" * (engine.config.max_bytes + 1))
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
                os.kill(pid, number)
            assert (await ask(engine)).status == 200, "Ctrl-C is not for workers"
            # A batch is told of after its answers.
            for _ in range(100):
                if sum(seen.sizes) == 25:
                    break
                await asyncio.sleep(0.05)
        assert not lives(pid)
        return single, together, embedded, missing, bad, large, seen

    single, together, embedded, missing, bad, large, seen = asyncio.run(scenario())
    for replies in (single, together):
        for reply, row in zip(replies, expected, strict=False):
            assert (reply.status, reply.content_type) == (200, "application/json")
            assert np.abs(np.array(json.loads(reply.body)["logits"]) - row).max() < 1e-4
    assert max(seen.sizes) > 1, "some were computed together"
    assert sum(seen.sizes) == 25
    assert (seen.now, seen.most) == (0, 20)
    assert {stage for stage, _ in seen.stages} == {"queue", "decode", "model"}
    assert len(json.loads(embedded.body)["features"]) == 16
    assert (missing.status, bad.status, large.status) == (404, 400, 413)
    assert "SVG drawing" in json.loads(bad.body)["error"]["message"]


def test_a_killed_worker_is_noticed_at_once_and_comes_back(source) -> None:
    async def scenario():
        async with running(source) as engine:
            engine.observe = seen = Counted()
            first = engine._worker.pid
            os.kill(first, signal.SIGSTOP)
            waiting = [asyncio.create_task(ask(engine)) for _ in range(5)]
            await asyncio.sleep(0.05)
            os.kill(first, signal.SIGKILL)
            refused = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 1.0)
            assert [getattr(one, "reason", one) for one in refused] == ["broken"] * 5
            assert engine.state == "restarting"
            with pytest.raises(Refused, match="broken"):
                engine.ensure_room("predictions")
            with pytest.raises(Refused, match="broken"):
                await ask(engine)
            await until(lambda: engine.state == "ready")
            assert (await ask(engine)).status == 200
            assert engine._worker.pid != first
            assert seen.restarts == 1
            assert seen.now == 0

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_worker_that_is_stuck_is_killed_and_its_jobs_are_late(source) -> None:
    async def scenario():
        async with running(source, wedged=2.0) as engine:
            first = engine._worker.pid
            os.kill(first, signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(Refused, match="late"):
                await ask(engine, seconds=0.2)
            assert time.monotonic() - began < 2
            with pytest.raises(Refused, match="broken"):
                await ask(engine)
            await until(lambda: not lives(first))
            await until(lambda: engine.state == "ready")
            assert (await ask(engine)).status == 200

    asyncio.run(scenario())


def test_a_queue_that_is_full_refuses_at_once_and_takes_no_more_memory(source) -> None:
    async def scenario():
        async with running(source, queue_seconds=0.5, max_bytes=2**20) as engine:
            os.kill(engine._worker.pid, signal.SIGSTOP)
            # As slow as this: five wait, and those before the sixth take too long.
            engine._rooms["images"].expect(0.11)
            waiting = [asyncio.create_task(ask(engine)) for _ in range(5)]
            await asyncio.sleep(0.05)
            with pytest.raises(Refused) as refused:
                engine.ensure_room("embeddings")
            assert (refused.value.reason, round(refused.value.retry_after, 2)) == ("busy", 0.11)
            engine.ensure_room("inspections")
            # Jobs that nobody waits for any more leave their bytes behind, but not for ever.
            reasons = set()
            for _ in range(20):
                with pytest.raises(Refused) as refused:
                    await ask(engine, bytes(2**20), "inspections", seconds=0.02)
                reasons.add(refused.value.reason)
            assert reasons == {"late", "busy"}
            assert engine._worker._writer.transport.get_write_buffer_size() < 4 * 2**20
            os.kill(engine._worker.pid, signal.SIGCONT)
            assert {reply.status for reply in await asyncio.gather(*waiting)} == {200}
            # Nothing of what was given up is computed: the way is free as soon as it was read.
            await until(lambda: not engine._worker._writer.transport.get_write_buffer_size())
            assert (await ask(engine)).status == 200

    asyncio.run(scenario())


def test_who_leaves_takes_the_job_along(source) -> None:
    async def scenario():
        async with running(source) as engine:
            engine.observe = seen = Counted()
            os.kill(engine._worker.pid, signal.SIGSTOP)
            leaving = [asyncio.create_task(ask(engine)) for _ in range(4)]
            staying = asyncio.create_task(ask(engine))
            await asyncio.sleep(0.05)
            for task in leaving:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
            assert seen.now == 1
            os.kill(engine._worker.pid, signal.SIGCONT)
            assert (await staying).status == 200
            assert (await ask(engine)).status == 200
            with pytest.raises(Refused, match="late"):
                await ask(engine, seconds=-1)

    asyncio.run(scenario())


def test_a_swap_under_load_loses_nothing(source) -> None:
    before, after = logits_of(0, photo()), logits_of(1, photo())

    async def scenario():
        async with running(source) as engine:
            old, is_over, found = engine._worker.pid, False, []

            async def client() -> None:
                while not is_over:
                    try:
                        found.append(json.loads((await ask(engine, logits=True)).body))
                    except Refused as refused:
                        assert refused.reason == "busy", refused
                        await asyncio.sleep(0.01)

            clients = [asyncio.create_task(client()) for _ in range(8)]
            await until(lambda: len(found) > 20)
            shutil.copy(EXPORTED[1], source)
            swapping = asyncio.create_task(engine.swap())
            await asyncio.sleep(0)
            assert engine.state == "swapping"
            assert await swapping
            assert (engine.state, engine.facts["generation"]) == ("ready", 2)
            count = len(found)
            await until(lambda: len(found) > count + 30)
            is_over = True
            await asyncio.gather(*clients)
            await until(lambda: not lives(old))
            assert found[-1]["generation"] == 2
            return found

    found = asyncio.run(scenario())
    for one in found:
        assert np.abs(np.array(one["logits"]) - (before, after)[one["generation"] - 1]).max() < 1e-4
    assert {one["generation"] for one in found} == {1, 2}


def test_a_new_model_that_cannot_be_read_leaves_the_old_one(source, caplog) -> None:
    async def scenario():
        async with running(source) as engine:
            source.write_bytes(b"this is no model")
            assert not await engine.swap()
            assert engine.state == "ready"
            assert (engine.facts["generation"], engine.failure[1]) == (1, 3)
            assert json.loads((await ask(engine)).body)["generation"] == 1
            # Not even its own process can be started anew from such a file, and everybody is told so.
            os.kill(engine._worker.pid, signal.SIGKILL)
            await until(lambda: engine.state == "restarting")
            with pytest.raises(Refused, match="broken"):
                engine.ensure_room("predictions")

    asyncio.run(scenario())
    assert "the old one goes on" in caplog.text


def test_a_swap_whose_process_is_killed_is_none(source) -> None:
    async def scenario():
        async with running(source) as engine:
            swapping = asyncio.create_task(engine.swap())
            await until(lambda: len(engine._workers) == 2)
            [new] = engine._workers - {engine._worker}
            new.kill()
            assert await swapping is False
            assert json.loads((await ask(engine)).body)["generation"] == 1
            # What came to nothing has had its number; no two models have the same.
            assert await engine.swap()
            assert json.loads((await ask(engine)).body)["generation"] == 3

    asyncio.run(scenario())


def test_a_swap_while_the_first_model_is_loaded_is_not_forgotten(source) -> None:
    after = logits_of(1, photo())

    async def scenario():
        engine = Engine(ServeConfig(source=str(source)))
        await engine.start()
        shutil.copy(EXPORTED[1], source)  # The first worker may have read the old file already.
        assert await engine.swap()
        assert await engine.wait_ready(PATIENCE)
        found = json.loads((await ask(engine, logits=True)).body)
        await engine.stop()
        return found

    found = asyncio.run(scenario())
    assert found["generation"] == 2
    assert np.abs(np.array(found["logits"]) - after).max() < 1e-4


def test_a_process_that_dies_before_it_is_ready_is_known_at_once(source) -> None:
    async def scenario():
        engine = Engine(ServeConfig(source=str(source)))
        await engine.start()
        [first] = engine._workers
        first.kill()
        assert not await engine.wait_ready(PATIENCE)
        await engine.stop()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_model_that_never_was_one(tmp_path) -> None:
    (tmp_path / "nothing.onnx").write_bytes(b"")

    async def scenario():
        engine = Engine(ServeConfig(source=str(tmp_path / "nothing.onnx")))
        await engine.start()
        assert engine.state == "loading"
        with pytest.raises(Refused, match="loading"):
            engine.ensure_room("predictions")
        assert not await engine.wait_ready(PATIENCE)
        await engine.stop()
        return engine.failure

    message, code = asyncio.run(scenario())
    assert (code, "is empty" in message) == (3, True)


@pytest.mark.slow
def test_hostile_frames_end_the_worker_and_not_the_server(source, capfd) -> None:
    async def scenario():
        async with running(source) as engine:
            for hostile in (
                lambda worker: worker._writer.write(b"\xff" * 64),
                lambda worker: worker._reader.feed_data(b"\0\0\0\x1c" + b'{"is": "reply", "body": 0  }'),
            ):
                worker = engine._worker
                hostile(worker)
                await until(lambda worker=worker: worker.is_gone)
                await until(lambda: engine.state == "ready")
                assert not lives(worker.pid)
            assert (await ask(engine)).status == 200

    asyncio.run(scenario())
    assert "vitrail worker: the server sent what cannot be understood" in capfd.readouterr().err


@pytest.mark.slow
def test_no_worker_outlives_a_server_that_was_killed(source) -> None:
    program = f"""
import asyncio
from vitrail.config.serve import ServeConfig
from vitrail.serving.engine import Engine
async def main():
    engine = Engine(ServeConfig(source={str(source)!r}))
    await engine.start()
    print(engine._workers.copy().pop().pid, flush=True)
    await engine.wait_ready(60)
    print("ready", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    for lines in (1, 2):  # once while it loads, once when it is ready
        server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        worker = int(server.stdout.readline())
        for _ in range(lines - 1):
            server.stdout.readline()
        assert lives(worker)
        server.kill()
        server.wait()
        limit = time.monotonic() + 20
        while lives(worker):
            assert time.monotonic() < limit, "an orphan"
            time.sleep(0.02)


@pytest.mark.slow
def test_memory_does_not_grow_with_requests(source) -> None:
    def resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def scenario():
        async with running(source) as engine:
            bodies = [photo(seed, (200, 300), "JPEG") for seed in range(8)]

            async def rounds(count: int) -> None:
                for _ in range(count):
                    await asyncio.gather(*(ask(engine, body) for body in bodies))

            await rounds(300)
            before = resident(engine._worker.pid), resident(os.getpid())
            await rounds(1250)
            after = resident(engine._worker.pid), resident(os.getpid())
            assert max(now - then for now, then in zip(after, before, strict=True)) < 4 * 2**20

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_living_network_can_be_looked_into_once_torch_is_there(tmp_path) -> None:
    import vitrail
    from vitrail import inspection
    from vitrail.prediction.handed import from_objects

    vitrail.save_model(network(), tmp_path / "model")

    async def scenario():
        async with running(tmp_path / "model", backend="torch") as engine:
            reply = await ask(engine, kind="inspections", parts=["rollout", "maps"])
            assert engine.facts["parameters"] == sum(one.numel() for one in network().parameters())
            return json.loads(reply.body)

    found = asyncio.run(scenario())
    import torch

    prepared = Predictor(tmp_path / "model", backend="torch").prepare(from_objects(photo())[0])
    images = torch.from_numpy(prepared.pixels)[None]
    assert np.array_equal(np.float32(found["rollout"]), inspection.attention_rollout(network(), images)[0].numpy())
    assert np.array_equal(np.float32(found["maps"]), inspection.reading_maps(network(), images)[:, 0].numpy())
