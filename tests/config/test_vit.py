import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.config import ConvLayerConfig, ConvStemConfig, ResNetConfig, VitConfig, pair, times
from vitrail.errors import UsageError


def vit(**changes: Any) -> VitConfig:
    return VitConfig(**{"width": 24, "depth": 3, "num_heads": 3, "mlp_width": 40, **changes})


def refusal(**changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        vit(**changes)
    return str(caught.value)


def test_the_defaults_are_those_of_the_original():
    config = vit()
    assert (config.patch_size, config.image_size, config.channels) == ((16, 16), (224, 224), 3)
    assert (config.pool, config.pre_logits, config.backbone, config.registers) == ("token", None, None, 0)
    assert (config.position, config.position_at, config.position_class_row) == ("learned_1d", "stem", True)
    assert (config.gelu, config.layer_norm_epsilon, config.position_std) == ("tanh", 1e-6, 0.02)
    assert (config.dropout, config.attention_dropout, config.stochastic_depth, config.head_bias) == (0, 0, 0, 0)
    assert config.num_classes == 1000


def test_a_config_cannot_be_changed_by_accident():
    with pytest.raises(dataclasses.FrozenInstanceError):
        vit().width = 48  # type: ignore[misc]


@pytest.mark.parametrize("field", ["image_size", "patch_size"])
@pytest.mark.parametrize(("given", "stored"), [(16, (16, 16)), ((32, 24), (32, 24)), ([32, 24], (32, 24))])
def test_sizes_are_one_number_or_a_pair(field: str, given: Any, stored: tuple[int, int]):
    assert getattr(vit(**{"image_size": 64, "patch_size": 8, field: given}), field) == stored


def test_equal_sizes_make_equal_configs_however_they_were_given():
    assert vit(image_size=64, patch_size=8) == vit(image_size=(64, 64), patch_size=[8, 8])
    assert hash(vit(image_size=64)) == hash(vit(image_size=[64, 64]))


def test_height_comes_before_width():
    config = vit(image_size=(64, 48), patch_size=(16, 8))
    assert config.grid == (4, 6)
    assert config.tokens == 25


def test_pixels_that_fill_no_patch_are_dropped():
    config = vit(image_size=384, patch_size=14)
    assert config.grid == (27, 27)
    assert config.tokens == 1 + 27 * 27
    assert config.image_size == (384, 384)


@given(st.tuples(*[st.integers(1, 600)] * 2), st.tuples(*[st.integers(1, 64)] * 2))
def test_the_grid_is_the_largest_that_fits(image: tuple[int, int], patch: tuple[int, int]):
    if image[0] < patch[0] or image[1] < patch[1]:
        assert "is smaller than" in refusal(image_size=image, patch_size=patch)
        return
    config = vit(image_size=image, patch_size=patch)
    for pixels, size, count in zip(image, patch, config.grid, strict=True):
        assert count * size <= pixels < (count + 1) * size


@pytest.mark.parametrize(
    ("pool", "class_row", "prefix_tokens", "prefix_rows"),
    [
        ("token", True, 1, 1),
        ("token", False, 1, 0),
        ("mean", True, 0, 0),
        ("mean", False, 0, 0),
        ("map", True, 0, 0),
        ("map", False, 0, 0),
    ],
)
def test_the_class_token_and_its_position_row(pool: str, class_row: bool, prefix_tokens: int, prefix_rows: int):
    config = vit(image_size=32, patch_size=8, pool=pool, position_class_row=class_row)
    assert config.prefix_tokens == prefix_tokens
    assert config.prefix_rows == prefix_rows
    assert config.tokens == prefix_tokens + 16


@pytest.mark.parametrize(
    ("pool", "register_rows", "prefix_rows"),
    [("token", False, 1), ("token", True, 5), ("mean", False, 0), ("mean", True, 4)],
)
def test_registers_come_after_the_class_token(pool: str, register_rows: bool, prefix_rows: int):
    config = vit(image_size=32, patch_size=8, pool=pool, registers=4, position_register_rows=register_rows)
    assert config.prefix_tokens == 4 + (pool == "token")
    assert config.prefix_rows == prefix_rows
    assert config.tokens == config.prefix_tokens + 16


@pytest.mark.parametrize(
    ("blocks", "patch", "image", "grid", "pixels"),
    [
        ((3, 4, 9), 1, 224, (14, 14), (16, 16)),
        ((3, 4, 6, 3), 1, 224, (7, 7), (32, 32)),
        ((3, 4, 6, 3), 1, (225, 200), (8, 7), (32, 32)),  # SAME padding rounds up
        ((3, 4, 9), 2, 224, (7, 7), (32, 32)),
        ((), 8, 224, (7, 7), (32, 32)),
    ],
)
def test_the_grid_of_a_hybrid(blocks: tuple[int, ...], patch: int, image: Any, grid: Any, pixels: Any):
    config = vit(backbone=ResNetConfig(blocks=blocks), patch_size=patch, image_size=image)
    assert config.grid == grid
    assert config.pixels_per_patch == pixels
    assert config.tokens == 1 + grid[0] * grid[1]


def test_the_grid_behind_a_convolutional_stem():
    layers = tuple(ConvLayerConfig(channels=channels) for channels in (48, 96, 192, 384))
    config = vit(backbone=ConvStemConfig(layers=layers), patch_size=1)
    assert config.grid == (14, 14)
    assert config.pixels_per_patch == (16, 16)


def test_an_image_smaller_than_a_patch_is_refused():
    message = refusal(image_size=8)
    assert message == "an image of 8x8 pixels is smaller than a 16x16 patch; wanted an image_size of at least 16x16."
    message = refusal(image_size=(32, 8), patch_size=(16, 12))
    assert message == "an image of 32x8 pixels is smaller than a 16x12 patch; wanted an image_size of at least 16x12."


def test_a_feature_map_smaller_than_a_patch_is_refused():
    message = refusal(image_size=32, patch_size=2, backbone=ResNetConfig(blocks=(3, 4, 6, 3)))
    assert message.startswith("the 1x1 feature map of an image of 32x32 pixels is smaller than a 2x2 patch; wanted")


def test_an_image_of_one_patch_is_accepted():
    assert vit(image_size=16).tokens == 2


def test_heads_that_do_not_divide_the_width_are_refused():
    assert refusal(width=24, num_heads=5) == "width 24 is not divisible by num_heads 5."


@pytest.mark.parametrize("field", ["width", "depth", "num_heads", "mlp_width", "channels", "pre_logits"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 24.0, True, "24", 2**24 + 1])
def test_counts_are_whole_numbers_within_reason(field: str, value: Any):
    assert refusal(**{field: value}).startswith(f"{field} is {value!r}; wanted a whole number from 1 to ")


def test_the_bounds_are_told_and_are_themselves_accepted():
    assert refusal(depth=1001) == "depth is 1001; wanted a whole number from 1 to 1,000."
    assert refusal(image_size=2**16 + 1) == "image_size is 65537; wanted a whole number from 1 to 65,536."
    assert vit(depth=1000, image_size=2**13, mlp_width=2**20).depth == 1000


@pytest.mark.parametrize("field", ["image_size", "patch_size"])
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (0, 0),
        (-16, -16),
        (True, True),
        ((0, 16), 0),
        ((16, -1), -1),
        ((16.0, 16), 16.0),
        ((16, True), True),
        (("16", "16"), "16"),
        ((16, None), None),
    ],
    ids=repr,
)
def test_sides_are_whole_numbers(field: str, value: Any, named: Any):
    assert refusal(**{field: value}) == f"{field} is {named!r}; wanted a whole number from 1 to 65,536."


