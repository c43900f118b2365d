"""Images that are dear to decode: answered as others are, and in nobody's way."""

import asyncio
import io
import json
import os
import struct
import time

import numpy as np
import pytest
from PIL import Image
from tests.serving.engine.test_compute import FOREVER, Bench
from tests.serving.engine.test_engine import ask, running, source  # noqa: F401
from tests.serving.http.started import children_of
from tests.serving.looks.served import logits_of, model_folder, photo

from vitrail.config.serve import ServeConfig
from vitrail.errors import DamagedImage, DataError, NoMemory, TooManyPixels
from vitrail.serving.engine.board import Task
from vitrail.serving.engine.heavy import HeavyDecoder
from vitrail.serving.looks.loaded import load
from vitrail.serving.looks.prepare import prepare, weigh


def large(kind: str = "WEBP", mode: str = "RGB", side: int = 2100, *, opaque: bool = False) -> bytes:
    """A file of a few bytes, or kilobytes, that stands for more than four million pixels."""
    file = io.BytesIO()
    tiny = Image.frombytes(mode, (2, 2), bytes(range(0, 240, 240 // (4 * len(mode))))[: 4 * len(mode)])
    image = Image.new(mode, (side, side))
    image.paste(tiny.resize((64, 64)), (side // 2, side // 2))
    if opaque:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image.save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return file.getvalue()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = model_folder(tmp_path_factory.mktemp("heavy") / "model")
    return load(ServeConfig(source=str(folder), backend="torch", max_pixels=5_000_000))


@pytest.fixture(scope="module")
def decoder(loaded):
    made = HeavyDecoder(loaded)
    yield made
    made.end()


@pytest.mark.parametrize(
    ("body", "is_heavy"),
    [
        (photo(), False),
        (large(side=2000), False),
        (large(), True),
        (large("PNG", "RGBA"), True),
        (large("GIF", "L"), True),
        (photo(size=(700, 700)), True),
        (b"P6\n#" + b" " * 2**21 + b"\n2 2\n255\n" + bytes(12), True),
    ],
    ids=["small", "just small", "WebP", "PNG", "GIF", "many bytes", "a long header"],
)
def test_the_header_and_the_size_tell_what_is_dear(loaded, body, is_heavy) -> None:
    assert weigh(loaded, body).is_heavy == is_heavy


@pytest.mark.parametrize(
    ("kind", "options"), [("BMP", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("GIF", {}), ("PPM", {})]
)
def test_what_an_image_costs_is_read_from_its_header_however_large_the_file_is(loaded, kind, options) -> None:
    """Each of them counted as the largest image that is served, so that one kept out all others."""
    noise = np.random.default_rng(0).integers(0, 256, (900, 1300, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, kind, **options)
    assert len(file.getvalue()) > 2**20
    weight = weigh(loaded, file.getvalue())
    assert (weight.format, weight.pixels, weight.is_heavy) == (kind, 900 * 1300, True)


@pytest.mark.parametrize(
    "body",
    [
        b"P6\n#" + b" " * 20_000 + b"\n2 2\n255\n" + bytes(12),
        b"GIF89a\2\0\2\0\0\0\0" + 10_000 * b"!\xfe\1a\0" + b",\0\0\0\0\2\0\2\0\0\2\2\x84Q\0;",
        b"II*\0\x08\0\0\0\xff\xff" + b"".join(struct.pack("<HHLL", tag, 1, 1, 1) for tag in range(65535)) + bytes(4),
    ],
    ids=["PPM", "GIF", "TIFF"],
)
def test_a_long_header_is_not_read_to_its_end(loaded, body) -> None:
    weight = weigh(loaded, body)
    assert (weight.pixels, weight.is_heavy) == (loaded.max_pixels, True)


@pytest.mark.parametrize("body", [large(), large("WEBP", "RGBA"), large("PNG", "RGBA"), large("JPEG"), photo()])
def test_another_process_prepares_the_same_numbers(loaded, decoder, body) -> None:
    expected, found = prepare(loaded, body), decoder.prepare(body, 60)
    assert np.array_equal(found.pixels, expected.pixels)
    assert np.array_equal(found.seen, expected.seen)
    assert (found.seen.dtype, found.frames) == (expected.seen.dtype, expected.frames)


@pytest.mark.parametrize(
    ("body", "kind"), [(large(side=2300), TooManyPixels), (large("PNG")[:-3000], DamagedImage), (b"<svg/>", DataError)]
)
def test_what_is_wrong_is_said_in_the_same_words(loaded, decoder, body, kind) -> None:
    with pytest.raises(DataError) as here:
        prepare(loaded, body)
    with pytest.raises(DataError) as there:
        decoder.prepare(body, 60)
    assert type(there.value) is type(here.value) is kind
    assert str(there.value) == str(here.value)


def test_a_decoder_that_takes_too_long_is_ended_and_another_is_started(loaded, decoder) -> None:
    decoder.prepare(photo(), 60)
    first = decoder._process.pid
    began = time.monotonic()
    with pytest.raises(DataError, match="too long"):
        decoder.prepare(large("PNG", "RGBA"), 0.001)
    assert time.monotonic() - began < 10
    assert np.array_equal(decoder.prepare(photo(), 60).pixels, prepare(loaded, photo()).pixels)
    assert decoder._process.pid != first
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_a_decoder_that_is_killed_is_not_the_fault_of_the_image_unless_it_always_is(
    decoder, monkeypatch, tmp_path
) -> None:
    """The system ends a decoder where memory runs out, and clients were told that their image was bad."""
    bench, living = Bench(model_folder(tmp_path / "model")), HeavyDecoder._living

    def killed(self):
        process = living(self)
        process.kill()
        return process

    def asked(body: bytes, decode) -> tuple[int, str | None]:
        task = Task(len(bench.frames), "predictions", {}, body, time.monotonic(), FOREVER)
        if bench.computer._decoded(task, decode) is not None:
            return 200, None
        header, _ = bench.frames[-1]
        return header["status"], header["headers"].get("Retry-After")

    def ended(body: bytes):
        with monkeypatch.context() as patch:
            patch.setattr(HeavyDecoder, "_living", killed)
            return decoder.prepare(body, 60)

    def no_memory(body: bytes):
        raise NoMemory("the pixels do not fit")

    def decodes(body: bytes):
        return decoder.prepare(body, 60)

    first, second = large("PNG"), large()
    assert asked(first, ended) == asked(first, no_memory) == asked(second, ended) == (503, "1")
    assert asked(first, decodes) == (200, None), "it is counted anew"
    assert [asked(first, ended) for _ in range(4)] == [(503, "1"), (503, "1"), (400, None), (400, None)]
    assert asked(second, decodes) == (200, None)


def test_a_decoder_is_there_before_the_first_large_image_and_serves_those_that_follow(source) -> None:  # noqa: F811
    async def scenario():
        async with running(source, queue_seconds=30, deadline=60) as engine:
            async with asyncio.timeout(60):
                while not (ahead := children_of(engine._worker.pid)):
                    await asyncio.sleep(0.05)
            replies = [await ask(engine, large()) for _ in range(4)]
            return ahead, children_of(engine._worker.pid), [one.status for one in replies]

    ahead, after, statuses = asyncio.run(scenario())
    assert len(ahead) == 1
    assert (after, statuses) == (ahead, [200] * 4)


def test_small_images_are_answered_while_many_dear_ones_come(source) -> None:  # noqa: F811
    """Forty callers with 47.6 million pixels in 1.9 KB each kept everybody else from an answer."""
    bomb = large("PNG", "RGBA", 2500)

    async def scenario():
        async with running(source, queue_seconds=0.5, deadline=60) as engine:
            bombs = [asyncio.ensure_future(ask(engine, bomb, logits=True)) for _ in range(8)]
            await asyncio.sleep(0.05)
            smalls = [await ask(engine, logits=True) for _ in range(5)]
            undone = sum(not one.done() for one in bombs)
            return smalls, undone, await asyncio.gather(*bombs)

    smalls, undone, replies = asyncio.run(scenario())
    assert [one.status for one in smalls] == [200] * 5
    assert undone, "nobody waited for all of them"
    answered = [json.loads(one.body)["logits"] for one in replies if one.status == 200]
    refused = [one for one in replies if one.status == 503]
    assert answered
    assert refused
    assert len(answered) + len(refused) == 8
    expected = logits_of(0, large("PNG", "RGBA", 2500, opaque=True))
    for logits in answered:
        assert np.abs(np.array(logits) - expected).max() < 1e-4
    for one in refused:
        assert int(one.headers["Retry-After"]) >= 1
        assert json.loads(one.body)["error"]["code"] == "busy"
