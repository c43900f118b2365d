"""Whole batches are cut as `fit_for_training` cuts a single image."""

import numpy as np
import pytest
import torch
from torch import Tensor

from vitrail.config import AugmentConfig, preset
from vitrail.data.transforms.boxes import random_offsets, training_boxes
from vitrail.data.transforms.crops import crop_at, fit_batch
from vitrail.data.transforms.fit import crop_room, fit_for_training
from vitrail.data.transforms.resample import resize_bytes_batch
from vitrail.errors import UsageError

COUNT, HEIGHT, WIDTH = 12, 40, 56
EPOCHS, IDS = np.arange(COUNT) % 2, np.arange(COUNT) * 11


def noise(count: int, height: int, width: int) -> Tensor:
    """Greys so far from black and white that no filter overshoots, which torchvision cuts off between its passes."""
    return torch.from_numpy(np.random.default_rng(0).integers(64, 192, (count, 3, height, width), dtype=np.uint8))


@pytest.mark.parametrize("size", [(24, 24), (20, 31)])
@pytest.mark.parametrize("name", ["google", "augreg"])
@pytest.mark.parametrize("crop", ["inception", "resize", "pad", "whole"])
def test_a_batch_is_fitted_like_its_images_one_by_one(crop, name, size) -> None:
    augment, look, images = AugmentConfig(crop=crop, resize=36, pad=3), preset(name), noise(COUNT, HEIGHT, WIDTH)
    boxes = training_boxes(augment, 4, EPOCHS, IDS, np.full(COUNT, HEIGHT), np.full(COUNT, WIDTH))
    places = torch.tensor([boxes[row] for row in range(COUNT)])

    def resize(wanted: tuple[int, int]) -> Tensor:
        return resize_bytes_batch(images, places, wanted, look.interpolation, look.antialias)

    batch = fit_batch(resize, size, augment, 4, EPOCHS, IDS)
    assert batch.shape == (COUNT, 3, *size)
    assert batch.dtype == torch.uint8
    assert batch.is_contiguous()
    offsets = random_offsets(4, EPOCHS, IDS, crop_room(augment, size))
    for row in range(COUNT):
        offset = int(offsets[row, 0]), int(offsets[row, 1])
        alone = fit_for_training(images[row], boxes[row], size, offset, augment, look)
        # torchvision rounds to bytes between rows and columns too.
        assert (batch[row].int() - alone.int()).abs().max() <= 1


def test_each_image_is_cropped_at_its_own_corner() -> None:
    images = noise(4, 9, 11)
    corners = np.array([[0, 0], [3, 6], [1, 4], [3, 0]])
    cropped = crop_at(images, corners, (6, 5))
    for image, (top, left), found in zip(images, corners, cropped, strict=True):
        assert torch.equal(found, image[:, top : top + 6, left : left + 5])


def test_the_padding_is_black() -> None:
    white = torch.full((200, 1, 6, 6), 255, dtype=torch.uint8)
    augment = AugmentConfig(crop="pad", pad=2)
    ids = np.arange(200)
    batch = fit_batch(lambda _: white, (6, 6), augment, 0, np.zeros(200, dtype=int), ids)
    offsets = random_offsets(0, np.zeros(200, dtype=int), ids, (4, 4))
    assert set(batch.unique().tolist()) == {0, 255}
    shown = (6 - np.abs(offsets - 2)).prod(1)
    assert ((batch == 255).sum((1, 2, 3)).numpy() == shown).all()


def test_a_square_smaller_than_the_input_is_refused_before_anything_is_cropped() -> None:
    augment = AugmentConfig(crop="resize", resize=32)
    with pytest.raises(UsageError, match=r"^resize is 32; wanted at least the input's 48 pixels\.$"):
        fit_batch(lambda size: torch.zeros(1, 3, *size), (32, 48), augment, 0, np.zeros(1, int), np.zeros(1, int))