@pytest.mark.parametrize("field", ["image_size", "patch_size"])
@pytest.mark.parametrize("value", [(), (16,), (16, 16, 16), [16]], ids=repr)
def test_sizes_have_one_or_two_sides(field: str, value: Any):
    assert refusal(**{field: value}) == f"{field} is {value!r}; wanted one number or (height, width)."


@pytest.mark.parametrize("field", ["num_classes", "registers"])
@pytest.mark.parametrize("value", [-1, True, 1.5, "10", None], ids=repr)
def test_outputs_and_registers_are_whole_numbers_from_zero(field: str, value: Any):
    assert refusal(**{field: value}) == f"{field} is {value!r}; wanted a whole number from 0 to 1,048,576."


@pytest.mark.parametrize("field", ["image_size", "patch_size"])
@pytest.mark.parametrize("value", ["224", 1.5, None, True], ids=repr)
def test_a_size_that_is_no_number_is_refused(field: str, value: Any):
    assert refusal(**{field: value}) == f"{field} is {value!r}; wanted a whole number from 1 to 65,536."


@pytest.mark.parametrize("field", ["layer_norm_epsilon", "position_std"])
@pytest.mark.parametrize("value", [-1e-6, math.nan, math.inf, "x"], ids=repr)
def test_epsilons_are_finite_and_not_negative(field: str, value: Any):
    assert refusal(**{field: value}) == f"{field} is {value!r}; wanted a number from 0 up."


