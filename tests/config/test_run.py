"""Everything that decides a run, as one value."""

import dataclasses
import json

import pytest

from vitrail.config import (
    AugmentConfig,
    BitConfig,
    ConvLayerConfig,
    ConvStemConfig,
    DataConfig,
    ModelConfig,
    OptimConfig,
    ResNetConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
    VitConfig,
    from_json,
    preset,
    to_json,
)
from vitrail.errors import DataError

VIT = VitConfig(width=32, depth=2, num_heads=2, mlp_width=64)


def run(model: ModelConfig) -> RunConfig:
    return RunConfig(
        recipe="이름",
        model=model,
        preprocessing=preset("google"),
        data=DataConfig(data="digits"),
        augment=AugmentConfig(mixup=0.2),
        optim=OptimConfig(optimizer="sgd", lr=0.03, clip=1.0),
        schedule=ScheduleConfig(decay="steps", boundaries=(10, 20)),
        train=TrainConfig(batch_size=512, steps=100, loss="sigmoid"),
        start="model/",
    )


MODELS = [
    VIT,
    dataclasses.replace(VIT, backbone=ResNetConfig(blocks=(1, 2)), patch_size=1),
    dataclasses.replace(VIT, backbone=ConvStemConfig(layers=(ConvLayerConfig(channels=8),)), patch_size=1),
    BitConfig(blocks=(3, 4, 6, 3)),
]


@pytest.mark.parametrize("model", MODELS, ids=["vit", "hybrid", "stem", "bit"])
def test_every_kind_of_network_through_json_and_back(model) -> None:
    made = run(model)
    found = from_json(RunConfig, json.loads(json.dumps(to_json(made), allow_nan=False)), where="file")
    assert found == made
    assert type(found.model) is type(model)
    assert hash(found) == hash(made)


def test_a_run_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        run(VIT).recipe = "other"  # type: ignore[misc]


def test_what_is_wrong_is_named_with_its_place() -> None:
    values = to_json(run(VIT))
    values["optim"]["lr"] = "much"
    with pytest.raises(DataError, match=r"file, field 'optim', field 'lr': found 'much'"):
        from_json(RunConfig, values, where="file")
