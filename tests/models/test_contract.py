"""What every network of the zoo must do, with every head and every position embedding; new entries are found here."""

import dataclasses

import pytest
import torch
from torch import nn

import vitrail
from vitrail.config import BitConfig, ConvLayerConfig, ConvStemConfig, ModelConfig, ResNetConfig, VitConfig
from vitrail.config.vit import ADDITIVE_POSITIONS, POOLS, POSITION_PLACES, POSITIONS
from vitrail.models import Classifier, build
from vitrail.zoo import ZOO

VITS = [key for key, row in ZOO.items() if isinstance(row.config, VitConfig)]
POSITION_CASES = [
    (position, place) for position in POSITIONS for place in POSITION_PLACES
    if place == "stem" or position in ADDITIVE_POSITIONS
]  # fmt: skip


def toy(config: ModelConfig, **changes) -> ModelConfig:
    """The same kind of network, small enough to train a step in milliseconds."""
    if isinstance(config, BitConfig):
        return dataclasses.replace(config, blocks=(1, 1, 1, 1), width=32, num_classes=3, image_size=(33, 40))
    backbone = config.backbone
    if isinstance(backbone, ResNetConfig):
        backbone = dataclasses.replace(backbone, blocks=(1,) * len(backbone.blocks), width=32)
    changes = {
        "width": 24,
        "depth": 2,
        "num_heads": 3,
        "mlp_width": 16,
        "num_classes": 3,
        "backbone": backbone,
    } | changes
    smaller = dataclasses.replace(config, **changes)
    height, width = smaller.pixels_per_patch
    return dataclasses.replace(smaller, image_size=(2 * height, 3 * width))


def randomised(config: ModelConfig) -> Classifier:
    model = build(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


def check_contract(config: ModelConfig, folder) -> None:
    torch.manual_seed(0)
    model = randomised(config).train()
    images = torch.randn(2, config.channels, *config.image_size)
    logits = model(images)
    assert logits.shape == (2, 3)
    nn.functional.cross_entropy(logits, torch.tensor([0, 2])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
    with torch.no_grad():
        model.eval()
        assert model.tokens(images).shape[:2] == (2, config.tokens)
        vitrail.save_model(model, folder)
        loaded = vitrail.load_model(folder)
        assert loaded.config == config
        assert torch.equal(loaded(images), model(images))
        assert torch.equal(loaded.head(loaded.features(images)), loaded(images))
        height, width = config.image_size
        larger = vitrail.load_model(folder, image_size=(2 * height, 3 * width), num_classes=4)
        assert larger(torch.randn(1, config.channels, 2 * height, 3 * width)).shape == (1, 4)


@pytest.mark.parametrize("key", ZOO)
def test_every_network(key, tmp_path) -> None:
    check_contract(toy(ZOO[key].config), tmp_path / "model")


@pytest.mark.parametrize("key", VITS)
@pytest.mark.parametrize("pool", POOLS)
def test_every_network_with_every_pool(key, pool, tmp_path) -> None:
    check_contract(toy(ZOO[key].config, pool=pool, registers=2, pre_logits=5), tmp_path / "model")


@pytest.mark.parametrize("key", ["vit-b16", "r50-vit-b16", "r-vit-ti16"])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(("position", "place"), POSITION_CASES)
def test_every_position_in_every_place(key, pool, position, place, tmp_path) -> None:
    check_contract(toy(ZOO[key].config, pool=pool, position=position, position_at=place), tmp_path / "model")


def test_convolutional_stem(tmp_path) -> None:
    layers = tuple(ConvLayerConfig(channels=channels) for channels in (8, 16, 24))
    stem = ConvStemConfig(layers=layers)
    config = dataclasses.replace(
        ZOO["vit-test"].config, patch_size=(1, 1), backbone=stem, num_classes=3, image_size=(32, 40)
    )
    assert config.grid == (4, 5)
    check_contract(config, tmp_path / "model")


def test_convolutional_stem_is_torchvisions() -> None:
    from torchvision.models.vision_transformer import ConvStemConfig as TheirStem
    from torchvision.models.vision_transformer import VisionTransformer

    widths = (8, 16, 24)
    theirs = VisionTransformer(
        32, 8, 1, 2, 32, 64, num_classes=3,
        conv_stem_configs=[TheirStem(out_channels=width, kernel_size=3, stride=2) for width in widths],
    ).eval()  # fmt: skip
    stem = ConvStemConfig(layers=tuple(ConvLayerConfig(channels=width) for width in widths))
    ours = build(dataclasses.replace(ZOO["vit-test"].config, patch_size=(1, 1), backbone=stem, num_classes=3)).eval()
    for index, layer in enumerate(ours.embedding.backbone.layers):
        part = theirs.conv_proj[index]
        for buffer in (part[1].running_mean, part[1].running_var):
            nn.init.uniform_(buffer, 0.5, 1.5)
        layer.convolution.load_state_dict(part[0].state_dict())
        layer.norm.load_state_dict(part[1].state_dict())
    ours.embedding.projection.load_state_dict(theirs.conv_proj.conv_last.state_dict())
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(ours.embedding(images), theirs._process_input(images), rtol=0, atol=1e-5)
