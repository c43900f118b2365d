"""Maps, rollout and distance equal the formulas evaluated directly, for every kind of network."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.inspection.networks import all_attention, distances_by_loops, network, pictures, product_of_layers

import vitrail
from vitrail.config import ConvLayerConfig, ConvStemConfig, ResNetConfig
from vitrail.errors import DataError, UsageError
from vitrail.inspection import (
    attention_distance,
    attention_maps,
    attention_rollout,
    distances_of_images,
    looking,
    reading_maps,
    rows,
    uniform_distance,
)
from vitrail.models.pooling import AttentionPooling

KINDS = {
    "class token": {},
    "no class token": {"pool": "mean"},
    "registers": {"registers": 3},
    "registers, no class token": {"registers": 2, "pool": "mean"},
    "attention pooling": {"pool": "map"},
    "attention pooling, registers": {"pool": "map", "registers": 2},
    "relative positions": {"position": "relative"},
    "positions at every layer": {"position_at": "every_layer"},
    "sides of a patch differ": {"patch_size": (2, 5)},
    "hybrid": {"backbone": ResNetConfig(blocks=(1,), width=32), "patch_size": 1},
    "stem": {
        "backbone": ConvStemConfig(layers=(ConvLayerConfig(channels=8), ConvLayerConfig(channels=8))),
        "patch_size": 1,
    },
}


@pytest.fixture(params=KINDS)
def model(request):
    return network(**KINDS[request.param])


def test_the_original_s_attention_gives_the_same_rollout_and_distance(fixtures) -> None:
    folder = fixtures / "vit_token"
    model = vitrail.load_model(folder / "params.npz", num_heads=4)
    images = torch.from_numpy(np.load(folder / "input.npy")).permute(0, 3, 1, 2)
    attention = np.load(folder / "attn.npy").astype(np.float64)
    wanted = product_of_layers(attention)[:, 0, 1:].reshape(-1, 8, 8)
    np.testing.assert_allclose(attention_rollout(model, images), wanted, atol=1e-5)
    apart = distances_by_loops(attention, (8, 8), (4, 4), prefix=1)
    np.testing.assert_allclose(attention_distance(model, images), apart, rtol=1e-5)
    np.testing.assert_allclose(attention_maps(model, images), attention, atol=1e-5)


def test_maps_are_those_of_the_tapped_pass(model) -> None:
    images = pictures(model)
    wanted = all_attention(model, images)
    np.testing.assert_allclose(attention_maps(model, images), wanted, atol=1e-6)
    np.testing.assert_allclose(attention_maps(model, images, [-1, 0]), wanted[[-1, 0]], atol=1e-6)
    assert torch.equal(attention_maps(model, images, [1, 1])[0], attention_maps(model, images, [1])[0])


def test_rollout_follows_back_what_the_head_reads(model) -> None:
    images, config = pictures(model), model.config
    whole = product_of_layers(all_attention(model, images))
    if config.pool == "token":
        row = whole[:, 0]
    elif config.pool == "mean":
        row = whole[:, config.prefix_tokens :].mean(axis=1)
    else:
        asked = _probe_attention(model, images)
        row = np.einsum("bp,bpk->bk", asked, whole[:, config.prefix_tokens :])
    wanted = row[:, config.prefix_tokens :].reshape(-1, *config.grid)
    np.testing.assert_allclose(attention_rollout(model, images), wanted, atol=1e-6)


def _probe_attention(model, images) -> np.ndarray:
    """How the pooling weighs patches, by the change of its output when their values are swapped one at a time."""
    pooling = model.pooling
    assert isinstance(pooling, AttentionPooling)
    with torch.no_grad():
        patches = model.tokens(images)[:, model.config.prefix_tokens :]
        q = pooling.query(pooling.probe).view(pooling.num_heads, -1)
        k = pooling.key_value(patches)[..., : q.numel()].view(len(images), -1, *q.shape)
        logits = (k * q).sum(-1) / q.shape[-1] ** 0.5
    return torch.softmax(logits, dim=1).mean(dim=2).double().numpy()


def test_distance_is_the_double_loop(model) -> None:
    images, config = pictures(model), model.config
    wanted = distances_by_loops(
        all_attention(model, images), config.grid, config.pixels_per_patch, config.prefix_tokens
    )
    np.testing.assert_allclose(attention_distance(model, images), wanted, rtol=2e-5)
    np.testing.assert_allclose(attention_distance(model, images, [-1]), wanted[-1:], rtol=2e-5)
    one_by_one = torch.cat([distances_of_images(model, image) for image in images.split(1)])
    np.testing.assert_allclose(one_by_one.mean(dim=0), wanted, rtol=2e-5)


def test_reading_maps_are_rows_of_the_attention(model) -> None:
    images, config = pictures(model), model.config
    whole = all_attention(model, images)[..., config.prefix_tokens :]
    read = whole[..., 0, :] if config.class_token else whole[..., config.prefix_tokens :, :].mean(axis=-2)
    wanted = read.reshape(*read.shape[:3], *config.grid)
    np.testing.assert_allclose(reading_maps(model, images), wanted, atol=1e-6)


@given(
    rows_of_patches=st.integers(1, 5),
    columns=st.integers(1, 5),
    registers=st.integers(0, 3),
    heads=st.sampled_from([1, 2, 4]),
    pool=st.sampled_from(["token", "mean", "map"]),
    depth=st.integers(1, 3),
)
@settings(max_examples=12)
def test_shares_and_distances_stay_within_what_they_can_be(
    rows_of_patches, columns, registers, heads, pool, depth
) -> None:
    model = network(
        image_size=(4 * rows_of_patches, 4 * columns),
        registers=registers, num_heads=heads, width=16, pool=pool, depth=depth,
    )  # fmt: skip
    images = pictures(model, 2)
    rollout, distance = attention_rollout(model, images), attention_distance(model, images)
    assert rollout.shape == (2, rows_of_patches, columns)
    assert (rollout >= 0).all()
    total = rollout.sum(dim=(1, 2))
    if model.config.prefix_tokens:
        assert (total < 1).all()
    else:
        torch.testing.assert_close(total, torch.ones(2))
    assert distance.shape == (depth, heads)
    farthest = 4 * np.hypot(rows_of_patches - 1, columns - 1)
    assert ((distance >= 0) & (distance <= farthest + 1e-4)).all()


def test_equal_attention_has_the_distance_of_the_grid() -> None:
    model = network(pool="mean")
    with torch.no_grad():
        for block in model.blocks:
            block.attention.qkv.weight.zero_()
            block.attention.qkv.bias.zero_()
    torch.testing.assert_close(attention_distance(model, pictures(model)), torch.full((3, 3), uniform_distance(model)))
    torch.testing.assert_close(attention_rollout(model, pictures(model)), torch.full((3, 3, 5), 1 / 15))


def test_rollout_of_chosen_layers_multiplies_those_alone() -> None:
    model = network()
    images = pictures(model)
    attention = all_attention(model, images)
    wanted = product_of_layers(attention[[0, 2]])[:, 0, 1:].reshape(-1, 3, 5)
    np.testing.assert_allclose(attention_rollout(model, images, [-1, 0]), wanted, atol=1e-6)


def test_pieces_make_no_difference_and_no_matrix_is_kept(monkeypatch) -> None:
    model = network(registers=1)
    images = pictures(model, 4)
    whole = [attention_rollout(model, images), attention_distance(model, images), attention_maps(model, images)]
    monkeypatch.setattr(rows, "_MOST_NUMBERS", 1)
    monkeypatch.setattr(looking, "_MOST_NUMBERS", 1)
    largest = 0
    softmax = torch.softmax

    def watched(*given, **named):
        nonlocal largest
        found = softmax(*given, **named)
        largest = max(largest, found.numel())
        return found

    monkeypatch.setattr(torch, "softmax", watched)
    pieces = [attention_rollout(model, images), attention_distance(model, images), attention_maps(model, images)]
    assert largest == model.config.num_heads * model.config.tokens
    for piece, together in zip(pieces, whole, strict=True):
        torch.testing.assert_close(piece, together)


def test_layers_behind_the_last_chosen_one_are_not_computed() -> None:
    model = network()
    model.blocks[1].forward = None  # type: ignore[assignment]
    assert attention_distance(model, pictures(model), [0, 1]).shape == (2, 3)
    assert attention_maps(model, pictures(model), [1]).shape[0] == 1
    assert attention_rollout(model, pictures(model), [0, 1]).shape == (3, 3, 5)


def test_looking_changes_nothing() -> None:
    model = network(dropout=0.5)
    model.train()
    model.blocks[0].eval()
    images = pictures(model)
    assert torch.equal(attention_rollout(model, images), attention_rollout(model, images))
    assert model.training and model.blocks[1].training and not model.blocks[0].training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not attention_maps(model, images, [0]).requires_grad


@pytest.mark.parametrize("function", [attention_maps, attention_rollout, attention_distance, reading_maps])
def test_what_cannot_be_looked_at_is_said(function) -> None:
    model = network()
    images = pictures(model)
    bit = vitrail.create_model("bit-r50x1", width=32, blocks=(1, 1, 1, 1), num_classes=2)
    with pytest.raises(
        UsageError, match=r"BitResNet has no attention, so there is no attention .*wanted a Vision Tran"
    ):
        function(bit, torch.zeros(1, 3, 32, 32))
    for layer in (3, -4):
        with pytest.raises(
            UsageError, match=rf"layer {layer} is not there; wanted a number from 0 to 2, or from -3 to"
        ):
            function(model, images, [layer])
    with pytest.raises(UsageError, match="there are no layers to look at"):
        function(model, images, [])
    with pytest.raises(UsageError, match="the images are 16x20 pixels; wanted 12x20"):
        function(model, torch.zeros(1, 3, 16, 20))
    with pytest.raises(UsageError, match=r"the images have the shape \(0, 3, 12, 20\)"):
        function(model, images[:0])
    with pytest.raises(UsageError, match=r"the images have the shape \(3, 12, 20\)"):
        function(model, images[0])
    with torch.no_grad():
        model.embedding.projection.weight[0] = float("nan")
    with pytest.raises(DataError, match="the attention is not finite; wanted numbers"):
        function(model, images)
