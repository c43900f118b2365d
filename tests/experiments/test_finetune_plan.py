from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.conftest import config

from vitrail.config import RunConfig, from_json, to_json
from vitrail.errors import UsageError
from vitrail.experiments.finetune import Plan, Splits, final_runs, make_plan, sweep_runs

TEST, VAL, BOTH, NONE = (
    Splits(val=False, test=True),
    Splits(val=True, test=False),
    Splits(val=True, test=True),
    Splits(val=False, test=False),
)
RATES = (0.003, 0.01, 0.03)


@pytest.fixture
def base(source: Path, data: Path) -> RunConfig:
    return config(source, data)


def with_held_out(base: RunConfig, share: float | None) -> RunConfig:
    return replace(base, data=replace(base.data, held_out=share))


def test_the_sweep_comes_first_and_never_opens_the_test_split(base: RunConfig):
    plan = make_plan(base, rates=RATES, seeds=3, splits=TEST)
    sweep, final = sweep_runs(plan), final_runs(plan, 0.01)
    assert [run.folder for run in sweep] == ["sweep/lr-0.003", "sweep/lr-0.01", "sweep/lr-0.03"]
    assert [run.config.optim.lr for run in sweep] == list(RATES)
    assert all(not run.config.data.test and run.config.data.held_out == 0.2 for run in sweep)
    assert [run.folder for run in final] == ["seed-0", "seed-1", "seed-2"]
    assert [run.config.train.seed for run in final] == [0, 1, 2]
    assert all(run.config.data.test and run.config.data.held_out == 0 for run in final)
    assert {run.config.optim.lr for run in final} == {0.01}
    assert [run.number for run in (*sweep, *final)] == list(range(1, plan.runs + 1))


def test_one_rate_needs_no_sweep(base: RunConfig):
    plan = make_plan(base, rates=(0.01, 0.01), seeds=2, splits=TEST)
    assert sweep_runs(plan) == []
    assert plan.runs == 2


@pytest.mark.parametrize(
    ("splits", "share", "rates", "left_out", "measure"),
    [
        (TEST, 0.2, RATES, 0, "test"),
        (TEST, None, RATES, 0, "test"),
        (BOTH, None, RATES, None, "test"),
        (VAL, None, RATES, None, "val"),
        (VAL, 0.2, RATES, None, "val"),
        (NONE, 0.2, RATES, 0, "sweep"),
        (NONE, None, RATES, 0, "sweep"),
        (NONE, 0.2, RATES[:1], 0.2, "held_out"),
        (NONE, None, RATES[:1], 0.1, "held_out"),
        (NONE, 0.0, RATES[:1], 0, "nothing"),
        (TEST, 0.0, RATES[:1], 0, "test"),
    ],
)
def test_what_the_final_runs_leave_out_and_are_measured_on(
    base: RunConfig, splits: Splits, share: float | None, rates: tuple[float, ...], left_out, measure: str
):
    plan = make_plan(with_held_out(base, share), rates=rates, seeds=1, splits=splits)
    assert (plan.final_held_out, plan.measure) == (left_out, measure)
    assert plan.config.data.held_out is not None or splits.val


def test_only_a_rate_that_was_chosen_on_val_makes_val_too_good(base: RunConfig):
    def chooses(share: float | None, rates: tuple[float, ...]) -> bool:
        return make_plan(with_held_out(base, share), rates=rates, seeds=1, splits=VAL).chooses_on_val

    assert chooses(None, RATES)
    assert not chooses(0.2, RATES)
    assert not chooses(None, RATES[:1])


def test_a_time_limit_is_shared_out(base: RunConfig):
    limited = replace(base, train=replace(base.train, time_limit=10.0))
    plan = make_plan(limited, rates=RATES, seeds=2, splits=TEST)
    assert {run.config.train.time_limit for run in (*sweep_runs(plan), *final_runs(plan, 0.01))} == {2.0}


def test_seeds_count_from_the_one_that_is_given(base: RunConfig):
    seeded = replace(base, train=replace(base.train, seed=7))
    assert make_plan(seeded, rates=RATES, seeds=2, splits=TEST).seeds == (7, 8)


def test_a_plan_survives_its_way_through_a_file(base: RunConfig):
    plan = make_plan(base, rates=RATES, seeds=3, splits=BOTH)
    assert from_json(Plan, to_json(plan), where="here") == plan


def test_what_makes_no_sense_is_refused(base: RunConfig):
    with pytest.raises(UsageError, match="nothing to choose a learning rate on"):
        make_plan(with_held_out(base, 0.0), rates=RATES, seeds=1, splits=TEST)
    with pytest.raises(UsageError, match="seeds is 0"):
        make_plan(base, rates=RATES, seeds=0, splits=TEST)
    with pytest.raises(UsageError, match="no learning rate"):
        make_plan(base, rates=(), seeds=1, splits=TEST)
    best = replace(base, train=replace(base.train, keep="best"))
    with pytest.raises(UsageError, match="keep is 'best'"):
        make_plan(best, rates=RATES, seeds=1, splits=TEST)
