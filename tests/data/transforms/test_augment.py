"""Whole batches: flips, what is done in place, and normalisation against torchvision."""

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional

from vitrail.config import PRESETS, AugmentConfig, Preprocessing, preset
from vitrail.data.transforms.augment import augment_bytes, erase_some, normalise
from vitrail.data.transforms.erasing import draw_rectangles, erase
from vitrail.data.transforms.randaugment import draw_layers, randaugment

COUNT = 400
EPOCHS, IDS = np.arange(COUNT) % 2, np.arange(COUNT) * 3
PLAIN = AugmentConfig(flip=False)


def noise(count: int = COUNT, channels: int = 3, height: int = 6, width: int = 9) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, channels, height, width), dtype=np.uint8))


def test_half_of_the_images_are_mirrored_and_the_others_left() -> None:
    images = noise()
    flipped = augment_bytes(images.clone(), EPOCHS, IDS, 0, AugmentConfig())
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    same = (flipped == images).flatten(1).all(1)
    assert (mirrored ^ same).all()


def test_half_is_half() -> None:
    marked = torch.tensor([0, 1], dtype=torch.uint8).repeat(20_000, 1, 1, 1)
    flipped = augment_bytes(marked, np.zeros(20_000, dtype=int), np.arange(20_000), 0, AugmentConfig())
    assert abs(flipped[..., 0].float().mean().item() - 0.5) < 4 * np.sqrt(0.25 / 20_000)


def test_a_flip_depends_on_nothing_but_seed_epoch_and_image() -> None:
    def flips(seed=0, epochs=EPOCHS, ids=IDS) -> np.ndarray:
        marked = torch.zeros(len(ids), 1, 1, 2, dtype=torch.uint8)
        marked[..., 1] = 1
        return augment_bytes(marked, epochs, ids, seed, AugmentConfig())[:, 0, 0, 0].numpy() == 1

    together = flips()
    assert (flips() == together).all()
    order = np.random.default_rng(0).permutation(COUNT)
    assert (flips(epochs=EPOCHS[order], ids=IDS[order]) == together[order]).all()
    alone = [flips(epochs=EPOCHS[row : row + 1], ids=IDS[row : row + 1])[0] for row in range(30)]
    assert alone == together[:30].tolist()
    for other in (flips(seed=1), flips(epochs=EPOCHS + 2), flips(ids=IDS + 1)):
        assert 0.35 < (other != together).mean() < 0.65


def test_bytes_are_changed_in_place() -> None:
    images = noise()
    before = images.clone()
    result = augment_bytes(images, EPOCHS, IDS, 0, AugmentConfig(randaugment_layers=2))
    assert result.data_ptr() == images.data_ptr()
    assert result.dtype == torch.uint8
    assert not torch.equal(images, before)


def test_without_flip_and_randaugment_nothing_happens() -> None:
    assert torch.equal(augment_bytes(noise(), EPOCHS, IDS, 0, PLAIN), noise())


def test_the_flip_comes_before_randaugment_and_does_not_change_its_draws() -> None:
    both = AugmentConfig(randaugment_layers=2, randaugment_magnitude=15)
    flipped = augment_bytes(noise(), EPOCHS, IDS, 5, AugmentConfig())
    expected = randaugment(flipped, draw_layers(5, EPOCHS, IDS, 2), 15)
    assert torch.equal(augment_bytes(noise(), EPOCHS, IDS, 5, both), expected)


def by_torchvision(images: torch.Tensor, mean, std) -> torch.Tensor:
    return functional.normalize(images.float() / 255, list(mean), list(std))


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_normalisation_is_torchvisions(name, kind) -> None:
    images, look = noise(8).to(kind), preset(name)
    images = images + 0.25 if kind.is_floating_point else images
    before = images.clone()
    found = normalise(images, look)
    assert found.dtype == torch.float32
    assert (found - by_torchvision(images, look.mean, look.std)).abs().max() < 1e-5
    assert torch.equal(images, before)
    assert found.data_ptr() != images.data_ptr()


def test_the_ends_of_the_google_range() -> None:
    ends = normalise(torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2).expand(1, 3, 1, 2), preset("google"))
    assert (ends - torch.tensor([-1.0, 1.0])).abs().max() < 1e-6


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_grey_images_take_the_mean_of_the_channels_values(name) -> None:
    images, look = noise(4, channels=1), preset(name)
    expected = by_torchvision(images, [sum(look.mean) / 3], [sum(look.std) / 3])
    found = normalise(images, look)
    assert found.shape == images.shape
    assert (found - expected).abs().max() < 1e-5


def test_grey_images_take_values_that_were_made_for_grey() -> None:
    look = Preprocessing(mean=(0.1307,), std=(0.3081,), interpolation="bilinear")
    images = noise(4, channels=1)
    assert (normalise(images, look) - by_torchvision(images, (0.1307,), (0.3081,))).abs().max() < 1e-5


def test_double_precision_and_odd_layouts_become_single_precision() -> None:
    images, look = noise(4), preset("imagenet")
    strided = images.to(memory_format=torch.channels_last).double()
    found = normalise(strided, look)
    assert found.dtype == torch.float32
    assert (found - normalise(images, look)).abs().max() < 1e-6


def test_erasing_is_that_of_the_rectangles_and_only_when_asked_for() -> None:
    images = normalise(noise(), preset("google"))
    assert erase_some(images, EPOCHS, IDS, 3, PLAIN) is images
    expected = erase(images.clone(), draw_rectangles(3, EPOCHS, IDS, 0.4, (6, 9)))
    found = erase_some(images.clone(), EPOCHS, IDS, 3, AugmentConfig(erasing=0.4))
    assert torch.equal(found, expected)
    changed = (found != images).flatten(1).any(1).float().mean().item()
    assert 0.2 < changed < 0.5