def test_no_classes_are_accepted():
    assert vit(num_classes=0).num_classes == 0


@pytest.mark.parametrize("field", ["dropout", "attention_dropout", "stochastic_depth"])
@pytest.mark.parametrize("value", [-0.1, 1, 1.0, 2.5, float("nan"), float("inf")])
def test_chances_are_below_one(field: str, value: float):
    assert refusal(**{field: value}) == f"{field} is {value}; wanted a chance in [0, 1)."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pool": "tokens"}, "Unknown pool 'tokens'. Did you mean 'token'?"),
        ({"pool": "gap"}, "Unknown pool 'gap'. Did you mean 'map'?"),
        ({"pool": None}, "Unknown pool None. Choose from token, mean"),
        ({"position": "learned1d"}, "Unknown position 'learned1d'. Did you mean 'learned_1d'?"),
        ({"position": "learned2d"}, "Unknown position 'learned2d'. Did you mean 'learned_2d'?"),
        ({"position": "xyz"}, "Unknown position 'xyz'. Choose from none, learned_1d, learned_2d, "),
        ({"position_at": "every-layer"}, "Unknown position_at 'every-layer'. Did you mean 'every_layer'?"),
        ({"gelu": "Erf"}, "Unknown gelu 'Erf'. Did you mean 'erf'?"),
        ({"gelu": "quick"}, "Unknown gelu 'quick'. Choose from tanh, erf."),
    ],
)
def test_unknown_names_are_refused(changes: dict[str, Any], message: str):
    assert refusal(**changes).startswith(message)


@pytest.mark.parametrize(
    ("position", "good", "bad", "divisor"),
    [("sincos_2d", 20, 18, 4), ("learned_2d", 18, 21, 2), ("sinusoid_1d", 18, 21, 2)],
)
def test_positions_that_halve_the_width_need_one_that_can_be_halved(position: str, good: int, bad: int, divisor: int):
    message = refusal(width=bad, num_heads=1, position=position)
    assert message == f"position {position!r} with width {bad}; wanted a multiple of {divisor}."
    assert vit(width=good, num_heads=1, position=position).width == good


@pytest.mark.parametrize("position", ["none", "learned_1d", "relative"])
def test_other_positions_take_any_width(position: str):
    assert vit(width=21, num_heads=3, position=position).width == 21


@pytest.mark.parametrize("position", ["none", "relative"])
@pytest.mark.parametrize("place", ["every_layer", "every_layer_shared"])
def test_only_positions_that_are_added_can_be_added_in_every_layer(position: str, place: str):
    message = refusal(position=position, position_at=place)
    assert message.startswith(f"position_at {place!r} with position {position!r}; wanted one of learned_1d, ")
    assert vit(position="learned_2d", position_at=place).position_at == place


@given(st.integers(1, 2**16))
def test_one_number_is_a_square_pair(side: int):
    assert pair(side, "size") == pair((side, side), "size") == (side, side)


def test_a_bad_pair_is_named():
    with pytest.raises(UsageError, match=r"^old_grid is 0; wanted"):
        pair((3, 0), "old_grid")


def test_sizes_are_written_height_first():
    assert times((224, 160)) == "224x160"
