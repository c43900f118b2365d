"""What a GPU does with the JPEGs that workers leave to it, run on a CPU: the same code, decoder and resize included."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from vitrail.config import AugmentConfig, preset
from vitrail.data.loading import loader
from vitrail.data.loading.loader import _finish, _gather, _Taken, for_stream, training_batches
from vitrail.data.loading.order import Stream
from vitrail.data.loading.prepare import Preparation, prepare_chunk
from vitrail.data.sources.folder import open_folder
from vitrail.errors import DataError

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    """JPEGs of several sizes, with a PNG under a false name and a turned photo among them."""
    generator = np.random.default_rng(0)
    for number in range(14):
        home = tmp_path / "photos" / "ab"[number % 2]
        home.mkdir(parents=True, exist_ok=True)
        size = [(60, 90, 3), (120, 80, 3), (33, 47, 3)][number % 3]
        image = Image.fromarray(generator.integers(0, 256, size, dtype=np.uint8)).filter(ImageFilter.GaussianBlur(3))
        exif = Image.Exif()
        exif[0x0112] = 6
        path = home / f"{number:02}.jpg"
        if number == 3:
            image.save(path, "PNG")
        else:
            image.save(path, "JPEG", quality=90, **({"exif": exif} if number == 5 else {}))
    return tmp_path / "photos"


def left_to_the_gpu(source, stream, preparation, step: int):
    plan = replace(for_stream(preparation, stream, source), leave_jpegs=True)
    chunks = [prepare_chunk(source, picks, plan) for picks in stream.step(step).cut(5)]
    assert sum(len(chunk.left.rows) for chunk in chunks if chunk.left) == 12
    return _finish(_gather(_Taken(step, chunks), CPU), plan, source.labels.num_classes, None)


@pytest.mark.parametrize("crop", ["inception", "resize", "pad", "whole"])
@pytest.mark.parametrize("name", ["google", "imagenet"])
def test_the_batch_is_that_of_the_workers(folder, crop, name) -> None:
    source = open_folder(folder)
    augment = AugmentConfig(crop=crop, resize=64)  # type: ignore[arg-type]
    preparation = Preparation(size=(40, 48), preprocessing=preset(name), augment=augment, decoder="fast")
    stream = Stream(length=14, batch_size=14, seed=3)
    for step in range(3):
        expected = next(training_batches(source, stream, replace(preparation, decoder="pillow"), start=step))
        found = left_to_the_gpu(source, stream, preparation, step)
        assert found.ids.tolist() == expected.ids.tolist()
        assert torch.equal(found.targets, expected.targets)
        std = torch.tensor(preparation.preprocessing.std).view(-1, 1, 1)
        levels = (found.images - expected.images).abs() * 255 * std
        assert levels.max() < 2.01
        assert levels.mean() < 0.3


def test_large_and_small_boxes_do_not_share_a_canvas(folder, monkeypatch) -> None:
    source = open_folder(folder)
    preparation = Preparation(
        size=(40, 48), preprocessing=preset("google"), augment=AugmentConfig(crop="whole"), decoder="fast"
    )
    stream = Stream(length=14, batch_size=14, seed=3)
    together = left_to_the_gpu(source, stream, preparation, 0)
    monkeypatch.setattr("vitrail.data.decoding.gpu_decode._CANVAS_BYTES", 30_000)
    assert torch.equal(left_to_the_gpu(source, stream, preparation, 0).images, together.images)


def test_a_jpeg_that_the_gpu_cannot_decode_is_named(folder) -> None:
    bad = folder / "a" / "00.jpg"
    # The header is whole, and nothing follows it.
    bad.write_bytes(bad.read_bytes()[:640])
    source = open_folder(folder)
    preparation = Preparation(size=(40, 48), preprocessing=preset("google"), augment=AugmentConfig(), decoder="fast")
    with pytest.raises(DataError, match=r"a/00\.jpg: the GPU could not decode the JPEG .*data\.decoder=pillow"):
        left_to_the_gpu(source, Stream(length=14, batch_size=14, seed=3), preparation, 0)


def test_nothing_left_is_nothing_to_decode(folder, monkeypatch) -> None:
    def never(*_arguments):
        raise AssertionError("nothing was left")

    monkeypatch.setattr(loader, "decode_on_gpu", never)
    source = open_folder(folder)
    preparation = Preparation(size=(40, 48), preprocessing=preset("google"), augment=AugmentConfig(), decoder="pillow")
    plan = replace(for_stream(preparation, Stream(length=14, batch_size=14, seed=3), source), leave_jpegs=True)
    chunk = prepare_chunk(source, Stream(length=14, batch_size=14, seed=3).step(0), plan)
    assert chunk.left is None
    assert _finish(_gather(_Taken(0, [chunk]), CPU), plan, 2, None).images.shape == (14, 3, 40, 48)
