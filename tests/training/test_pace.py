"""The stopwatch, with a clock that the tests move."""

import time

import pytest
import torch

from vitrail.training.loop import Pace

CPU = torch.device("cpu")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    # A wall clock that jumps is never looked at.
    monkeypatch.setattr(time, "time", lambda: pytest.fail("the wall clock was read"))
    return clock


def test_time_goes_on_from_the_processes_before(clock) -> None:
    pace = Pace(100.0)
    clock.now += 5
    assert pace.seconds() == pytest.approx(105)


def test_rate_and_wait_leave_pauses_out(clock) -> None:
    pace = Pace(0.0)
    for _ in range(4):
        with pace.waiting_for_data():
            clock.now += 0.5
        clock.now += 1.5
        pace.count(64)
    with pace.paused():
        clock.now += 50
    found = pace.measured(CPU)
    assert found == {"images_per_second": 32.0, "data_wait": 0.25, "seconds": 58.0}
    clock.now += 1
    pace.count(10)
    assert pace.measured(CPU)["images_per_second"] == 10


def test_a_pause_that_ends_in_an_error_is_still_a_pause(clock) -> None:
    pace = Pace(0.0)
    for measured in (pace.paused, pace.waiting_for_data):
        with pytest.raises(RuntimeError), measured():
            clock.now += 10
            raise RuntimeError
    pace.count(20)
    assert pace.measured(CPU) == {"images_per_second": 2.0, "data_wait": 1.0, "seconds": 20.0}


def test_no_time_at_all_divides_by_nothing(clock) -> None:
    pace = Pace(0.0)
    pace.count(8)
    assert pace.measured(CPU)["data_wait"] == 0


def asked(pace: Pace, clock: Clock, limit: float, seconds: list[float]) -> int | None:
    """Update after update, each as slow as said, until the pace is known: how many steps it then gives."""
    for step, each in enumerate(seconds, start=1):
        clock.now += each
        pace.count(1)
        if (found := pace.steps_within(limit, step)) is not None:
            return found
    return None


def test_steps_within_a_limit_leave_out_the_slow_first_ones(clock) -> None:
    found = asked(Pace(0.0), clock, 100, [20.0, *[0.5] * 60])
    # Eighty seconds at half a second each, less a little for evaluations; twenty would not even fit at the first speed.
    assert 145 <= found <= 161


def test_a_run_that_was_resumed_counts_the_time_before(clock) -> None:
    found = asked(Pace(50.0), clock, 100, [0.5] * 60)
    assert 85 <= found <= 100


def test_a_long_limit_waits_until_the_speed_is_known(clock) -> None:
    pace = Pace(0.0)
    assert asked(pace, clock, 3600, [0.1] * 50) is None
    clock.now += 300
    pace.count(1)
    assert pace.steps_within(3600, 51) > 51


def test_a_limit_that_is_over_leaves_one_step(clock) -> None:
    pace = Pace(1000.0)
    for _ in range(12):
        clock.now += 1
        pace.count(1)
    assert pace.steps_within(60, 12) is None
    clock.now += 10
    pace.count(1)
    assert pace.steps_within(60, 13) == 14


def test_minutes_since_a_save(clock) -> None:
    pace = Pace(500.0)
    clock.now += 120
    assert pace.minutes_since_save() == 2
    pace.saved()
    assert pace.minutes_since_save() == 0
