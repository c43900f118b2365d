"""Labels of hidden patches beside a direct computation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitrail.config import Preprocessing, VitConfig
from vitrail.models.masked.targets import colour_values, colours, picture, pixels, standardised

USED = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), interpolation="bilinear")


def network(**changes) -> VitConfig:
    known = {"width": 8, "depth": 1, "num_heads": 1, "mlp_width": 8, "num_classes": 0, "pool": "mean"}
    return VitConfig(**{**known, "patch_size": (8, 8), "image_size": (32, 48), **changes})


def normalised(values: np.ndarray) -> torch.Tensor:
    """(height, width, channels) from 0 to 1, as a network gets it."""
    mean, std = np.array(USED.mean), np.array(USED.std)
    return torch.from_numpy(((values - mean) / std).transpose(2, 0, 1)[None]).float()


def by_hand(values: np.ndarray, top: int, left: int, height: int, width: int) -> int:
    """The class of the mean colour of a box: 64 r + 8 g + b of floor(8 mean)."""
    red, green, blue = (
        min(7, math.floor(8 * float(values[top : top + height, left : left + width, channel].mean())))
        for channel in range(3)
    )
    return 64 * red + 8 * green + blue


@pytest.mark.parametrize("side", [1, 4])
def test_colours_are_those_that_a_direct_computation_finds(side) -> None:
    config = network()
    # Smooth enough that means differ from patch to patch; away from the edges of a bin by chance.
    values = np.random.default_rng(0).random((8, 12, 3)).repeat(4, axis=0).repeat(4, axis=1)
    values = np.clip(values + np.random.default_rng(1).normal(0, 0.05, values.shape), 0, 1)
    found = colours(normalised(values), config, USED, side)
    assert found.shape == (1, 24, side * side)
    step = 8 // side
    for patch in range(24):
        for part in range(side * side):
            top = 8 * (patch // 6) + step * (part // side)
            left = 8 * (patch % 6) + step * (part % side)
            assert found[0, patch, part] == by_hand(values, top, left, step, step)
    assert len(found.unique()) > 10


@pytest.mark.parametrize(("value", "level"), [(0.0, 0), (0.124, 0), (0.126, 1), (0.5001, 4), (0.999, 7), (1.0, 7)])
def test_levels_begin_at_eighths(value, level) -> None:
    grey = np.full((32, 48, 3), value)
    assert (colours(normalised(grey), network(), USED, 1) == 73 * level).all()


def test_a_grey_network_has_eight_classes() -> None:
    used = Preprocessing(mean=(0.5,), std=(0.5,), interpolation="bilinear")
    ramp = torch.linspace(-1, 0.999, 8 * 8 * 8).view(1, 1, 8, 64).flatten(2).view(1, 1, 64, 8)
    config = network(channels=1, patch_size=(8, 8), image_size=(64, 8))
    assert colours(ramp, config, used, 1).flatten().tolist() == list(range(8))


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 4]))
def test_the_middle_of_a_class_has_that_class(seed: int, side: int) -> None:
    config = network()
    classes = torch.from_numpy(np.random.default_rng(seed).integers(0, 512, (2, 24, side * side)))
    values = colour_values(classes, config)
    mean, std = (torch.tensor(part)[:, None, None] for part in (USED.mean, USED.std))
    large = values.repeat_interleave(8 // side, 2).repeat_interleave(8 // side, 3)
    assert torch.equal(colours((large - mean) / std, config, USED, side), classes)


def test_pixels_are_patches_in_order_and_a_picture_puts_them_back() -> None:
    config, images = network(image_size=(35, 50)), torch.randn(2, 3, 35, 50)
    found = pixels(images, config)
    assert found.shape == (2, 24, 192)
    assert torch.equal(found[1, 7].view(8, 8, 3), images[1, :, 8:16, 8:16].permute(1, 2, 0))
    # What no patch covers is not asked about.
    assert torch.equal(picture(found, config), images[:, :, :32, :48])


def test_a_patch_of_one_colour_stays_finite_when_it_is_standardised() -> None:
    found, mean, std = standardised(torch.full((1, 2, 12), 0.7))
    assert found.abs().max() < 1e-3
    assert (found * std + mean).flatten().tolist() == pytest.approx([0.7] * 24)
