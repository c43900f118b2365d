"""Optimiser, schedule and length: what is refused, and JSON."""

import json
import math

import pytest

from vitrail.config import OptimConfig, ScheduleConfig, TrainConfig, from_json, replace, to_json
from vitrail.errors import DataError, UsageError

OPTIM = {"optimizer": "adam", "lr": 1e-3}
SCHEDULE = {"decay": "cosine"}
TRAIN = {"batch_size": 8, "loss": "softmax", "epochs": 3}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"optimizer": "adamw"}, r"Unknown optimizer 'adamw'. Did you mean 'adam'"),
        ({"lr": -1.0}, "lr is -1.0"),
        ({"lr": math.nan}, "lr is nan"),
        ({"lr": math.inf}, "lr is inf"),
        ({"lr": "fast"}, "lr is 'fast'"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"momentum": 1.0}, "momentum is 1.0; wanted a chance"),
        ({"betas": (0.9, 1.0)}, "a beta is 1.0"),
        ({"betas": (-0.1, 0.9)}, "a beta is -0.1"),
        ({"clip": 0.0}, "clip is 0.0; wanted a number above 0, or none"),
        ({"clip": math.nan}, "clip is nan"),
        ({"layer_decay": 0.0}, "layer_decay is 0.0"),
        ({"layer_decay": 1.1}, "layer_decay is 1.1"),
        ({"freeze": -2}, "freeze is -2; wanted a number of blocks, or -1"),
    ],
)
def test_an_optimiser_that_makes_no_sense(change, told) -> None:
    with pytest.raises(UsageError, match=told):
        OptimConfig(**(OPTIM | change))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"decay": "exponential"}, "Unknown decay 'exponential'"),
        ({"warmup_steps": -1}, "warmup_steps is -1"),
        ({"warmup_steps": 0.5}, "warmup_steps is 0.5"),
        ({"warmup_share": 1.0}, "warmup_share is 1.0"),
        ({"linear_end": -1e-5}, "linear_end is -1e-05"),
        ({"boundaries": (3, 2)}, "boundaries are .3, 2.; wanted steps in rising order"),
    ],
)
def test_a_schedule_that_makes_no_sense(change, told) -> None:
    with pytest.raises(UsageError, match=told):
        ScheduleConfig(**(SCHEDULE | change))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": True}, "batch_size is True"),
        ({"batch_size": 2.0}, "batch_size is 2.0"),
        ({"loss": "hinge"}, "Unknown loss 'hinge'"),
        ({"precision": "float16"}, "Unknown precision 'float16'"),
        ({"keep": "all"}, "Unknown keep 'all'"),
        ({"steps": 3}, "epochs is 3 and steps is 3; wanted exactly one"),
        ({"epochs": None}, "epochs is None and steps is None; wanted exactly one"),
        ({"epochs": 0}, "epochs is 0"),
        ({"micro_batch": 0}, "micro_batch is 0"),
        ({"evaluate_every": 0}, "evaluate_every is 0"),
        ({"log_every": 0}, "log_every is 0"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"average": 1.0}, "average is 1.0"),
        ({"average": -0.1}, "average is -0.1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"save_minutes": 0.0}, "save_minutes is 0.0"),
        ({"save_minutes": math.nan}, "save_minutes is nan"),
        ({"time_limit": 0.0}, "time_limit is 0.0"),
        ({"time_limit": math.nan}, "time_limit is nan"),
    ],
)
def test_a_run_that_makes_no_sense(change, told) -> None:
    with pytest.raises(UsageError, match=told):
        TrainConfig(**(TRAIN | change))


@pytest.mark.parametrize("seed", [0, 42, 2**20])
def test_small_seeds(seed) -> None:
    assert TrainConfig(**TRAIN, seed=seed).seed == seed


@pytest.mark.parametrize("seed", [20_241_115, 2**31 - 1, 2**32, 2**63 - 1])
def test_seeds_that_people_use(seed) -> None:
    assert TrainConfig(**TRAIN, seed=seed).seed == seed


@pytest.mark.parametrize(
    "made",
    [
        OptimConfig(**OPTIM, clip=1.0, betas=(0.8, 0.95), freeze=-1),
        ScheduleConfig(decay="steps", boundaries=(1, 2, 3), warmup_share=0.25),
        TrainConfig(**TRAIN, time_limit=2.5, micro_batch=4, precision="bfloat16", keep="last"),
    ],
)
def test_through_json_and_back(made) -> None:
    assert from_json(type(made), json.loads(json.dumps(to_json(made))), where="file") == made


def test_changes_by_name_suggest_the_nearest() -> None:
    optim = OptimConfig(**OPTIM)
    assert replace(optim, {"lr": 3}, kind="optim").lr == 3.0
    with pytest.raises(UsageError, match=r"Unknown optim field 'weightdecay'. Did you mean 'weight_decay'"):
        replace(optim, {"weightdecay": 0.1}, kind="optim")
    with pytest.raises(DataError, match="wanted 2"):
        from_json(OptimConfig, OPTIM | {"betas": [0.9]}, where="file")
