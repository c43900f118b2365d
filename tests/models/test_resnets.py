"""Hybrids and BiT against the original's own outputs."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import vitrail
from vitrail.config import BitConfig, ResNetConfig, VitConfig
from vitrail.errors import UsageError
from vitrail.models import BitResNet
from vitrail.models.standardised_conv import StandardisedConv2d, pad_same
from vitrail.zoo import ZOO

# Counted by instantiating the original code, at 224 px with 1000 classes; BiT without its head.
HYBRIDS = {
    "r50-vit-b16": 98_659_112,
    "r50-vit-l16": 316_483_624,
    "r50-vit-b32": 110_945_832,
    "r50-vit-l32": 328_994_856,
    "r26-vit-s32": 36_431_912,
    "r26-vit-b32": 101_383_976,
    "r-vit-ti16": 6_337_704,
}
BITS = {
    "bit-r50x1": 23_500_352,
    "bit-r50x2": 93_891_712,
    "bit-r50x3": 211_174_080,
    "bit-r101x1": 42_492_480,
    "bit-r101x3": 381_789_888,
    "bit-r152x1": 58_136_128,
    "bit-r152x2": 232_238_208,
    "bit-r152x4": 928_340_224,
    "bit-r200x3": 562_488_000,
}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def input_of(folder) -> torch.Tensor:
    return torch.from_numpy(np.load(folder / "input.npy")).permute(0, 3, 1, 2)


def test_parameter_counts_equal_the_originals() -> None:
    with torch.device("meta"):
        assert {key: count(vitrail.create_model(key)) for key in HYBRIDS} == HYBRIDS
        assert {key: count(vitrail.create_model(key, num_classes=0)) for key in BITS} == BITS
        assert count(vitrail.create_model("bit-r50x1")) == 25_549_352
        full = vitrail.create_model("r50-vit-b16", num_classes=21_843, pre_logits=768)
        assert count(full) == 115_277_971
    assert HYBRIDS.keys() | BITS.keys() == {key for key in ZOO if key.startswith(("r", "bit"))}


@pytest.mark.parametrize("case", ["hybrid_stem_only", "hybrid_r111"])
def test_hybrids_equal_the_original(case, fixtures) -> None:
    folder = fixtures / case
    model = vitrail.load_model(folder / "params.npz")
    images = input_of(folder)
    with torch.no_grad():
        ours = {"logits": model(images), "features": model.features(images), "tokens": model.tokens(images)}
        embedded = model.embedding(images).numpy()
    for name, tensor in ours.items():
        np.testing.assert_allclose(tensor.numpy(), np.load(folder / f"{name}.npy"), rtol=0, atol=2e-5)
    wanted = np.load(folder / "embedding.npy").reshape(embedded.shape)
    # These sums of up to 30 carry the rounding of two float32 ResNets, so the bound is relative to their size.
    np.testing.assert_allclose(embedded, wanted, rtol=0, atol=4e-6 * np.abs(wanted).max())


def test_bit_equals_the_original_on_an_odd_size(fixtures) -> None:
    folder = fixtures / "bit_r2121x0.5_odd"
    model = vitrail.load_model(folder / "params.npz")
    images = input_of(folder)
    assert images.shape[2:] == (75, 61)
    with torch.no_grad():
        ours = {"logits": model(images), "features": model.features(images)}
        root = model.root_map(images)[:, :8]
    for name, tensor in ours.items():
        np.testing.assert_allclose(tensor.numpy(), np.load(folder / f"{name}.npy"), rtol=0, atol=2e-5)
    np.testing.assert_allclose(root.numpy(), np.load(folder / "root_nchw.npy"), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("hybrid_r111", {"standardisation": "variance", "standardisation_epsilon": 1e-8}),
        ("hybrid_r111", {"group_norm_epsilon": 1e-3}),
        ("bit_r2121x0.5_odd", {"pool_padding": "minus_infinity"}),
        ("bit_r2121x0.5_odd", {"group_norm_epsilon": 1e-3}),
        ("bit_r2121x0.5_odd", {"standardisation": "std", "standardisation_epsilon": 1e-2}),
    ],
)
def test_the_fixtures_would_notice_other_numerics(case, change, fixtures) -> None:
    folder = fixtures / case
    config = vitrail.load_model(folder / "params.npz").config
    if isinstance(config, VitConfig):
        change = {"backbone": dataclasses.replace(config.backbone, **change)}
    model = vitrail.load_model(folder / "params.npz", **change)
    with torch.no_grad():
        difference = np.abs(model(input_of(folder)).numpy() - np.load(folder / "logits.npy")).max()
    assert difference > 4e-5


@pytest.mark.parametrize("kernel", [1, 3, 7])
@given(side=st.integers(1, 40), stride=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_same_padding_rounds_up_and_puts_the_odd_pixel_last(kernel, side, stride) -> None:
    padded = pad_same(torch.ones(1, 1, side, side), kernel, stride)
    total = padded.shape[2] - side
    assert (padded.shape[2] - kernel) // stride + 1 == -(-side // stride)
    rows = padded[0, 0].amax(dim=1)
    before = int((rows == 0).nonzero()[0]) == 0 if total else False
    first = int(rows.nonzero()[0]) if total else 0
    assert first == total // 2
    assert before == (total // 2 > 0)


@pytest.mark.parametrize("rule", ["std", "variance"])
def test_standardised_kernels_have_mean_zero_and_deviation_one(rule) -> None:
    layer = StandardisedConv2d(5, 7, 3, same=True, standardisation=rule, epsilon=1e-10)
    nn.init.normal_(layer.weight, mean=3.0, std=2.0)
    kernel = layer.standardised()
    torch.testing.assert_close(kernel.mean(dim=(1, 2, 3)), torch.zeros(7), rtol=0, atol=1e-5)
    torch.testing.assert_close(kernel.std(dim=(1, 2, 3), correction=0), torch.ones(7), rtol=0, atol=1e-4)


def test_every_hybrid_unit_begins_as_identity() -> None:
    model = vitrail.create_model(
        VitConfig(
            width=8, depth=1, num_heads=1, mlp_width=8, patch_size=(1, 1), image_size=(32, 32),
            backbone=ResNetConfig(blocks=(2,), width=32),
        )
    )  # fmt: skip
    unit = model.embedding.backbone.stages[0][1]
    x = torch.rand(1, 128, 8, 8)
    assert torch.equal(unit(x), x)


@given(height=st.integers(1, 100), width=st.integers(1, 100))
@settings(max_examples=25, deadline=None)
def test_bit_takes_any_size_and_knows_its_map(height, width) -> None:
    config = BitConfig(blocks=(1, 1, 1, 1), width=32, num_classes=3, image_size=(height, width))
    with torch.device("meta"):
        model = BitResNet(config)
        images = torch.empty(2, 3, height, width)
        assert model.tokens(images).shape == (2, config.tokens, 1024)
        assert model(images).shape == (2, 3)


@given(height=st.integers(1, 100), width=st.integers(1, 100), stages=st.integers(0, 4))
@settings(max_examples=25, deadline=None)
def test_hybrids_take_any_size_and_know_their_grid(height, width, stages) -> None:
    backbone = ResNetConfig(blocks=(1,) * stages, width=32)
    config = VitConfig(
        width=8, depth=1, num_heads=1, mlp_width=8, patch_size=(1, 1), image_size=(height, width), backbone=backbone,
        num_classes=3,
    )  # fmt: skip
    with torch.device("meta"):
        model = vitrail.create_model(config)
        assert model.tokens(torch.empty(2, 3, height, width)).shape == (2, config.tokens, 8)


def test_bit_features_are_the_mean_of_its_tokens() -> None:
    model = BitResNet(BitConfig(blocks=(1, 1, 1, 1), width=32, num_classes=3)).eval()
    images = torch.randn(1, 3, 70, 50)
    torch.testing.assert_close(model.features(images), model.tokens(images).mean(1), rtol=1e-5, atol=1e-5)


def test_a_width_that_group_norm_cannot_split_is_refused() -> None:
    with pytest.raises(UsageError, match="width is 40; wanted a multiple of the 32 groups"):
        BitConfig(blocks=(1, 1, 1, 1), width=40)


def test_r_ti_16_really_has_a_stride_of_32() -> None:
    config = ZOO["r-vit-ti16"].config
    assert config.pixels_per_patch == (32, 32)
    assert config.tokens == 50


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@torch.no_grad()
def test_a_bit_of_any_number_of_stages_knows_its_map(stages: int) -> None:
    config = BitConfig(blocks=(1,) * stages, width=32, image_size=(40, 70), num_classes=3)
    model = vitrail.models.build(config).eval()
    images = torch.zeros(2, 3, 40, 70)
    assert model(images).shape == (2, 3)
    assert model.feature_map(images).shape == (2, config.feature_width, *config.grid)
