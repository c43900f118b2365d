"""Batches: what is in them, that nothing is lost or read too soon, and that a bad file has a name."""

import os
import re
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from tests.data.loading.tiny import EVERYTHING, assert_same, left_running, make_arrays, make_folder, prepared

from vitrail.config import AugmentConfig, Preprocessing, preset
from vitrail.data.loading import workers
from vitrail.data.loading.loader import evaluation_batches, training_batches
from vitrail.data.loading.order import Stream
from vitrail.data.loading.prepare import Preparation
from vitrail.data.sources import source as reading
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.source import Arrays, Encoded, Part, Source
from vitrail.errors import DataError, UsageError

SQUASHED = Preprocessing(mean=(0.5,) * 3, std=(0.25,) * 3, interpolation="bilinear")


def stream_of(source: Source, batch_size: int = 6) -> Stream:
    return Stream(length=len(source), batch_size=batch_size, seed=3)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos", 20)


# What is in a batch.


@pytest.mark.parametrize("crop", ["inception", "resize", "pad", "whole"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_training_batch(photos, crop, channels):
    source = open_folder(photos)
    preparation = prepared(AugmentConfig(crop=crop, resize=24), size=(16, 12), channels=channels)
    batches = list(training_batches(source, stream_of(source), preparation, start=4, stop=7))
    assert [batch.step for batch in batches] == [4, 5, 6]
    for batch in batches:
        assert batch.images.shape == (6, channels, 16, 12)
        assert batch.images.dtype == torch.float32
        assert -1 <= batch.images.min() < batch.images.max() <= 1
        assert batch.targets.dtype == torch.int64
        assert batch.targets.tolist() == source.labels.values[batch.ids].tolist()
        assert (batch.ids.dtype, batch.ids.shape, batch.epochs.shape) == (np.int64, (6,), (6,))


def test_targets_of_mixed_images_are_shares():
    source = make_arrays()
    for batch in training_batches(source, stream_of(source), prepared(EVERYTHING, size=(8, 8)), stop=8):
        assert (batch.targets.shape, batch.targets.dtype) == ((6, 5), torch.float32)
        assert torch.allclose(batch.targets.sum(1), torch.ones(6))
        alone = torch.nn.functional.one_hot(torch.from_numpy(source.labels.values[batch.ids]), 5).float()
        keep = torch.linalg.lstsq(
            (alone - alone.roll(1, 0)).reshape(-1, 1), (batch.targets - alone.roll(1, 0)).reshape(-1, 1)
        ).solution
        assert torch.allclose(batch.targets, torch.lerp(alone.roll(1, 0), alone, keep), atol=1e-6)


def test_targets_of_images_with_several_classes():
    source = make_arrays(several=True)
    (batch,) = training_batches(source, stream_of(source), prepared(AugmentConfig(), size=(8, 8)), stop=1)
    assert (batch.targets.shape, batch.targets.dtype) == ((6, 5), torch.float32)
    expected = [[float(number < image % 3) for number in range(5)] for image in batch.ids.tolist()]
    assert batch.targets.tolist() == expected
    (mixed,) = training_batches(source, stream_of(source), prepared(EVERYTHING, size=(8, 8)), stop=1)
    assert mixed.targets.shape == (6, 5)
    (evaluated,) = evaluation_batches(source, prepared(size=(8, 8)), batch_size=40)
    assert evaluated.targets[2].tolist() == [1, 1, 0, 0, 0]


def test_a_part_keeps_the_ids_of_the_whole():
    whole = make_arrays(40)
    part = Part(whole, np.array([3, 30, 31, 32, 33, 39]), "some")
    (batch,) = training_batches(
        part, stream_of(part), prepared(AugmentConfig(crop="whole", flip=False), (8, 8)), stop=1
    )
    assert sorted(batch.ids.tolist()) == [3, 30, 31, 32, 33, 39]
    pixels = torch.from_numpy(whole.pixels[batch.ids]).permute(0, 3, 1, 2)
    assert torch.allclose(batch.images, pixels / 127.5 - 1, atol=1e-6)


@pytest.mark.parametrize("augment", [EVERYTHING, AugmentConfig(crop="pad", randaugment_layers=3, mixup=0.2)])
def test_workers_change_no_bit(photos, augment):
    source = open_folder(photos)
    alone, helped = (
        list(training_batches(source, stream_of(source, 40), prepared(augment), stop=4, workers=count))
        for count in (0, 2)
    )
    assert_same(helped, alone)


def test_what_is_held_of_a_batch_stays_as_it_is():
    source = make_arrays()
    batches = training_batches(source, stream_of(source), prepared(EVERYTHING, size=(8, 8)))
    row, array, flat = next(batches).images[2], next(batches).images.numpy(), next(batches).images.flatten()[5:90]
    before = row.clone(), array.copy(), flat.clone()
    for _batch in islice(batches, 12):
        pass
    assert torch.equal(row, before[0])
    assert np.array_equal(array, before[1])
    assert torch.equal(flat, before[2])


def test_no_steps_no_batches():
    source = make_arrays()
    for count in (0, 1):
        assert (
            list(training_batches(source, stream_of(source), prepared(EVERYTHING), start=5, stop=5, workers=count))
            == []
        )


# For a small output a JPEG is decoded at a fraction of its size, which may move a box by half an output pixel.
@pytest.mark.parametrize(("side", "least", "most"), [(96, 0, 1.5), (16, 0.5, 6)])
def test_the_fast_decoder_shows_almost_the_same(tmp_path, side, least, most):
    for number in range(8):
        place = tmp_path / "photos" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        coarse = np.random.default_rng(number).integers(0, 256, (5, 5, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((200, 150), Image.Resampling.BICUBIC).save(place / f"{number}.jpg", quality=95)
    source = open_folder(tmp_path / "photos")
    exact, fast = (
        list(training_batches(source, stream_of(source), preparation, stop=4))
        for preparation in (prepared(AugmentConfig(), (side, side), decoder=name) for name in ("pillow", "fast"))
    )
    for one, other in zip(exact, fast, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert least <= ((one.images - other.images).abs() * 127.5).mean() <= most
    looked = [
        list(evaluation_batches(source, prepared(decoder=decoder), batch_size=8)) for decoder in ("pillow", "fast")
    ]
    assert_same(*looked)


# Evaluation.


@pytest.mark.parametrize("count", [0, 2])
def test_an_evaluation_is_what_pillow_computes(photos, count):
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.open(photos / "ant" / "000.jpg").save(photos / "bee" / "turned.jpg", exif=turned)
    source = open_folder(photos)
    found = list(evaluation_batches(source, prepared(preprocessing=SQUASHED), batch_size=8, workers=count))
    assert [len(batch.images) for batch in found] == [8, 8, 5]
    assert [batch.step for batch in found] == [0, 1, 2]
    assert np.concatenate([batch.ids for batch in found]).tolist() == list(range(21))
    for image, target, index in zip(
        torch.cat([batch.images for batch in found]),
        torch.cat([batch.targets for batch in found]),
        range(21),
        strict=True,
    ):
        upright = ImageOps.exif_transpose(Image.open(source.path(index))).convert("RGB")
        pixels = np.asarray(upright.resize((16, 16), Image.Resampling.BILINEAR), dtype=np.float64)
        assert np.abs(image.permute(1, 2, 0).numpy() - (pixels / 255 - 0.5) / 0.25).max() < 1e-5
        assert source.classes[int(target)] == source.path(index).parent.name


def test_an_evaluation_that_keeps_the_aspect(tmp_path):
    make_folder(tmp_path / "photos", 4)
    source = open_folder(tmp_path / "photos")
    (batch,) = evaluation_batches(source, prepared(size=(9, 9), preprocessing=preset("augreg")), batch_size=9)
    for index, image in enumerate(batch.images):
        upright = Image.open(source.path(index)).convert("RGB")
        short = min(upright.size)
        # The short side becomes 9 / 0.9 = 10, and the middle 9 x 9 of that are seen.
        width, height = (int(10 * side / short) for side in upright.size)
        resized = np.asarray(upright.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float64)
        top, left = round((height - 9) / 2), round((width - 9) / 2)
        expected = resized[top : top + 9, left : left + 9] / 127.5 - 1
        assert np.abs(image.permute(1, 2, 0).numpy() - expected).max() < 1e-5


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_an_evaluation_over_ranks(ranks):
    source = make_arrays(23)
    (whole,) = evaluation_batches(source, prepared(size=(8, 8)), batch_size=23)
    seen: list[int] = []
    for rank in range(ranks):
        for batch in evaluation_batches(source, prepared(size=(8, 8)), batch_size=4, rank=rank, ranks=ranks):
            assert torch.equal(batch.images[: len(batch.ids)], whole.images[batch.ids])
            assert torch.equal(batch.targets[: len(batch.ids)], whole.targets[batch.ids])
            seen += batch.ids.tolist()
    assert sorted(seen) == list(range(23))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("images", "ranks"), [(1, 2), (1, 3), (127, 2), (129, 2), (128, 2), (130, 3)])
def test_every_rank_gets_equally_many_batches(images, ranks, workers):
    """Between two batches processes may wait for each other."""
    if workers and images != 129:
        pytest.skip("one with workers will do")
    source, sizes = make_arrays(images), []
    for rank in range(ranks):
        how = {"batch_size": 64, "rank": rank, "ranks": ranks, "workers": workers}
        batches = list(evaluation_batches(source, prepared(size=(8, 8)), **how))
        sizes.append([len(batch.ids) for batch in batches])
        assert all(len(batch.images) == len(batch.targets) == max(len(batch.ids), 1) for batch in batches)
        assert [batch.step for batch in batches] == list(range(len(batches)))
    assert len({len(counts) for counts in sizes}) == 1
    assert sum(map(sum, sizes)) == images


def test_an_evaluation_ignores_what_is_for_training():
    source = make_arrays()
    plain = list(evaluation_batches(source, prepared(size=(8, 8)), batch_size=16))
    assert_same(list(evaluation_batches(source, prepared(EVERYTHING, size=(8, 8), seed=8), batch_size=16)), plain)
    assert plain[0].epochs.tolist() == [0] * 16


# Bad and vanishing files.

ADVICE = "`vitrail data check` lists every bad file; data.skip_bad=True leaves them out."


def failure(batches: Iterable[object]) -> str:
    with pytest.raises(DataError) as caught:
        list(batches)
    # While the error is still held.
    assert left_running() == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("count", [0, 2])
def test_a_file_that_cannot_be_decoded_is_named(photos, watched, count):
    path = photos / "ant" / "000.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    source = open_folder(watched(photos))
    for batches in (
        training_batches(source, stream_of(source), prepared(EVERYTHING), stop=4, workers=count),
        evaluation_batches(source, prepared(), batch_size=8, workers=count),
    ):
        message = failure(batches)
        assert message.startswith(f"{path}: the JPEG data is damaged or cut off (")
        assert message.endswith(ADVICE)


def test_several_bad_files_are_counted(photos):
    for path in photos.rglob("*.png"):
        path.write_text("<html>not found</html>")
    source = open_folder(photos)
    message = failure(evaluation_batches(source, prepared(), batch_size=20))
    assert "the content is an HTML page (9 more beside it). `vitrail data check`" in message


def test_the_batches_before_a_bad_file_are_not_lost(tmp_path):
    source = open_folder(make_folder(tmp_path / "photos", 40))
    bad = stream_of(source).step(5).indices[2]
    source.path(bad).write_bytes(b"")
    for count in (0, 2):
        seen = []
        with pytest.raises(DataError, match=f"{source.path(bad)}: the file is empty"):
            for batch in training_batches(source, stream_of(source), prepared(EVERYTHING), workers=count):
                seen.append(batch.step)
        assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("count", [0, 2])
def test_a_file_that_vanishes_is_named(tmp_path, count):
    source = open_folder(make_folder(tmp_path / "photos", 60))
    batches = training_batches(source, stream_of(source), prepared(AugmentConfig()), workers=count)
    next(batches)
    gone = source.path(int(stream_of(source).step(9).indices[0]))
    gone.unlink()
    message = failure(batches)
    assert message == f"{gone}: the file could not be read (No such file or directory). {ADVICE}"


def test_a_file_that_comes_back_is_read(photos, monkeypatch):
    source = open_folder(photos)
    expected = list(evaluation_batches(source, prepared(), batch_size=20))
    path = source.path(7)
    content = path.read_bytes()
    path.unlink()
    waits: list[float] = []

    class Clock:
        @staticmethod
        def sleep(seconds: float) -> None:
            waits.append(seconds)
            path.write_bytes(content)

    monkeypatch.setattr(reading, "time", Clock)
    assert_same(list(evaluation_batches(source, prepared(), batch_size=20)), expected)
    assert len(waits) == 1
    assert 0 < waits[0] < 5


def test_a_setting_that_cannot_be_is_told_as_it_is():
    source = make_arrays()
    augment = AugmentConfig(crop="resize", resize=12)
    for count in (0, 1):
        with pytest.raises(UsageError) as caught:
            list(training_batches(source, stream_of(source), prepared(augment), workers=count))
        assert str(caught.value) == "resize is 12; wanted at least the input's 16 pixels."
        assert left_running() == []


# How far ahead, and what is left behind.


class Counted(Arrays):
    """A set that notes every read in a file, from whatever process."""

    def __init__(self, count: int, log: Path) -> None:
        tiny = make_arrays(count)
        super().__init__(tiny.name, tiny.split, tiny.classes, tiny.labels, tiny.pixels)
        self.log = log

    def read(self, index: int) -> Encoded:
        with self.log.open("ab") as file:
            file.write(b".")
        return super().read(index)

    def reads(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0


def settled(source: Counted) -> int:
    """The number of reads, once there are no more."""
    before, deadline = -1, time.monotonic() + 10
    while before != (before := source.reads()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return before


@pytest.mark.parametrize("count", [0, 1, 2])
def test_what_is_read_ahead_is_bounded(tmp_path, count):
    source = Counted(4000, tmp_path / "log")
    batches = training_batches(source, stream_of(source, 8), prepared(AugmentConfig(), (8, 8)), workers=count)
    assert source.reads() == 0
    assert len(list(islice(batches, 2))) == 2
    # Two taken, two ready, one waiting to be, and a few that the workers hold; of 500.
    assert settled(source) <= 8 * (2 + (3 + workers._AHEAD * count) * (count > 0))
    batches.close()
    assert left_running() == []


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_loop_left_early_leaves_nothing_running(taken):
    source = make_arrays()
    for batches in (
        training_batches(source, stream_of(source), prepared(EVERYTHING, (8, 8)), workers=2),
        evaluation_batches(source, prepared(size=(8, 8)), batch_size=4, workers=2),
    ):
        list(islice(batches, taken))
        assert bool(left_running()) == (taken > 0)
        batches.close()
        assert left_running() == []


def test_a_loop_that_ends_leaves_nothing_running():
    source = make_arrays()
    assert len(list(evaluation_batches(source, prepared(size=(8, 8)), batch_size=4, workers=2))) == 10
    assert left_running() == []


class Lost(Arrays):
    """A set of which reading one image ends the process."""

    def read(self, index: int) -> Encoded:
        if index == 17:
            os._exit(9)
        return super().read(index)


def test_a_worker_that_dies_is_told(monkeypatch):
    monkeypatch.setattr(workers, "_POLL_SECONDS", 0.5)
    tiny = make_arrays()
    source = Lost(tiny.name, tiny.split, tiny.classes, tiny.labels, tiny.pixels)
    with pytest.raises(
        workers.WorkerError, match=r"a data worker died \(exit code 9\)\. Run with data\.workers=0"
    ) as caught:
        list(evaluation_batches(source, prepared(size=(8, 8)), batch_size=8, workers=2))
    assert caught.value.exit_code == 3
    assert left_running() == []


def test_a_run_has_one_seed() -> None:
    source = make_arrays(12)
    preparation = Preparation(size=(8, 8), preprocessing=preset("google"), augment=AugmentConfig(), seed=99)
    first, second, again = (
        next(training_batches(source, Stream(length=12, batch_size=12, seed=seed), preparation)) for seed in (1, 2, 1)
    )
    order = [np.argsort(batch.ids) for batch in (first, second, again)]
    assert not torch.equal(first.images[order[0]], second.images[order[1]])
    assert torch.equal(first.images, again.images)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"length": 11}, "the stream is of 11 images; wanted the 12 of the source"),
        ({"batch_size": 1}, "a batch has one image"),
        ({"augment": None}, "there is no augmentation"),
        ({"start": -1}, "start is -1"),
    ],
)
def test_what_cannot_be_trained_on(changed, words) -> None:
    asked = {"length": 12, "batch_size": 4, "start": 0, "augment": AugmentConfig(mixup=0.2), **changed}
    preparation = Preparation(size=(8, 8), preprocessing=preset("google"), augment=asked["augment"])
    stream = Stream(length=asked["length"], batch_size=asked["batch_size"], seed=0)
    with pytest.raises(UsageError, match=re.escape(words)):
        next(training_batches(make_arrays(12), stream, preparation, start=asked["start"]))


@pytest.mark.parametrize(
    ("changed", "words"), [({"channels": 2}, "channels is 2"), ({"decoder": "turbo"}, "decoder"), ({"size": 0}, "size")]
)
def test_preparations_that_make_no_sense(changed, words) -> None:
    with pytest.raises(UsageError, match=words):
        Preparation(**{"size": 8, "preprocessing": preset("google"), **changed})


def test_batches_go_to_any_device() -> None:
    source = make_arrays(6)
    preparation = Preparation(size=8, preprocessing=preset("google"), augment=AugmentConfig(crop="whole"))  # type: ignore[arg-type]
    batch = next(training_batches(source, Stream(length=6, batch_size=6, seed=0), preparation, device="meta"))
    assert batch.images.device.type == batch.targets.device.type == "meta"
