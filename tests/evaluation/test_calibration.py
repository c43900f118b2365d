"""Calibration, against a direct reading of the definition."""

import numpy as np
import pytest

from vitrail.evaluation import Predictions
from vitrail.evaluation.calibration import calibrate


def said(sure: list[float] | np.ndarray, right: list[bool] | np.ndarray) -> Predictions:
    sure, right = np.asarray(sure, np.float32)[:, None], np.asarray(right, bool)[:, None]
    return Predictions(np.zeros(sure.shape, np.int64), sure, right, np.zeros(len(sure), np.float32))


def direct_error(sure: np.ndarray, right: np.ndarray, bins: int) -> float:
    """Equation 3 of Guo et al., bin by bin: ]low, high]."""
    total = 0.0
    for one in range(bins):
        inside = (sure > one / bins) & (sure <= (one + 1) / bins)
        if inside.any():
            total += inside.sum() / len(sure) * abs(right[inside].mean() - sure[inside].mean())
    return total


@pytest.mark.parametrize("bins", [1, 10, 15, 100])
def test_the_error_is_its_definition(bins) -> None:
    generator = np.random.default_rng(3)
    sure = generator.uniform(0.1, 1, 5000).astype(np.float32)
    right = generator.random(5000) < sure**2
    found = calibrate(said(sure, right), bins)
    assert found.ece == pytest.approx(direct_error(sure.astype(np.float64), right, bins), abs=1e-9)
    assert len(found.bins) == bins
    assert sum(one.images for one in found.bins) == found.images == 5000
    assert found.largest_gap == pytest.approx(
        max(abs(one.accuracy - one.confidence) for one in found.bins if one.images)
    )
    assert found.confidence == pytest.approx(sure.mean(), rel=1e-5)
    assert found.accuracy == right.mean()


def test_fifteen_bins_of_equal_width_are_usual() -> None:
    found = calibrate(said([0.5, 0.9], [True, False]))
    assert [one.low for one in found.bins] == pytest.approx([number / 15 for number in range(15)])
    assert [one.high for one in found.bins] == pytest.approx([number / 15 for number in range(1, 16)])


def test_a_bin_holds_its_upper_end_and_none_is_left_out() -> None:
    found = calibrate(said([0.0, 0.25, 0.5, 0.75, 1.0], [True] * 5), bins=4)
    assert [one.images for one in found.bins] == [2, 1, 1, 1]
    empty = calibrate(said([1.0], [True]), bins=4).bins[0]
    assert (empty.images, empty.confidence, empty.accuracy) == (0, None, None)


def test_a_model_that_is_as_right_as_it_says_has_no_error() -> None:
    found = calibrate(said([0.75] * 4 + [1.0] * 6, [True, True, True, False] + [True] * 6))
    assert found.ece == pytest.approx(0)


def test_one_that_is_sure_and_wrong_has_all_of_it() -> None:
    found = calibrate(said([1.0] * 3, [False] * 3))
    assert found.ece == found.largest_gap == 1
