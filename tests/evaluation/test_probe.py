"""The linear probe, against scikit-learn's solution; what its l2 is chosen on."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tests.evaluation.test_closed_form import blobs

from vitrail.errors import DataError, UsageError
from vitrail.evaluation import linear_probe, probe
from vitrail.evaluation.probe import held_out_folds


@pytest.fixture
def case() -> tuple:
    return *blobs(120, 6), *blobs(90, 6, seed=4)


@pytest.mark.parametrize("l2", [1e-6, 1e-4, 0.01, 0.1, 10.0])
@pytest.mark.parametrize(("dim", "separable"), [(6, False), (40, True)])
def test_the_solution_is_scikit_learns(l2, dim, separable) -> None:
    """Where classes can be separated the weights grow as the l2 shrinks, and a small gradient says little."""
    (x, y), (test_x, test_y) = blobs(120, dim), blobs(90, dim, seed=4)
    found = linear_probe(x, y, test_x, test_y, l2=l2)
    mean, scale = x.astype(np.float64).mean(0), x.astype(np.float64).std(0) + 1e-5
    judge = LogisticRegression(C=1 / (l2 * len(x)), solver="newton-cg", tol=1e-12, max_iter=10_000)
    judge.fit((x - mean) / scale, y)
    assert l2 > 1e-5 or (judge.score((x - mean) / scale, y) == 1.0) == separable
    size = np.abs(judge.coef_).max()
    np.testing.assert_allclose(found.weights[:-1].T, judge.coef_, atol=1e-3 * size)
    # A constant may be added to all biases.
    bias = found.weights[-1] - found.weights[-1].mean()
    np.testing.assert_allclose(bias, judge.intercept_ - judge.intercept_.mean(), atol=1e-3 * size)
    assert found.right == (judge.predict((test_x - mean) / scale) == test_y).sum()
    assert found.accuracy == found.right / 90
    assert found.converged
    assert found.iterations > 0
    assert (found.tried, found.held_out, found.folds, found.l2) == ((), 0, 0, l2)


def test_each_l2_of_a_grid_is_solved_and_not_taken_from_the_one_before() -> None:
    """The solution of 1e-5 has a small gradient at 1e-6 too, and is not its solution."""
    x, y = blobs(120, 40)
    tried = linear_probe(x, y, *blobs(90, 40, seed=4), l2=(1e-5, 1e-6)).tried
    assert all(one.iterations > probe.FOLDS for one in tried)
    assert all(one.converged for one in tried)
    folds = held_out_folds(y)
    losses = []
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        mean, scale = x[rest].astype(np.float64).mean(0), x[rest].astype(np.float64).std(0) + 1e-5
        judge = LogisticRegression(C=1e6 / len(rest), solver="newton-cg", tol=1e-12, max_iter=10_000)
        sure = judge.fit((x[rest] - mean) / scale, y[rest]).predict_log_proba((x[fold] - mean) / scale)
        losses += [-sure[place, label] for place, label in enumerate(y[fold])]
    assert tried[1].loss == pytest.approx(np.mean(losses), rel=0.02)


def test_the_l2_is_chosen_on_training_features_alone(case) -> None:
    x, y, test_x, test_y = case
    found = linear_probe(*case)
    shuffled = linear_probe(x, y, test_x[::-1] * 3, (test_y + 1) % 4)
    assert (found.l2, found.tried, found.held_out, found.folds) == (shuffled.l2, shuffled.tried, 120, 5)
    np.testing.assert_array_equal(found.weights, shuffled.weights)
    best = max(found.tried, key=lambda one: (one.accuracy, -one.loss))
    assert found.l2 == best.l2
    assert len(found.tried) > 2
    np.testing.assert_array_equal(found.weights, linear_probe(*case, l2=best.l2).weights)


@pytest.mark.parametrize("most", [probe.ONE_IS_ENOUGH, 119])
def test_what_is_tried_is_what_fits_to_the_rest_of_each_fold_give(case, monkeypatch, most) -> None:
    monkeypatch.setattr(probe, "ONE_IS_ENOUGH", most)
    x, y, *_ = case
    folds = held_out_folds(y, seed=5)
    assert len(folds) == (5 if most > 120 else 1)
    found = linear_probe(*case, l2=(1.0, 0.1), seed=5)
    assert (found.folds, found.held_out) == (len(folds), 24 * len(folds))
    for one in found.tried:
        right = 0
        for held in folds:
            rest = np.setdiff1d(np.arange(120), held)
            right += linear_probe(x[rest], y[rest], x[held], y[held], l2=one.l2).right
        assert one.accuracy == right / found.held_out


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


def test_threads_are_given_back(case) -> None:
    before = torch.get_num_threads()
    linear_probe(*case, l2=1.0)
    assert torch.get_num_threads() == before


def test_every_image_is_held_out_once_and_never_the_only_one_of_a_class() -> None:
    labels = np.array([0] * 50 + [1] * 11 + [2] * 3 + [3] * 2 + [4])
    folds = held_out_folds(labels)
    assert sorted(np.concatenate(folds)) == list(range(len(labels) - 1))
    counts = np.array([np.bincount(labels[fold], minlength=5) for fold in folds])
    assert np.ptp(counts.sum(axis=1)) <= 1
    assert (np.ptp(counts, axis=0) <= 1).all()
    for fold in folds:
        assert set(np.delete(labels, fold)) == {0, 1, 2, 3, 4}
    assert [fold.tolist() for fold in held_out_folds(labels)] == [fold.tolist() for fold in folds]
    assert held_out_folds(labels, seed=1)[0].tolist() != folds[0].tolist()
    assert len(held_out_folds(np.array([0, 0, 1]))) == 2


def test_of_many_images_one_fold_is_enough() -> None:
    labels = np.arange(probe.ONE_IS_ENOUGH + 1) % 10
    assert [len(fold) for fold in held_out_folds(labels[:-1])] == [2000] * 5
    assert [len(fold) for fold in held_out_folds(labels)] == [2001]


def test_one_image_of_each_class_cannot_choose(case) -> None:
    x, y, *test = case
    with pytest.raises(DataError, match=r"every class has one image, .* Say the l2 with l2"):
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
