"""Small sets of images, and what the tests of loading ask of batches."""

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from vitrail.config import AugmentConfig, Preprocessing, preset
from vitrail.data.loading.loader import Batch
from vitrail.data.loading.prepare import Preparation
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Arrays

EVERYTHING = AugmentConfig(min_area=0.2, randaugment_layers=2, erasing=0.5, mixup=0.3, cutmix=0.5)
"""Every kind of augmentation at once."""

_SIZES = ((20, 28), (16, 16), (33, 17), (24, 40))


def picture(number: int) -> Image.Image:
    """A picture unlike every other."""
    height, width = _SIZES[number % len(_SIZES)]
    coarse = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def make_folder(path: Path, count: int = 20, classes: tuple[str, ...] = ("ant", "bee", "cow")) -> Path:
    """Class folders of JPEGs and PNGs of several sizes, one of them grey."""
    for number in range(count):
        place = path / classes[number % len(classes)]
        place.mkdir(parents=True, exist_ok=True)
        image = picture(number)
        if number % 2:
            image.convert("L" if number == 5 else "RGB").save(place / f"{number:03}.png")
        else:
            image.save(place / f"{number:03}.jpg", quality=90)
    return path


def make_arrays(count: int = 40, side: int = 8, grey: bool = False, several: bool = False) -> Arrays:
    """A set in memory with five classes, of which an image may have several."""
    generator = np.random.default_rng(count)
    pixels = generator.integers(0, 256, (count, side, side) if grey else (count, side, side, 3), dtype=np.uint8)
    if several:
        labels = Labels.of_many([list(range(number % 3)) for number in range(count)], 5)
    else:
        labels = Labels.of(generator.integers(0, 5, count), 5)
    return Arrays("tiny", "train", tuple("abcde"), labels, pixels)


def prepared(
    augment: AugmentConfig | None = None,
    size: tuple[int, int] = (16, 16),
    preprocessing: Preprocessing | None = None,
    **more: Any,
) -> Preparation:
    """How to prepare, for evaluation if no augmentation is named."""
    return Preparation(size=size, preprocessing=preprocessing or preset("augreg"), augment=augment, **more)


def assert_same(found: list[Batch], expected: list[Batch]) -> None:
    """Batches that are equal to the last bit."""
    assert [batch.step for batch in found] == [batch.step for batch in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.epochs.tolist() == other.epochs.tolist()
        assert one.images.dtype == other.images.dtype
        assert torch.equal(one.images, other.images)
        assert one.targets.dtype == other.targets.dtype
        assert torch.equal(one.targets, other.targets)


def left_running() -> list[str]:
    """Worker processes and data threads that are still there."""
    threads = [thread.name for thread in threading.enumerate() if thread.name == "vitrail data"]
    return threads + [str(process.pid) for process in multiprocessing.active_children()]
