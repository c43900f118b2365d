"""What only a GPU can show: the same draws, almost the same pixels, and batches that are ready in time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from vitrail.config import AugmentConfig, preset
from vitrail.data.decoding.fast_decode import measure_difference
from vitrail.data.loading.loader import evaluation_batches, training_batches
from vitrail.data.loading.order import Stream
from vitrail.data.loading.prepare import Preparation
from vitrail.data.loading.resident import resident_batches
from vitrail.data.sources.digits import open_digits
from vitrail.data.sources.folder import open_folder
from vitrail.errors import DataError

pytestmark = pytest.mark.gpu

SIZES = [(300, 400), (640, 480), (33, 47), (224, 224), (1200, 900)]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Smooth noise as JPEGs of many sizes, with a PNG under a false name and a turned photo among them."""
    generator = np.random.default_rng(0)
    for number in range(40):
        folder = tmp_path / "photos" / ("a" if number % 2 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        height, width = SIZES[number % len(SIZES)]
        noise = Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
        image = noise.filter(ImageFilter.GaussianBlur(6))
        path = folder / f"{number}.jpg"
        if number == 3:
            image.save(path, "PNG")
        elif number == 4:
            exif = Image.Exif()
            exif[0x0112] = 6
            image.save(path, "JPEG", quality=90, exif=exif)
        else:
            image.save(path, "JPEG", quality=90)
    return tmp_path / "photos"


@pytest.mark.parametrize("crop", ["inception", "resize", "pad", "whole"])
def test_jpegs_decoded_on_the_gpu_look_as_pillow_decodes_them(photos: Path, crop: str) -> None:
    source = open_folder(photos)
    augment = AugmentConfig(crop=crop, resize=128)  # type: ignore[arg-type]
    stream = Stream(length=len(source), batch_size=16, seed=5)
    common = {"size": (96, 112), "preprocessing": preset("google"), "augment": augment, "seed": 5}
    reference = training_batches(source, stream, Preparation(**common), start=2, stop=6)
    on_gpu = training_batches(
        source, stream, Preparation(**common, decoder="fast"), start=2, stop=6, device="cuda", workers=2
    )
    for expected, found in zip(reference, on_gpu, strict=True):
        assert found.images.is_cuda
        assert (found.ids == expected.ids).all()
        assert torch.equal(found.targets.cpu(), expected.targets)
        levels = (found.images.cpu() - expected.images).abs() * 127.5
        assert levels.mean() < 1.5
        assert levels.quantile(0.99) < 6 if levels.numel() < 2**24 else levels.mean() < 1.5


def test_evaluation_on_the_gpu_is_evaluation_on_the_cpu(photos: Path) -> None:
    source = open_folder(photos)
    for name in ("google", "augreg"):
        preparation = Preparation(size=(64, 64), preprocessing=preset(name))
        expected = list(evaluation_batches(source, preparation, batch_size=16))
        found = list(evaluation_batches(source, preparation, batch_size=16, device="cuda", workers=2))
        assert [len(batch.ids) for batch in found] == [16, 16, 8]
        for one, other in zip(expected, found, strict=True):
            assert (one.images - other.images.cpu()).abs().max() < 1e-6


@pytest.mark.parametrize("crop", ["pad", "whole"])
def test_a_resident_set_gives_the_same_batches_on_every_device(crop: str) -> None:
    source = open_digits()
    augment = AugmentConfig(crop=crop, pad=1, randaugment_layers=2, erasing=0.5, mixup=0.2, cutmix=1.0)  # type: ignore[arg-type]
    preparation = Preparation(size=(8, 8), channels=3, preprocessing=preset("google"), augment=augment, seed=2)
    stream = Stream(length=len(source), batch_size=256, seed=2)
    on_cpu = training_batches(source, stream, preparation, start=4, stop=12)
    on_gpu = resident_batches(source, stream, preparation, start=4, stop=12, device="cuda")
    for expected, found in zip(on_cpu, on_gpu, strict=True):
        assert (found.ids == expected.ids).all()
        assert torch.allclose(found.targets.cpu(), expected.targets, atol=1e-6)
        # Bytes are equal; mixing multiplies floats, which may round differently in the last place.
        assert (found.images.cpu() - expected.images).abs().max() < 1e-5


def test_the_same_step_gives_the_same_bytes_whatever_the_start(photos: Path) -> None:
    source = open_folder(photos)
    augment = AugmentConfig(randaugment_layers=2, randaugment_magnitude=15)
    preparation = Preparation(size=(64, 64), preprocessing=preset("google"), augment=augment, seed=1, decoder="fast")
    stream = Stream(length=len(source), batch_size=8, seed=1)
    whole = list(training_batches(source, stream, preparation, stop=8, device="cuda", workers=2))
    late = list(training_batches(source, stream, preparation, start=6, stop=8, device="cuda", workers=1))
    for one, other in zip(whole[6:], late, strict=True):
        assert torch.equal(one.images, other.images)


def test_the_difference_of_the_gpu_decoder_is_measured(photos: Path) -> None:
    seen = measure_difference(open_folder(photos), device="cuda")
    assert seen.images == 32
    assert 0 < seen.mean < 2


def test_a_cut_off_jpeg_is_named_or_explained(photos: Path) -> None:
    path = next((photos / "a").glob("*.jpg"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    source = open_folder(photos)
    preparation = Preparation(
        size=(64, 64), preprocessing=preset("google"), augment=AugmentConfig(), seed=1, decoder="fast"
    )
    stream = Stream(length=len(source), batch_size=40, seed=1)
    try:
        batch = next(training_batches(source, stream, preparation, device="cuda"))
    except DataError as error:
        assert "vitrail data check" in str(error)
    else:
        assert len(batch.images) == 40
