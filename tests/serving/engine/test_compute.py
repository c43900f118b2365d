"""What the threads of a worker make of jobs: the right answers, and a reply for everybody."""

import json
import threading
import time

import numpy as np
import pytest
from tests.serving.looks.served import model_folder, photo

from vitrail.config.serve import ServeConfig
from vitrail.errors import UsageError
from vitrail.prediction import Predictor
from vitrail.serving.engine.board import Board, Task
from vitrail.serving.engine.compute import Computer
from vitrail.serving.engine.watch import Watch
from vitrail.serving.looks.loaded import load

FOREVER = 1e12


class Bench:
    """A worker without a process: its threads, and what they send."""

    def __init__(self, folder, **limits) -> None:
        config = ServeConfig(source=str(folder), backend="torch", **{"batch_wait": 0.0, **limits})
        self.loaded = load(config)
        self.board = Board(config.batch_size, config.batch_wait)
        self.sizes: list[int] = []
        self.frames: list[tuple[dict, bytes]] = []
        self._run = self.loaded.run
        self.loaded.run = self._counted  # type: ignore[method-assign]
        self.computer = Computer(config, self.loaded, self.board, Watch(), self._send)

    def _counted(self, images):
        self.sizes.append(len(images))
        return self._run(images)

    def _send(self, header, body=b"") -> None:
        self.frames.append((header, body))

    def add(self, number: int, body: bytes, kind: str = "predictions", deadline: float = FOREVER, **options) -> None:
        self.board.add(Task(number, kind, options, body, time.monotonic(), deadline))

    def start(self) -> None:
        self.board.open_looks()
        for target in (self.computer.decode_forever, self.computer.compute_forever):
            threading.Thread(target=target, daemon=True).start()

    def replies(self, count: int) -> dict[int, tuple[int, dict]]:
        """Status and content by the number of the job, once so many are there."""
        until = time.monotonic() + 20
        while len(found := [frame for frame in self.frames if frame[0]["is"] == "reply"]) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} replies"
            time.sleep(0.005)
        time.sleep(0.05)
        assert len([frame for frame in self.frames if frame[0]["is"] == "reply"]) == count
        return {header["number"]: (header["status"], json.loads(body)) for header, body in found}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("compute") / "model")


def test_batched_answers_are_single_answers_and_those_of_the_predictor(folder) -> None:
    photos = [photo(seed, (10 + seed, 20)) for seed in range(11)]
    bench = Bench(folder)
    for number, body in enumerate(photos):
        bench.add(number, body, logits=True)
    while sum(len(lane.ready) for lane in (bench.board._images,)) < len(photos):
        task = bench.board.next_to_decode()
        bench.board.decoded(task, bench.computer._decoded(task))
    bench.start()
    found = bench.replies(11)
    assert bench.sizes == [8, 3]
    expected = Predictor(folder, backend="torch").logits(photos)
    alone = Bench(folder, batch_size=1)
    for number, body in enumerate(photos):
        alone.add(number, body, logits=True)
    alone.start()
    singles = alone.replies(11)
    assert alone.sizes == [1] * 11
    for number in range(11):
        logits = np.array(found[number][1]["logits"])
        assert np.abs(logits - expected[number]).max() < 1e-4
        assert np.abs(logits - singles[number][1]["logits"]).max() < 1e-4
        assert set(found[number][1]["seconds"]) == {"queue", "decode", "model"}


def test_cancelled_and_late_jobs_never_reach_the_model(folder) -> None:
    bench = Bench(folder)
    bench.add(0, photo())
    bench.add(1, photo(), deadline=time.monotonic() - 1)
    bench.add(2, photo())
    bench.board.cancel(0)
    bench.start()
    assert list(bench.replies(1)) == [2]
    assert bench.sizes == [1]


def test_a_bad_image_is_a_sentence_and_the_others_are_answered(folder) -> None:
    bench = Bench(folder, max_pixels=10_000)
    bodies = [b"", b"<!DOCTYPE html>", photo()[:80], photo(size=(200, 200)), b"\xff\xd8\xff" + b"\0" * 500, photo()]
    for number, body in enumerate(bodies):
        bench.add(number, body)
    bench.start()
    found = bench.replies(6)
    assert [found[number][0] for number in range(6)] == [400, 400, 400, 413, 400, 200]
    assert [found[number][1]["error"]["code"] for number in range(5)] == [
        *("unreadable_image", "unreadable_image", "damaged_image", "too_large"),
        "unreadable_image",
    ]
    assert found[0][1]["error"]["message"] == "the image: the file is empty; wanted an image."
    assert "HTML page" in found[1][1]["error"]["message"]
    assert "200 x 200 pixels; wanted at most 10,000" in found[3][1]["error"]["message"]
    assert sum(bench.sizes) == 1


