"""Nearest neighbours, against scikit-learn's."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.evaluation.test_closed_form import blobs

from vitrail.errors import DataError, UsageError
from vitrail.evaluation import nearest, nearest_neighbours


def scikit_learn(k: int, weights, train, test) -> int:
    judge = KNeighborsClassifier(k, weights=weights, metric="cosine", algorithm="brute").fit(*train)
    return int((judge.predict(test[0]) == test[1]).sum())


@pytest.fixture
def case() -> tuple:
    return blobs(83, 6, classes=5), blobs(150, 6, classes=5, seed=4)


@pytest.mark.parametrize("k", [1, 4, 20, 83])
def test_both_votes_are_scikit_learns(case, k) -> None:
    train, test = case
    (found,) = nearest_neighbours(*train, *test, k=(k,))
    assert (found.k, found.images) == (k, 150)
    assert found.plain_right == scikit_learn(k, "uniform", train, test)
    assert found.weighted_right == scikit_learn(k, lambda distance: np.exp((1 - distance) / 0.07), train, test)
    assert found.plain == found.plain_right / 150
    assert found.weighted == found.weighted_right / 150


def test_several_k_at_once_and_in_parts_are_the_same(case, monkeypatch) -> None:
    train, test = case
    alone = tuple(nearest_neighbours(*train, *test, k=(k,))[0] for k in (20, 1, 5))
    assert len({(one.plain_right, one.weighted_right) for one in alone}) > 1
    monkeypatch.setattr(nearest, "_AT_A_TIME", 700)
    assert nearest_neighbours(*train, *test, k=(20, 1, 5)) == alone
    monkeypatch.setattr(nearest, "_AT_A_TIME", 1)
    assert nearest_neighbours(*train, *test, k=(20, 1, 5)) == alone


def test_the_length_of_features_does_not_matter_and_a_small_temperature_does_not_overflow(case) -> None:
    train, (x, y) = case
    plain = nearest_neighbours(*train, x, y, k=(7,))
    assert nearest_neighbours(*train, x * 1e3, y, k=(7,)) == plain
    (found,) = nearest_neighbours(*train, x, y, k=(7,), temperature=1e-6)
    assert found.weighted_right == nearest_neighbours(*train, x, y, k=(1,))[0].plain_right


def test_equal_votes_go_to_the_lower_class_and_zero_features_are_no_error() -> None:
    x, y = np.eye(4, dtype=np.float32), np.array([3, 1, 2, 0])
    (found,) = nearest_neighbours(x, y, np.zeros((2, 4), np.float32), np.array([0, 1]), k=(4,))
    assert (found.plain_right, found.weighted_right) == (1, 1)


@pytest.mark.parametrize("k", [(), (0,), (84,), (5, 84), (-1,)])
def test_a_k_that_is_none(case, k) -> None:
    with pytest.raises(UsageError, match="k is"):
        nearest_neighbours(*case[0], *case[1], k=k)


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan])
def test_a_temperature_that_is_none(case, temperature) -> None:
    with pytest.raises(UsageError, match=r"temperature is .*; wanted a positive number"):
        nearest_neighbours(*case[0], *case[1], temperature=temperature)


def test_one_class_and_nan(case) -> None:
    (x, y), test = case
    with pytest.raises(DataError, match="all training features are of class 0"):
        nearest_neighbours(x, y * 0, *test)
    x[4] = np.nan
    with pytest.raises(DataError, match="first in row 4"):
        nearest_neighbours(x, y, *test)


def test_equally_near_images_vote_in_the_same_order_however_many_are_asked_for() -> None:
    generator = np.random.default_rng(0)
    train = np.repeat(generator.normal(size=(20, 8)), 20, axis=0)
    labels = generator.integers(0, 4, len(train))
    test, wanted = generator.normal(size=(100, 8)), generator.integers(0, 4, 100)
    (alone,) = nearest_neighbours(train, labels, test, wanted, k=(1,))
    for others in ((1, 5), (1, 20), (1, 300)):
        assert nearest_neighbours(train, labels, test, wanted, k=others)[0] == alone
    nearest = np.array([labels[np.flatnonzero(row == row.max())[0]] for row in _cosine(test, train)])
    assert alone.plain_right == (nearest == wanted).sum()


def _cosine(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (one, other))
    return np.round(one @ other.T, 6)
