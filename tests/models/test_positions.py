"""The position embeddings of Table 8, each against a direct computation."""

import dataclasses
import math

import pytest
import torch
from torch import nn

import vitrail
from vitrail.config import VitConfig
from vitrail.errors import UsageError
from vitrail.models import VisionTransformer
from vitrail.models.fixed_table import sinusoid_1d
from vitrail.models.positions import Learned1d, Learned2d

CONFIG = VitConfig(width=24, depth=3, num_heads=3, mlp_width=40, patch_size=(4, 4), image_size=(12, 8), num_classes=5)
GRID, TOKENS = (3, 2), 7


def randomised(**changes) -> VisionTransformer:
    model = VisionTransformer(dataclasses.replace(CONFIG, **changes)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def test_none_adds_nothing_and_has_no_table() -> None:
    model = randomised(position="none")
    images = torch.randn(2, 3, 12, 8)
    assert len(model.positions) == 0
    assert torch.equal(model.embed(images)[:, 1:], model.embedding(images))


def test_learned_2d_is_two_tables_of_half_width_concatenated() -> None:
    position = randomised(position="learned_2d").positions[0]
    assert position.columns.shape == (2, 12)
    assert position.rows.shape == (3, 12)
    table = position()
    for row in range(GRID[0]):
        for column in range(GRID[1]):
            wanted = torch.cat([position.columns[column], position.rows[row]])
            assert torch.equal(table[1 + row * GRID[1] + column], wanted)
    assert torch.equal(table[0], position.prefix[0])


def test_sinusoid_is_the_formula() -> None:
    table = sinusoid_1d(9, 10)
    for i in range(9):
        for j in range(5):
            angle = i / 10_000 ** (2 * j / 10)
            assert table[i, 2 * j] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[i, 2 * j + 1] == pytest.approx(math.cos(angle), abs=1e-6)


def test_relative_logits_equal_a_direct_double_loop() -> None:
    """q_i . (k_j + r_(i-j)) / sqrt(head_dim), softmax, times v, head by head and token by token."""
    model = randomised(position="relative")
    attention = model.blocks[1].attention
    z = torch.randn(2, TOKENS, 24)
    with torch.no_grad():
        q, k, v = attention.project(z)
        table = attention.relative.table.reshape(2 * TOKENS - 1, 3, 8)
        weights, heads = torch.zeros(2, 3, TOKENS, TOKENS), torch.zeros(2, TOKENS, 3, 8)
        for sample in range(2):
            for head in range(3):
                for i in range(TOKENS):
                    logits = torch.tensor(
                        [
                            q[sample, head, i] @ k[sample, head, j]
                            + q[sample, head, i] @ table[i - j + TOKENS - 1, head]
                            for j in range(TOKENS)
                        ]
                    )
                    weights[sample, head, i] = (logits / 8**0.5).softmax(0)
                    heads[sample, i, head] = weights[sample, head, i] @ v[sample, head]
        torch.testing.assert_close(attention(z), attention.output(heads.flatten(2)), rtol=0, atol=1e-5)
        torch.testing.assert_close(attention.weights(z), weights, rtol=0, atol=1e-6)


def test_relative_attention_from_the_tap_matches_the_logits() -> None:
    model = randomised(position="relative")
    images = torch.randn(2, 3, 12, 8)
    with torch.no_grad():
        logits, attention = model.forward_tapped(images, layers=[0, 1, 2])
        assert torch.equal(logits, model(images))
    assert all(torch.allclose(weights.sum(-1), torch.ones(2, 3, TOKENS)) for weights in attention.values())


@pytest.mark.parametrize("kind", ["learned_1d", "learned_2d", "sincos_2d", "sinusoid_1d"])
@pytest.mark.parametrize("place", ["stem", "every_layer", "every_layer_shared"])
def test_additive_kinds_are_added_where_the_config_says(kind, place) -> None:
    model = randomised(position=kind, position_at=place)
    tables = {"stem": 1, "every_layer": 3, "every_layer_shared": 1}[place]
    assert len(model.positions) == tables
    images = torch.randn(2, 3, 12, 8)
    with torch.no_grad():
        patches = model.embedding(images)
        z = torch.cat([model.class_token.expand(2, 1, 24), patches], dim=1)
        for layer, block in enumerate(model.blocks):
            adds = layer == 0 if place == "stem" else True
            table = model.positions[layer if place == "every_layer" else 0]()
            z = block(z + table if adds else z)
        torch.testing.assert_close(model.tokens(images), model.norm(z))


def test_shared_by_every_layer_has_exactly_one_table() -> None:
    shared = VisionTransformer(dataclasses.replace(CONFIG, position_at="every_layer_shared"))
    each = VisionTransformer(dataclasses.replace(CONFIG, position_at="every_layer"))
    count = lambda model: sum(name.startswith("positions.") for name, _ in model.named_parameters())  # noqa: E731
    assert (count(shared), count(each)) == (1, 3)


@pytest.mark.parametrize("position", ["none", "relative"])
def test_places_make_sense_for_additive_kinds_alone(position) -> None:
    with pytest.raises(
        UsageError, match=f"position_at 'every_layer' with position '{position}'; wanted one of learned_1d"
    ):
        dataclasses.replace(CONFIG, position=position, position_at="every_layer")


@pytest.mark.parametrize("class_row", [True, False])
@pytest.mark.parametrize("register_rows", [True, False])
@pytest.mark.parametrize("kind", [Learned1d, Learned2d])
def test_prefix_tokens_without_rows_get_zeros(kind, class_row, register_rows) -> None:
    config = dataclasses.replace(
        CONFIG, registers=2, position_class_row=class_row, position_register_rows=register_rows
    )
    position = kind(config)
    for parameter in position.parameters():
        nn.init.normal_(parameter)
    table = position()
    assert table.shape == (9, 24)
    assert bool(table[0].any()) is class_row
    assert bool(table[1:3].any()) is register_rows
    assert table[3:].any(dim=1).all()
    if kind is Learned1d:
        assert torch.equal(table[3:], position.table[config.prefix_rows :])


def test_registers_take_part_and_are_not_read() -> None:
    model = randomised(registers=4, pool="mean")
    images = torch.randn(2, 3, 12, 8)
    tokens = model.tokens(images)
    assert tokens.shape == (2, 10, 24)
    torch.testing.assert_close(model.features(images), tokens[:, 4:].mean(1))
    before = model(images)
    with torch.no_grad():
        model.registers.mul_(2)
    assert not torch.allclose(model(images), before)


def test_attention_pooling_equals_multi_head_attention_of_the_probe() -> None:
    model = randomised(pool="map")
    images = torch.randn(2, 3, 12, 8)
    pooling = model.pooling
    reference = nn.MultiheadAttention(24, 3, batch_first=True)
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([pooling.query.weight, pooling.key_value.weight]))
        reference.in_proj_bias.copy_(torch.cat([pooling.query.bias, pooling.key_value.bias]))
        reference.out_proj.load_state_dict(pooling.output.state_dict())
        tokens = model.tokens(images)
        x, _ = reference(pooling.probe.expand(2, 1, 24), tokens, tokens)
        wanted = (x + pooling.mlp(pooling.norm(x)))[:, 0]
        torch.testing.assert_close(model.features(images), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("place", ["stem", "every_layer", "every_layer_shared"])
def test_another_image_size_resamples_every_learned_kind(place, tmp_path) -> None:
    from vitrail.weights import resize_positions

    for kind in ("learned_1d", "learned_2d"):
        model = randomised(position=kind, position_at=place)
        vitrail.save_model(model, tmp_path / kind)
        larger = vitrail.load_model(tmp_path / kind, image_size=(20, 24))
        assert larger(torch.randn(1, 3, 20, 24)).shape == (1, 5)
        for old, new in zip(model.positions, larger.positions, strict=True):
            if kind == "learned_1d":
                assert torch.equal(new.table, resize_positions(old.table, (3, 2), (5, 6)))
            else:
                assert torch.equal(new.columns[0], old.columns[0])
                torch.testing.assert_close(new.columns[-1], old.columns[-1])
                torch.testing.assert_close(new.rows[2], old.rows[1])
                assert torch.equal(new.prefix, old.prefix)


def test_relative_tables_keep_their_centre_and_ends_when_resampled(tmp_path) -> None:
    model = randomised(position="relative")
    vitrail.save_model(model, tmp_path / "relative")
    larger = vitrail.load_model(tmp_path / "relative", image_size=(20, 24))
    old, new = model.blocks[0].attention.relative.table, larger.blocks[0].attention.relative.table
    assert new.shape == (2 * 31 - 1, 24)
    torch.testing.assert_close(new[30], old[6])
    torch.testing.assert_close(new[0], old[0])
    torch.testing.assert_close(new[-1], old[-1])
    assert larger(torch.randn(1, 3, 20, 24)).shape == (1, 5)