def test_a_bomb_is_refused_from_its_header(folder) -> None:
    import io
    import tracemalloc

    from PIL import Image

    file = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(file, "PNG")
    bench = Bench(folder)
    bench.add(0, file.getvalue())
    tracemalloc.start()
    bench.start()
    assert bench.replies(1)[0][0] == 413
    assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    tracemalloc.stop()


def test_looks_are_answered_between_batches_and_wrong_options_are_sentences(folder) -> None:
    bench = Bench(folder)
    bench.add(0, photo(), "inspections", parts=["rollout"])
    bench.add(1, b"", "filters", components=2)
    bench.add(2, photo(), "occlusions", patches=[99])
    bench.add(3, photo(), "predictions", top_k=0)
    bench.add(4, photo(), "embeddings")
    bench.start()
    found = bench.replies(5)
    assert [found[number][0] for number in range(5)] == [200, 200, 400, 400, 200]
    assert found[2][1]["error"]["code"] == "bad_option"
    assert len(found[4][1]["features"]) == 16
    lanes = [header["lane"] for header, _ in bench.frames if header["is"] == "done"]
    assert sorted(set(lanes)) == ["images", "looks"]


def test_an_exported_file_has_nothing_to_look_into(folder) -> None:
    bench = Bench(folder)
    bench.loaded.without_network()
    bench.add(0, b"", "filters")
    bench.start()
    assert (bench.replies(1)[0][0], bench.replies(1)[0][1]["error"]["code"]) == (404, "not_available")


def test_a_fault_of_ours_is_a_refusal_and_a_line_in_the_log(folder, monkeypatch, capsys) -> None:
    bench = Bench(folder)
    ends = []
    monkeypatch.setattr("vitrail.serving.engine.compute.os._exit", ends.append)

    def fail(images):
        raise RuntimeError("CUDA error: device-side assert")

    works, bench.loaded.run = bench.loaded.run, fail  # type: ignore[method-assign]
    bench.start()
    for number in range(2):
        bench.add(number, photo())
        assert bench.replies(number + 1)[number][0] == 503
    assert ends == []
    bench.loaded.run = works  # type: ignore[method-assign]
    bench.add(2, photo())
    assert bench.replies(3)[2][0] == 200
    bench.loaded.run = fail  # type: ignore[method-assign]
    for number in range(3, 6):
        bench.add(number, photo())
        bench.replies(number + 1)
    assert ends == [1], "three in a row: a new process may do better"
    assert "device-side assert" in capsys.readouterr().err
    assert "device-side" not in json.dumps(bench.replies(6)[5][1])


def test_one_image_spoils_nothing_for_the_others_of_its_batch(folder, capsys) -> None:
    bench = Bench(folder)
    for number in range(4):
        bench.add(number, photo(number))
        task = bench.board.next_to_decode()
        bench.board.decoded(task, bench.computer._decoded(task))
    works, spoilt = bench.loaded.run, task.image.pixels  # type: ignore[union-attr]

    def fail(images):
        if any(np.array_equal(image, spoilt) for image in images):
            raise RuntimeError("not this one")
        return works(images)

    bench.loaded.run = fail  # type: ignore[method-assign]
    bench.start()
    assert [bench.replies(4)[number][0] for number in range(4)] == [200, 200, 200, 503]
    assert "not this one" in capsys.readouterr().err


def test_a_slow_model_takes_small_batches(folder) -> None:
    bench = Bench(folder, queue_seconds=0.5)
    assert bench.computer.warm_up() > 0
    assert bench.board.batch_limit == 8
    bench.computer._seconds_each = 0.2
    bench.computer._limit_batch()
    assert bench.board.batch_limit == 2
    bench.computer._seconds_each = 7.0
    bench.computer._limit_batch()
    assert bench.board.batch_limit == 1


def test_every_size_that_a_compiling_backend_needs_is_tried_before_anybody_waits(folder) -> None:
    bench = Bench(folder, batch_size=12)
    bench.computer.warm_up()
    assert sorted(set(bench.sizes)) == [1, 2, 4, 8, 12]
    slow, works = Bench(folder, queue_seconds=0.1), bench.loaded.run

    def slowly(images):
        time.sleep(0.02 * len(images))
        slow.sizes.append(len(images))
        return works(images)

    slow.loaded.run = slowly  # type: ignore[method-assign]
    slow.computer.warm_up()
    assert slow.board.batch_limit <= max(slow.sizes) <= 4


def test_a_batch_that_does_not_fit_is_tried_one_by_one(folder) -> None:
    bench = Bench(folder)
    works = bench.loaded.run

    def tight(images):
        if len(images) > 1:
            raise UsageError("2 images at a time do not fit", fix="Choose a smaller --batch-size.")
        return works(images)

    bench.loaded.run = tight  # type: ignore[method-assign]
    for number in range(3):
        bench.add(number, photo(number))
        task = bench.board.next_to_decode()
        bench.board.decoded(task, bench.computer._decoded(task))
    bench.start()
    assert {status for status, _ in bench.replies(3).values()} == {200}
