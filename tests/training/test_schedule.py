"""The learning rate: the original's numbers, its hyper-rule's form, and odd lengths."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vitrail.training
from vitrail.config import OptimConfig, ScheduleConfig
from vitrail.errors import UsageError
from vitrail.training.schedule import learning_rate, resolved


def curves(fixtures) -> list[tuple[str, np.ndarray, np.ndarray]]:
    with np.load(fixtures / "schedules" / "vit_jax_schedule.npz") as file:
        return [(name, file["steps"], file[name]) for name in file.files if name != "steps"]


def test_the_originals_schedules_to_the_last_bits(fixtures) -> None:
    found = curves(fixtures)
    assert len(found) == 6
    for name, steps, wanted in found:
        decay, total, warmup, base = re.fullmatch(r"(\w+)_total(\d+)_warm(\d+)_base(.+)", name).groups()
        schedule = ScheduleConfig(decay=decay, lr=float(base), steps=int(total), warmup_steps=int(warmup))
        came = [learning_rate(schedule, int(step)) for step in steps]
        # The fixture was computed in float32; ours is float64.
        np.testing.assert_allclose(came, wanted, rtol=0, atol=1e-8, err_msg=name)


def test_the_public_name() -> None:
    assert vitrail.training.learning_rate is learning_rate


def test_the_ends_of_each_curve() -> None:
    linear = ScheduleConfig(decay="linear", lr=1e-3, steps=100, warmup_steps=10)
    assert learning_rate(linear, 0) == 0
    assert learning_rate(linear, 10) == 1e-3
    assert learning_rate(linear, 100) == pytest.approx(1e-5, rel=1e-12)
    assert learning_rate(linear, 1000) == learning_rate(linear, 100)
    cosine = ScheduleConfig(decay="cosine", lr=1e-3, steps=100)
    assert learning_rate(cosine, 0) == 1e-3
    assert learning_rate(cosine, 50) == pytest.approx(5e-4, rel=1e-12)
    assert learning_rate(cosine, 100) == pytest.approx(0, abs=1e-18)
    constant = ScheduleConfig(decay="constant", lr=1e-3, steps=100, warmup_steps=4)
    assert [learning_rate(constant, step) for step in (0, 1, 4, 99, 200)] == [0, 2.5e-4, 1e-3, 1e-3, 1e-3]


def test_steps_divide_after_and_not_at_a_boundary() -> None:
    schedule = ScheduleConfig(decay="steps", lr=0.03, steps=500, warmup_steps=100, boundaries=(200, 300, 400))
    assert learning_rate(schedule, 50) == 0.015
    assert learning_rate(schedule, 200) == 0.03
    assert learning_rate(schedule, 201) == 0.03 / 10
    assert learning_rate(schedule, 301) == 0.03 / 10 / 10


def test_a_run_shorter_than_its_warm_up_never_divides_by_zero() -> None:
    for decay in ("linear", "cosine", "constant", "steps"):
        for steps in (1, 9, 10, 11):
            schedule = ScheduleConfig(decay=decay, lr=1.0, steps=steps, warmup_steps=10, boundaries=(3,))
            assert all(math.isfinite(learning_rate(schedule, step)) for step in range(steps + 2))
            assert learning_rate(schedule, 1) == pytest.approx(0.1)


@given(
    decay=st.sampled_from(["linear", "cosine", "constant"]),
    steps=st.integers(1, 10**6),
    warmup=st.integers(0, 10**4),
    step=st.integers(0, 10**7),
)
def test_the_rate_is_never_negative_and_never_above_the_base(decay, steps, warmup, step) -> None:
    schedule = ScheduleConfig(decay=decay, lr=3e-3, steps=steps, warmup_steps=warmup)
    assert 0 <= learning_rate(schedule, step) <= 3e-3 * (1 + 1e-12)


def test_a_schedule_takes_base_and_length_from_its_run() -> None:
    optim = OptimConfig(optimizer="sgd", lr=0.25)
    made = resolved(ScheduleConfig(decay="cosine", warmup_share=0.1, warmup_steps=7), optim, 1000)
    assert (made.lr, made.steps, made.warmup_steps) == (0.25, 1000, 100)
    assert resolved(ScheduleConfig(decay="cosine", warmup_steps=7), optim, 1000).warmup_steps == 7


@pytest.mark.parametrize("missing", [{"lr": 0.1}, {"steps": 5}, {}])
def test_half_a_schedule_is_refused(missing) -> None:
    with pytest.raises(UsageError, match="no base learning rate or no length"):
        learning_rate(ScheduleConfig(decay="cosine", **missing), 0)
