import dataclasses
import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.config import (
    PRESETS,
    BitConfig,
    ConvLayerConfig,
    ConvStemConfig,
    OptimConfig,
    Preprocessing,
    ResNetConfig,
    ScheduleConfig,
    TrainConfig,
    VitConfig,
    from_json,
    replace,
    to_json,
)
from vitrail.errors import DataError, UsageError
from vitrail.zoo import ZOO

VIT = {"width": 24, "depth": 3, "num_heads": 3, "mlp_width": 40}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    share: float
    flag: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    name: str = "default"
    size: int | tuple[int, int] = 1
    either: Literal["one", 2] = "one"
    maybe: Inner | None = None
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)


chances = st.floats(0, 1, exclude_max=True)
finite = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(1, 1000)


resnets = st.builds(
    ResNetConfig,
    blocks=st.lists(st.integers(1, 99), max_size=4).map(tuple),
    width=st.sampled_from([32, 64, 96]),
    standardisation=st.sampled_from(["std", "variance"]),
    group_norm_epsilon=st.floats(1e-12, 1),
)
stem_layers = st.builds(
    ConvLayerConfig, channels=counts, kernel_size=st.sampled_from([1, 3, 5, 7]), stride=st.integers(1, 2)
)
stems = st.builds(
    ConvStemConfig,
    layers=st.lists(stem_layers, min_size=1, max_size=3).map(tuple),
    batch_norm_epsilon=st.floats(1e-12, 1),
)


@st.composite
def vit_configs(draw: st.DrawFn) -> VitConfig:
    heads = draw(st.integers(1, 16))
    patch = draw(st.tuples(st.integers(1, 32), st.integers(1, 32)))
    backbone = draw(st.none() | resnets | stems)
    stride = backbone.stride if backbone else 1
    position = draw(st.sampled_from(["none", "learned_1d", "learned_2d", "relative", "sincos_2d", "sinusoid_1d"]))
    additive = position not in ("none", "relative")
    return VitConfig(
        width=4 * heads * draw(st.integers(1, 64)),
        depth=draw(counts),
        num_heads=heads,
        mlp_width=draw(counts),
        patch_size=patch,
        image_size=(patch[0] * stride + draw(st.integers(0, 999)), patch[1] * stride + draw(st.integers(0, 999))),
        backbone=backbone,
        channels=draw(counts),
        num_classes=draw(st.integers(0, 30_000)),
        pool=draw(st.sampled_from(["token", "mean", "map"])),
        registers=draw(st.integers(0, 8)),
        pre_logits=draw(st.none() | counts),
        position=position,
        position_at=draw(st.sampled_from(["stem", "every_layer", "every_layer_shared"])) if additive else "stem",
        position_class_row=draw(st.booleans()),
        position_register_rows=draw(st.booleans()),
        position_std=draw(st.floats(0, 1)),
        dropout=draw(chances),
        attention_dropout=draw(chances),
        stochastic_depth=draw(chances),
        gelu=draw(st.sampled_from(["tanh", "erf"])),
        layer_norm_epsilon=draw(st.floats(1e-12, 1)),
        head_bias=draw(finite),
    )


@st.composite
def preprocessings(draw: st.DrawFn) -> Preprocessing:
    channels = draw(st.integers(1, 5))
    return Preprocessing(
        mean=draw(st.tuples(*[finite] * channels)),
        std=draw(st.tuples(*[st.floats(1e-6, 1e6)] * channels)),
        interpolation=draw(st.sampled_from(["bilinear", "bicubic"])),
        crop=draw(st.none() | st.floats(0.01, 1)),
        antialias=draw(st.booleans()),
        squash=draw(st.booleans()),
    )


def through_text(config: Any) -> Any:
    return from_json(type(config), json.loads(json.dumps(to_json(config))), where="test")


def refusal(kind: type, values: object) -> str:
    with pytest.raises(DataError) as caught:
        from_json(kind, values, where="config.json")
    return str(caught.value)


@given(vit_configs())
def test_network_round_trip(config: VitConfig):
    assert through_text(config) == config


@given(preprocessings())
def test_preprocessing_round_trip(config: Preprocessing):
    assert through_text(config) == config


@pytest.mark.parametrize("config", [row.config for row in ZOO.values()], ids=list(ZOO))
def test_zoo_round_trip(config: Any):
    assert through_text(config) == config


