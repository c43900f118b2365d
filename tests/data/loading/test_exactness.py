"""A batch is a function of (seed, step): not of ranks, workers, the step a run began with, or the kind of source."""

import io
import json
import random
import struct
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.data.loading.tiny import EVERYTHING, assert_same, make_arrays, make_folder, picture, prepared
from tests.data.pictures import encoded

from vitrail.config import AugmentConfig
from vitrail.data.loading.loader import Batch, training_batches
from vitrail.data.loading.order import Stream
from vitrail.data.open import OpenOptions, open_data
from vitrail.data.pack import PackOptions, pack
from vitrail.data.sources.source import Source
from vitrail.errors import Notice

COUNT = 23
BATCH = 10
STEPS = 7
ALONE = AugmentConfig(min_area=0.2, randaugment_layers=2, erasing=0.5)
"""Without mixing, in which an image meets the others of its rank."""

Opener = Callable[[], Source]


@pytest.fixture(scope="module")
def source() -> Source:
    return make_arrays(COUNT)


def batches(source: Source, rank: int, ranks: int, workers: int) -> list[Batch]:
    stream = Stream(length=COUNT, batch_size=BATCH, seed=4, rank=rank, ranks=ranks)
    return list(training_batches(source, stream, prepared(ALONE, size=(8, 8), seed=4), stop=STEPS, workers=workers))


@pytest.fixture(scope="module")
def expected(source: Source) -> list[Batch]:
    return batches(source, 0, 1, 0)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ranks_and_workers_change_nothing(source, expected, ranks, workers):
    ids, epochs = np.full((STEPS, BATCH), -1), np.full((STEPS, BATCH), -1)
    images = torch.full((STEPS, BATCH, 3, 8, 8), torch.nan)
    targets = torch.full((STEPS, BATCH), -1)
    for rank in range(ranks):
        for batch in batches(source, rank, ranks, workers):
            ids[batch.step, rank::ranks], epochs[batch.step, rank::ranks] = batch.ids, batch.epochs
            images[batch.step, rank::ranks], targets[batch.step, rank::ranks] = batch.images, batch.targets
    for epoch in range(STEPS * BATCH // COUNT):
        assert sorted(ids[epochs == epoch].tolist()) == list(range(COUNT))
    for step, batch in enumerate(expected):
        assert ids[step].tolist() == batch.ids.tolist()
        assert torch.equal(images[step], batch.images)
        assert torch.equal(targets[step], batch.targets)


def test_an_image_looks_different_in_every_epoch(expected):
    seen = {
        epoch: images
        for batch in expected
        for number, epoch, images in zip(batch.ids, batch.epochs.tolist(), batch.images, strict=True)
        if number == 5
    }
    assert len(seen) == 3
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_batches_of_many_chunks():
    source, stream = make_arrays(100), Stream(length=100, batch_size=75, seed=1, rank=1, ranks=2)
    preparation = prepared(EVERYTHING, size=(8, 8), seed=1)
    found = list(training_batches(source, stream, preparation, start=2, stop=6, workers=2))
    assert [len(batch.images) for batch in found] == [37] * 4
    assert_same(found, list(training_batches(source, stream, preparation, stop=6))[2:])


# Every kind of source: given a folder to make it in, a function that opens it.


def folder(place: Path) -> Opener:
    make_folder(place / "photos", COUNT)
    return lambda: open_data(place / "photos")


def table(place: Path) -> Opener:
    make_folder(place / "photos", COUNT)
    paths = sorted((place / "photos").rglob("*.*"))
    lines = [f"{path.relative_to(place)},{path.parent.name}" for path in paths]
    (place / "table.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    return lambda: open_data(place / "table.csv")


def part(place: Path) -> Opener:
    make_folder(place / "photos", 2 * COUNT)
    return lambda: open_data(place / "photos", "train[50%:]")


def digits(place: Path) -> Opener:
    return lambda: open_data("digits", "test[:23]")


def mnist(place: Path) -> Opener:
    raw = place / "MNIST" / "raw"
    raw.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 28, 28), dtype=np.uint8)
    labels = np.arange(COUNT, dtype=np.uint8) % 10
    for prefix in ("train", "t10k"):
        for kind, array in (("images", pixels), ("labels", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (raw / f"{prefix}-{kind}-idx{array.ndim}-ubyte").write_bytes(header + array.tobytes())
    return lambda: open_data("mnist", options=OpenOptions(root=place))


def pets(place: Path) -> Opener:
    home = place / "oxford-iiit-pet"
    (home / "annotations").mkdir(parents=True)
    (home / "images").mkdir()
    names = [f"breed_{number:02}_1" for number in range(37)]
    for number, name in enumerate(names):
        picture(number).save(home / "images" / f"{name}.jpg")
    lines = [f"{name} {number + 1} 1 1\n" for number, name in enumerate(names)]
    for split in ("trainval", "test"):
        (home / "annotations" / f"{split}.txt").write_text("".join(lines))
    return lambda: open_data("oxford-pets", options=OpenOptions(root=place))


def saved(place: Path) -> Opener:
    _huggingface().save_to_disk(str(place / "saved"))
    return lambda: open_data(place / "saved")


def parquet(place: Path) -> Opener:
    _huggingface().to_parquet(place / "train.parquet")
    return lambda: open_data(place / "train.parquet")


def _huggingface():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    images = [{"bytes": encoded(picture(number), "PNG"), "path": f"{number}.png"} for number in range(COUNT)]
    labels = [number % 2 for number in range(COUNT)]
    return datasets.Dataset.from_dict({"image": images, "label": labels}, features=features)


def shards(place: Path) -> Opener:
    for number in range(COUNT):
        with tarfile.open(place / f"{number % 3:03}.tar", "a") as archive:
            record = json.dumps({"label": "ab"[number % 2]}).encode()
            for ending, content in (("jpg", encoded(picture(number), "JPEG")), ("json", record)):
                member = tarfile.TarInfo(f"{number:03}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return lambda: open_data(f"wds:{place}/{{000..002}}.tar")


def packed(place: Path) -> Opener:
    pack({"train": folder(place)()}, place / "packed", PackOptions(short_side=18))
    return lambda: open_data(place / "packed")


def packed_as_jpegs(place: Path) -> Opener:
    pack({"train": folder(place)()}, place / "packed", PackOptions(short_side=18, quality=90))
    return lambda: open_data(place / "packed")


KINDS = [folder, table, part, digits, mnist, pets, saved, parquet, shards, packed, packed_as_jpegs]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_run_that_begins_at_any_step(kind, tmp_path):
    place = tmp_path / "data"
    place.mkdir()
    opener = kind(place)

    def steps(start: int, workers: int) -> list[Batch]:
        # Opened again, as by a new process, which has drawn other random numbers.
        random.seed(start), np.random.seed(start), torch.manual_seed(start)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(mnist|oxford-pets), train: .* images are here", Notice)
            source = opener()
        stream = Stream(length=len(source), batch_size=6, seed=9)
        return list(
            training_batches(source, stream, prepared(EVERYTHING, seed=9), start=start, stop=9, workers=workers)
        )

    whole = steps(0, 0)
    assert [batch.step for batch in whole] == list(range(9))
    assert len({batch.images.numpy().tobytes() for batch in whole}) == 9
    assert_same(steps(1, 0), whole[1:])
    assert_same(steps(8, 0), whole[8:])
    assert_same(steps(5, 2), whole[5:])
