"""Shots, seeds and the choice of one l2 for all data sets."""

import numpy as np
import pytest
from tests.evaluation.test_closed_form import blobs

from vitrail.errors import DataError, UsageError
from vitrail.evaluation import fewshot
from vitrail.evaluation.feature_sets import FeatureSets
from vitrail.evaluation.protocol import L2_GRID, ShotsResult, choose_l2, measure_shots
from vitrail.evaluation.shots import choose_shots

CLASSES = ("ant", "bee", "cow", "dog")


@pytest.fixture
def sets() -> FeatureSets:
    return FeatureSets.of(*blobs(60, 9), *blobs(101, 9, seed=4))


def test_every_number_is_that_of_a_classifier_of_its_own(sets) -> None:
    grid = (0.5, 1024.0)
    found = list(measure_shots(sets, CLASSES, shots=(5, 1), seeds=2, l2=grid))
    assert [(result.shots, result.learnt_from, result.images) for result in found] == [(1, 4, 101), (5, 20, 101)]
    for result in found:
        for seed in range(2):
            chosen = choose_shots(sets.train_y, result.shots, seed)
            alone = [fewshot(sets.train_x[chosen], sets.train_y[chosen], *sets.test, l2=l2).right for l2 in grid]
            assert list(result.right[seed]) == alone
        assert result.accuracies(0.5) == [row[0] / 101 for row in result.right]
    assert found[0].right != found[1].right


def test_what_was_measured_before_a_class_ran_out_is_kept(sets) -> None:
    stream = measure_shots(sets, CLASSES, shots=(25, 1, 15, 1), seeds=1)
    assert next(stream).shots == 1
    assert next(stream).shots == 15
    with pytest.raises(DataError, match=r"the class 'ant' has 15 images, and 3 more of 4 .*; wanted 25 of each"):
        next(stream)


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"shots": ()}, {"l2": ()}, {"shots": (0,)}, {"l2": (-1.0,)}])
def test_nothing_to_measure(sets, wrong) -> None:
    with pytest.raises(UsageError):
        list(measure_shots(sets, CLASSES, **wrong))


def test_the_grid_is_that_of_the_papers_time() -> None:
    assert (len(L2_GRID), L2_GRID[0], L2_GRID[-1]) == (30, 2.0**-10, 2.0**19)


def result(*right: tuple[int, ...], images: int = 100) -> ShotsResult:
    grid = tuple(2.0**power for power in range(len(right[0])))
    return ShotsResult(shots=1, learnt_from=4, images=images, l2=grid, right=right)


def test_one_l2_for_all_by_mean_rank() -> None:
    # Ranks 0 2 1, 1 2 0 and 2 1 0: the second is best on average, though the first wins by far on the third set.
    found = [result((10, 12, 11)), result((21, 22, 20)), result((90, 40, 30))]
    assert choose_l2(found) == 2.0
    # A mean of accuracies would have taken the first.
    assert np.argmax(np.sum([one.right for one in found], axis=(0, 1))) == 0


def test_ranks_are_of_the_mean_over_seeds_and_sets_of_any_size_weigh_the_same() -> None:
    assert choose_l2([result((10, 11), (10, 30)), result((5000, 4999), (1, 1), images=10**4)]) == 1.0
    assert choose_l2([result((10, 30), (31, 10))]) == 1.0


def test_of_equals_the_smaller_is_taken_in_any_order_of_the_sets() -> None:
    first, second = result((1, 2)), result((2, 1))
    assert choose_l2([first, second]) == choose_l2([second, first]) == 1.0
