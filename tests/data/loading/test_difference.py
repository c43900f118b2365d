"""The difference of the fast decoder is that of what training sees."""

import numpy as np
import pytest
from PIL import Image, ImageFilter

from vitrail.config import AugmentConfig, preset
from vitrail.data.loading.difference import batch_difference
from vitrail.data.loading.prepare import Preparation
from vitrail.data.sources.folder import open_folder
from vitrail.errors import UsageError


@pytest.fixture
def photos(tmp_path):
    generator = np.random.default_rng(0)
    for number in range(8):
        folder = tmp_path / "photos" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        noise = Image.fromarray(generator.integers(0, 256, (500, 600, 3), dtype=np.uint8))
        noise.filter(ImageFilter.GaussianBlur(2)).save(folder / f"{number}.jpg", quality=90)
    return open_folder(tmp_path / "photos")


def prepared(name: str, size: int, **augment) -> Preparation:
    return Preparation(size=(size, size), preprocessing=preset(name), augment=AugmentConfig(**augment))


def test_decoded_whole_the_pixels_are_equal(photos) -> None:
    # 300 px leave no room for a smaller scale.
    found = batch_difference(photos, prepared("augreg", 300, crop="whole"))
    assert (found.images, found.mean, found.largest) == (8, 0.0, 0)


def test_decoded_smaller_the_difference_is_told(photos) -> None:
    found = batch_difference(photos, prepared("augreg", 64, crop="whole", randaugment_layers=2, mixup=0.5))
    assert 0 < found.mean < 10
    assert found.largest > 1


def test_without_antialias_nothing_is_decoded_smaller(photos) -> None:
    found = batch_difference(photos, prepared("google", 64, crop="whole"))
    assert (found.mean, found.largest) == (0.0, 0)


def test_evaluation_has_no_fast_decoder(photos) -> None:
    with pytest.raises(UsageError, match="no augmentation"):
        batch_difference(photos, Preparation(size=(32, 32), preprocessing=preset("google")))