@pytest.mark.parametrize(
    "config",
    [
        *PRESETS.values(),
        BitConfig(blocks=(1, 2, 3, 4), width=96, standardisation="std", pool_padding="minus_infinity"),
        OptimConfig(optimizer="adam", lr=1e-3, weight_decay=0.1, betas=(0.9, 0.95), clip=1.0),
        ScheduleConfig(decay="cosine", warmup_steps=10),
        TrainConfig(batch_size=8, loss="softmax", steps=3),
        Outer(inner=Inner(share=0.5), size=(3, 4), either=2, maybe=Inner(share=1.0, flag=True), notes={"a": [1]}),
    ],
    ids=repr,
)
def test_other_round_trips(config: Any):
    assert through_text(config) == config


def test_json_holds_plain_values_only():
    assert to_json(Outer(inner=Inner(share=0.5), size=(3, 4))) == {
        "inner": {"share": 0.5, "flag": False},
        "name": "default",
        "size": [3, 4],
        "either": "one",
        "maybe": None,
        "notes": {},
    }


def test_fields_left_out_take_their_defaults():
    assert from_json(VitConfig, VIT, where="test") == VitConfig(**VIT)


def test_a_whole_number_does_for_a_float():
    inner = from_json(Inner, {"share": 1}, where="test")
    assert inner.share == 1.0
    assert type(inner.share) is float


def test_an_unknown_field_is_an_error_with_a_suggestion():
    message = refusal(VitConfig, {**VIT, "dropuot": 0.1})
    assert message == "config.json: Unknown field 'dropuot'. Did you mean 'dropout'?"


def test_an_unknown_field_like_no_other_lists_the_fields():
    assert refusal(Inner, {"share": 0.5, "zzz": 1}) == "config.json: Unknown field 'zzz'. Choose from share, flag."


