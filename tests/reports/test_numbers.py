"""Axes, shares and times."""

import math

import numpy as np
import pytest

from vitrail.reports.axes import linear_axis, loss_axis, share_axis, step_axis, tick_text
from vitrail.reports.chart import thinned
from vitrail.reports.confusion import shortened, worst_pairs
from vitrail.reports.numbers import duration, percent


@pytest.mark.parametrize("values", [[0.1, 2.3], [5.0], [0.0], [-3.0, 3.0], [1e-9, 2e-9], [1e9, 1.2e9], []])
def test_an_axis_holds_its_values_between_round_ends(values) -> None:
    axis = linear_axis(values)
    assert axis.low < axis.high
    assert all(axis.low - 1e-12 <= value <= axis.high + 1e-12 for value in values)
    assert 2 <= len(axis.ticks) <= 8
    assert (axis.place(axis.low), axis.place(axis.high)) == (0, 1)
    assert axis.place(axis.high + 5) == 1


def test_a_wide_range_of_losses_is_logarithmic() -> None:
    axis = loss_axis([0.02, 700.0])
    assert axis.is_log
    assert axis.place(1.0) - axis.place(0.1) == pytest.approx(axis.place(10.0) - axis.place(1.0))
    assert not loss_axis([0.0, 700.0]).is_log
    assert not loss_axis([0.5, 2.0]).is_log


def test_shares_never_go_beyond_all() -> None:
    assert share_axis([0.97, 0.999]).high <= 1
    assert share_axis([1.0, 1.0]).low < 1


def test_steps_end_where_the_run_ends() -> None:
    axis = step_axis(405)
    assert (axis.low, axis.high) == (0, 405)
    assert axis.ticks == (0, 100, 200, 300, 400)
    assert all(tick == round(tick) for tick in step_axis(2).ticks)


def test_ticks_are_short() -> None:
    assert [tick_text(value) for value in (0, 0.25, 999, 1500, 2e6)] == ["0", "0.25", "999", "1.5k", "2M"]


def test_what_is_not_all_is_not_rounded_up_to_it() -> None:
    assert percent(0.9999) == "99.9 %"
    assert percent(1.0) == "100.0 %"
    assert percent(0.99996, 2) == "99.99 %"
    assert percent(0.99994, 2) == "99.99 %"
    assert percent(0.93036) == "93.0 %"


def test_times() -> None:
    told = [duration(seconds) for seconds in (0.04, 7.02, 59, 83, 1800.4, 7260)]
    assert told == ["0.0 s", "7.0 s", "59 s", "1 min 23 s", "30 min", "2 h 01 min"]


def test_thinning_keeps_the_mean_and_the_end() -> None:
    points = [(float(step), math.sin(step)) for step in range(1600)]
    kept = thinned(points)
    assert len(kept) == 400
    assert kept[-1][0] == 1599
    assert sum(value for _, value in kept) / 400 == pytest.approx(sum(value for _, value in points) / 1600)
    assert thinned(points[:400]) == points[:400]


def test_names_are_cut_by_columns() -> None:
    assert shortened("cat", 3) == "cat"
    assert shortened("고양이와 강아지", 8) == "고양이…"
    assert shortened("abcdefghij", 5) == "abcd…"


def test_pairs_are_ranked_by_images_then_share() -> None:
    table = np.array([[5, 2, 0], [0, 1, 2], [1, 0, 9]])
    pairs = [(pair.true, pair.guess, pair.images) for pair in worst_pairs(table)]
    assert pairs == [(1, 2, 2), (0, 1, 2), (2, 0, 1)]
