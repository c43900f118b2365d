"""Our own rows: that they can be built, fit their data, and leave something to learn from."""

import numpy as np
import pytest
import torch

from vitrail.config import BitConfig, ConvStemConfig
from vitrail.data.sources.named_rows import NAMED
from vitrail.data.transforms.randaugment import draw_layers, randaugment
from vitrail.models import build
from vitrail.recipes import recipe
from vitrail.recipes.small import SMALL
from vitrail.zoo import ZOO

NAMES = [row.name for row in SMALL]
AUGMENTED = [row.name for row in SMALL if row.augment.randaugment_layers]


def test_the_small_rows():
    cifar = {"vit-cifar10", "conv-vit-cifar10", "vit-cifar100", "conv-vit-cifar100"}
    assert set(NAMES) == {"vit-digits", "vit-mnist", "vit-folder"} | cifar
    assert all(row.source == "ours" for row in SMALL)


@pytest.mark.parametrize("name", NAMES)
def test_the_network_takes_the_images_and_names_the_classes(name: str):
    network = recipe(name).model
    assert network is not None
    with torch.device("meta"):
        logits = build(network)(torch.empty(2, network.channels, *network.image_size))
    assert logits.shape == (2, network.num_classes)
    known = NAMED.get(recipe(name).data)
    assert known is None or known.classes == network.num_classes


@pytest.mark.parametrize("name", NAMES)
def test_what_all_of_them_share(name: str):
    found = recipe(name)
    assert (found.optim.optimizer, found.optim.clip) == ("muon" if "cifar" in name else "adam", 1.0)
    assert (found.schedule.decay, found.schedule.warmup_share) == ("cosine", 0.05)
    assert (found.train.loss, found.train.keep) == ("softmax", "best" if name == "vit-folder" else "last")
    assert found.train.compile == (found.train.precision == "bfloat16") == ("cifar" in name)


@pytest.mark.parametrize("name", ["vit-digits", "vit-mnist"])
def test_digits_are_not_mirrored(name: str):
    assert not recipe(name).augment.flip


def test_mnist_is_the_network_of_the_zoo():
    network, named = recipe("vit-mnist").model, ZOO["vit-tiny-mnist"].config
    assert not isinstance(network, BitConfig | None)
    for field in ("width", "depth", "num_heads", "mlp_width", "patch_size", "image_size", "pool", "num_classes"):
        assert getattr(network, field) == getattr(named, field), field
    assert recipe("vit-mnist").train.epochs == 15


@pytest.mark.parametrize("classes", [10, 100])
def test_the_stem_gives_as_many_tokens_as_the_patches(classes: int):
    plain, stem = recipe(f"vit-cifar{classes}").model, recipe(f"conv-vit-cifar{classes}").model
    assert not isinstance(plain, BitConfig | None)
    assert not isinstance(stem, BitConfig | None)
    assert plain.backbone is None
    assert isinstance(stem.backbone, ConvStemConfig)
    assert plain.grid == stem.grid == (8, 8)


@pytest.mark.parametrize("name", AUGMENTED)
def test_randaugment_leaves_something_of_every_image(name: str):
    """The original's 100 pixels would move an image of 32 out of its frame."""
    augment, network = recipe(name).augment, recipe(name).model
    assert network is not None
    ids = np.arange(512)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (512, 3, *network.image_size), dtype=torch.uint8, generator=generator)
    layers = draw_layers(0, np.zeros_like(ids), ids, augment.randaugment_layers)
    changed = randaugment(images, layers, augment.randaugment_magnitude)
    grey = (changed == 128).all(dim=1).float().mean(dim=(1, 2))
    assert grey.max() < 0.9
    assert (grey > 0.5).float().mean() < 0.1