@pytest.mark.parametrize("field", list(VIT))
def test_a_missing_field_is_named(field: str):
    values = {name: value for name, value in VIT.items() if name != field}
    assert refusal(VitConfig, values) == f"config.json: the field {field!r} is missing."


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("width", True, "a value of type int"),
        ("width", 24.0, "a value of type int"),
        ("width", "24", "a value of type int"),
        ("width", None, "a value of type int"),
        ("dropout", "0.1", "a value of type float"),
        ("dropout", False, "a value of type float"),
        ("position_class_row", 1, "a value of type bool"),
        ("position_class_row", "true", "a value of type bool"),
        ("pre_logits", "768", "a value of type int"),
        ("patch_size", "16", "a list"),
        ("patch_size", 16, "a list"),
        ("patch_size", {"height": 16}, "a list"),
        ("patch_size", [16, "16"], "a value of type int"),
        ("gelu", "relu", "one of 'tanh', 'erf'"),
        ("gelu", 1, "one of 'tanh', 'erf'"),
        ("gelu", None, "one of 'tanh', 'erf'"),
        ("gelu", ["tanh"], "one of 'tanh', 'erf'"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_field(field: str, value: object, wanted: str):
    shown = value[1] if field == "patch_size" and isinstance(value, list) else value
    message = refusal(VitConfig, {**VIT, field: value})
    assert message == f"config.json, field {field!r}: found {shown!r}; wanted {wanted}."


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_tuple_of_the_wrong_length_is_refused(length: int):
    message = refusal(VitConfig, {**VIT, "patch_size": [16] * length})
    assert message == f"config.json, field 'patch_size': found {length} values; wanted 2."


def test_a_literal_does_not_take_an_equal_value_of_another_type():
    assert "wanted one of 'one', 2" in refusal(Outer, {"inner": {"share": 1.0}, "either": 2.0})


@pytest.mark.parametrize("values", [None, [], [VIT], "text", 3, True])
def test_what_is_not_an_object_is_refused(values: object):
    message = refusal(VitConfig, values)
    assert message == f"config.json: found {values!r}; wanted an object with the fields of VitConfig."


def test_a_long_value_is_shortened():
    message = refusal(VitConfig, ["x" * 1000])
    assert message.startswith("config.json: found ['xxx")
    assert len(message) < 200


def test_a_mistake_in_a_nested_object_says_where_it_is():
    assert refusal(Outer, {"inner": {"share": "half"}}) == (
        "config.json, field 'inner', field 'share': found 'half'; wanted a value of type float."
    )
    assert refusal(Outer, {"inner": 3}).startswith("config.json, field 'inner': found 3; wanted an object")
    assert refusal(Outer, {"inner": {"share": 1.0}, "notes": []}) == (
        "config.json, field 'notes': found []; wanted an object."
    )


def test_a_union_takes_each_of_its_kinds_and_no_other():
    inner = {"share": 1.0}
    assert from_json(Outer, {"inner": inner, "size": 3}, where="test").size == 3
    assert from_json(Outer, {"inner": inner, "size": [3, 4]}, where="test").size == (3, 4)
    assert from_json(Outer, {"inner": inner, "maybe": None}, where="test").maybe is None
    assert from_json(Outer, {"inner": inner, "maybe": inner}, where="test").maybe == Inner(share=1.0)
    assert "field 'size': found 'big'" in refusal(Outer, {"inner": inner, "size": "big"})
    assert "field 'maybe': found 3" in refusal(Outer, {"inner": inner, "maybe": 3})


def test_the_kind_of_a_backbone_says_which_it_is():
    tagged = {"kind": "resnet", "blocks": [1]}
    resnet = from_json(VitConfig, {**VIT, "patch_size": [1, 1], "backbone": tagged}, where="test").backbone
    assert resnet == ResNetConfig(blocks=(1,))
    tagged = {"kind": "conv_stem", "layers": [{"channels": 8}]}
    stem = from_json(VitConfig, {**VIT, "patch_size": [1, 1], "backbone": tagged}, where="test").backbone
    assert stem == ConvStemConfig(layers=(ConvLayerConfig(channels=8),))


def test_a_backbone_without_a_known_kind_is_refused():
    assert refusal(VitConfig, {**VIT, "backbone": {"blocks": [1]}}) == (
        "config.json, field 'backbone': Unknown kind None. Choose from resnet, conv_stem."
    )
    assert refusal(VitConfig, {**VIT, "backbone": {"kind": "resnt"}}) == (
        "config.json, field 'backbone': Unknown kind 'resnt'. Did you mean 'resnet'?"
    )


def test_a_number_too_large_for_a_float_is_refused():
    assert "wanted a value of type float" in refusal(VitConfig, {**VIT, "dropout": 10**400})


def test_a_mistake_in_a_backbone_is_told_for_its_kind():
    assert refusal(VitConfig, {**VIT, "backbone": {"kind": "resnet", "blocks": [1], "widht": 64}}) == (
        "config.json, field 'backbone': Unknown field 'widht'. Did you mean 'width'?"
    )
    assert refusal(VitConfig, {**VIT, "backbone": {"kind": "resnet", "blocks": [0]}}) == (
        "config.json, field 'backbone': backbone blocks is 0; wanted a whole number from 1 to 1,000."
    )
    assert refusal(VitConfig, {**VIT, "backbone": {"kind": "conv_stem"}}) == (
        "config.json, field 'backbone': the field 'layers' is missing."
    )


def test_values_of_the_right_type_that_do_not_fit_name_the_file_too():
    message = refusal(VitConfig, {**VIT, "num_heads": 5})
    assert message == "config.json: width 24 is not divisible by num_heads 5."


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from([field.name for field in dataclasses.fields(VitConfig)])


@given(st.dictionaries(names, json_values, max_size=4))
def test_whatever_a_file_holds_gives_a_config_or_an_error_for_people(changes: dict[str, Any]):
    try:
        config = from_json(VitConfig, {**VIT, **changes}, where="config.json")
    except DataError as error:
        assert str(error).startswith("config.json")
    else:
        assert all(type(getattr(config, name)) is type(getattr(VitConfig(**VIT), name)) for name in VIT)


def test_overrides_change_their_fields_and_no_other():
    old = VitConfig(**VIT)
    new = replace(old, {"dropout": 0.1, "image_size": 64}, kind="model")
    assert new == VitConfig(**VIT, dropout=0.1, image_size=(64, 64))
    assert old == VitConfig(**VIT)


def test_no_overrides_give_an_equal_config():
    assert replace(VitConfig(**VIT), {}, kind="model") == VitConfig(**VIT)


def test_an_unknown_override_is_an_error_with_a_suggestion():
    with pytest.raises(UsageError, match=r"^Unknown model field 'depht'\. Did you mean 'depth'\?$"):
        replace(VitConfig(**VIT), {"depht": 4}, kind="model")


def test_overrides_are_validated():
    with pytest.raises(UsageError, match="width 24 is not divisible by num_heads 7"):
        replace(VitConfig(**VIT), {"num_heads": 7}, kind="model")
