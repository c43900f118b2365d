"""The one preparation of evaluation, prediction and serving, without torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.config import Preprocessing, preset
from vitrail.data.transforms.augment import normalise
from vitrail.data.transforms.fit_image import fit_image, normalised

HALF = (0.5, 0.5, 0.5)


def noise(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(height * width).integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("shape", "size"), [((50, 40), (32, 32)), ((300, 401), (224, 224)), ((7, 9), (64, 31))])
def test_without_a_filter_it_is_the_resize_of_torch(interpolation, shape, size) -> None:
    look = Preprocessing(mean=HALF, std=HALF, interpolation=interpolation, antialias=False)
    pixels = noise(*shape)
    fitted = fit_image(Image.fromarray(pixels), size, look)
    plain = torch.from_numpy(pixels).permute(2, 0, 1).float()[None]
    expected = torch.nn.functional.interpolate(plain, size, mode=interpolation, align_corners=False)[0]
    assert fitted.dtype == np.float32
    assert np.abs(fitted - expected.permute(1, 2, 0).numpy()).max() < 5e-3


@pytest.mark.parametrize("name", ["google", "augreg", "imagenet"])
@pytest.mark.parametrize("channels", [1, 3])
def test_numbers_are_those_of_evaluation_to_the_last_bit(name, channels) -> None:
    pixels, look = noise(20, 30, channels), preset(name)
    expected = normalise(torch.from_numpy(pixels).permute(2, 0, 1)[None], look)[0].numpy()
    found = normalised(pixels, look)
    assert found.shape == (channels, 20, 30)
    if channels == 3:
        assert np.array_equal(found, expected)
    else:
        assert np.abs(found - expected).max() < 1e-6


def test_pixels_that_are_handed_in_stay_as_they_are() -> None:
    pixels = noise(8, 8).astype(np.float32)
    before = pixels.copy()
    normalised(pixels, preset("google"))
    assert np.array_equal(pixels, before)


def test_no_torch_is_loaded() -> None:
    code = "import sys, vitrail.data.transforms.fit_image; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
