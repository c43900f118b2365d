"""The linear probe, against scikit-learn's solution; what its l2 is chosen on."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tests.evaluate.test_closed_form import blobs

from vitrail.errors import DataError, UsageError
from vitrail.evaluate import linear_probe, probe
from vitrail.evaluate.probe import hold_out


@pytest.fixture
def case() -> tuple:
    return *blobs(120, 6), *blobs(90, 6, seed=4)


@pytest.mark.parametrize("l2", [0.01, 0.1, 10.0])
def test_the_solution_is_scikit_learns(case, l2) -> None:
    x, y, test_x, test_y = case
    found = linear_probe(*case, l2=l2)
    mean, scale = x.astype(np.float64).mean(0), x.astype(np.float64).std(0) + 1e-5
    judge = LogisticRegression(C=1 / (l2 * len(x)), tol=1e-10, max_iter=10_000).fit((x - mean) / scale, y)
    np.testing.assert_allclose(found.weights[:-1].T, judge.coef_, atol=3e-3)
    # A constant may be added to all biases.
    np.testing.assert_allclose(found.weights[-1] - found.weights[-1].mean(), judge.intercept_, atol=3e-3)
    assert found.right == (judge.predict((test_x - mean) / scale) == test_y).sum()
    assert found.accuracy == found.right / 90
    assert found.converged
    assert found.gradient <= 1e-5
    assert (found.tried, found.held_out, found.l2) == ((), 0, l2)


def test_the_l2_is_chosen_on_training_features_alone(case) -> None:
    x, y, test_x, test_y = case
    found = linear_probe(*case)
    shuffled = linear_probe(x, y, test_x[::-1] * 3, (test_y + 1) % 4)
    assert (found.l2, found.tried, found.held_out) == (shuffled.l2, shuffled.tried, 24)
    np.testing.assert_array_equal(found.weights, shuffled.weights)
    best = max(found.tried, key=lambda one: (one.accuracy, -one.loss))
    assert found.l2 == best.l2
    assert len(found.tried) > 2
    np.testing.assert_array_equal(found.weights, linear_probe(*case, l2=best.l2).weights)


def test_what_is_tried_is_what_a_fit_to_the_rest_gives(case) -> None:
    x, y, *_ = case
    rest, held = hold_out(y, seed=5)
    found = linear_probe(*case, l2=(1.0, 0.1), seed=5)
    for one in found.tried:
        alone = linear_probe(x[rest], y[rest], x[held], y[held], l2=one.l2)
        assert one.accuracy == alone.accuracy


def test_every_l2_is_tried_from_the_strongest_on(case) -> None:
    found = linear_probe(*case)
    assert len(found.tried) == 8
    assert [one.l2 for one in found.tried] == sorted((one.l2 for one in found.tried), reverse=True)


def test_a_majority_that_looks_good_at_strong_l2_does_not_end_the_search() -> None:
    """Classes of 70 and 30 %, told apart by the small difference of two features: strong l2 sees the majority alone."""
    generator = np.random.default_rng(0)
    labels = (generator.random(1500) < 0.3).astype(np.int64)
    shared = generator.normal(size=1500)
    features = np.stack([shared, shared + 0.02 * (2 * labels - 1) + 0.002 * generator.normal(size=1500)], axis=1)
    found = linear_probe(features[:500], labels[:500], features[500:], labels[500:])
    assert found.tried[0].accuracy < 0.8
    assert found.accuracy > 0.95


def test_too_few_iterations_are_told(case, monkeypatch) -> None:
    monkeypatch.setattr(probe, "ITERATIONS", 3)
    found = linear_probe(*case, l2=1e-4)
    assert not found.converged
    assert found.iterations == 3
    assert found.gradient > 1e-5


def test_threads_are_given_back(case) -> None:
    before = torch.get_num_threads()
    linear_probe(*case, l2=1.0)
    assert torch.get_num_threads() == before


def test_a_fifth_of_every_class_is_held_out_and_never_its_last_image() -> None:
    labels = np.array([0] * 50 + [1] * 10 + [2] * 3 + [3] * 2 + [4])
    rest, held = hold_out(labels)
    assert sorted([*rest, *held]) == list(range(len(labels)))
    assert np.bincount(labels[held], minlength=5).tolist() == [10, 2, 1, 1, 0]
    assert hold_out(labels)[1].tolist() == held.tolist()
    assert hold_out(labels, seed=1)[1].tolist() != held.tolist()


def test_one_image_of_each_class_cannot_choose(case) -> None:
    x, y, *test = case
    with pytest.raises(DataError, match=r"every class has one image, .* Say the l2 with --l2"):
        linear_probe(x[:4], y[:4], *test)
    assert linear_probe(x[:4], y[:4], *test, l2=1.0).images == 90


@pytest.mark.parametrize("l2", [0.0, -1.0, (), (1.0, np.nan), np.inf])
def test_an_l2_that_is_none(case, l2) -> None:
    with pytest.raises(UsageError, match="l2"):
        linear_probe(*case, l2=l2)


def test_one_class_and_nan(case) -> None:
    x, y, *test = case
    with pytest.raises(DataError, match="all training features are of class 0"):
        linear_probe(x, y * 0, *test)
    x[4] = np.inf
    with pytest.raises(DataError, match="first in row 4"):
        linear_probe(x, y, *test)
