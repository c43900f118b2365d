"""Numbers from predictions, against scikit-learn's."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics as sklearn_metrics

from vitrail.evaluation import Predictions, confusion, interval, measure
from vitrail.evaluation.metrics import confusion_triples, per_class, share_of


def predictions(scores: np.ndarray, labels: np.ndarray) -> Predictions:
    guesses = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    chances = scores / scores.sum(axis=1, keepdims=True)
    return Predictions(
        guesses=guesses,
        confidence=np.take_along_axis(chances, guesses, axis=1).astype(np.float32),
        right=guesses == labels[:, None],
        losses=-np.log(chances[np.arange(len(labels)), labels]).astype(np.float32),
    )


@pytest.fixture
def case() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(4)
    return generator.random((501, 12)) + 0.01, generator.integers(0, 12, 501)


def test_accuracies_and_loss_are_scikit_learns(case) -> None:
    scores, labels = case
    found = measure(predictions(scores, labels))
    assert found.images == 501
    assert found.accuracy == sklearn_metrics.accuracy_score(labels, scores.argmax(1))
    assert found.top5 == sklearn_metrics.top_k_accuracy_score(labels, scores, k=5)
    chances = scores / scores.sum(1, keepdims=True)
    assert found.loss == pytest.approx(sklearn_metrics.log_loss(labels, chances), rel=1e-6)


def test_the_confusion_is_scikit_learns(case) -> None:
    scores, labels = case
    labels = np.where(labels == 11, 0, labels)
    made = predictions(scores, labels)
    found = confusion(made, labels, 12)
    wanted = sklearn_metrics.confusion_matrix(labels, scores.argmax(1), labels=range(12))
    np.testing.assert_array_equal(found, wanted)
    # A class without images has its row, of zeros.
    assert not found[11].any()
    assert found.sum() == 501


def test_fewer_than_five_classes() -> None:
    scores, labels = np.eye(3)[[0, 1, 2]] + 0.1, np.array([0, 2, 1])
    found = measure(predictions(scores, labels))
    assert (found.accuracy, found.top5) == (pytest.approx(1 / 3), 1.0)


def test_the_mean_loss_of_many_images_is_not_rounded_in_float32() -> None:
    losses = np.full(2**21, 0.1, np.float32)
    losses[0] = 1e6
    many = Predictions(np.zeros((len(losses), 1)), np.ones((len(losses), 1)), np.ones((len(losses), 1), bool), losses)
    assert measure(many).loss == pytest.approx(losses.astype(np.float64).mean(), rel=1e-12)


@pytest.mark.parametrize(("right", "images"), [(8, 10), (1, 3), (0, 10), (10, 10), (37_730, 50_000), (1, 1)])
def test_the_interval_is_wilsons(right, images) -> None:
    wanted = binomtest(right, images).proportion_ci(method="wilson")
    assert interval(right, images) == (pytest.approx(wanted.low, abs=1e-6), pytest.approx(wanted.high, abs=1e-6))
    found = share_of(right, images)
    assert (found.right, found.images, found.share) == (right, images, right / images)
    assert 0 <= found.low <= found.share <= found.high <= 1


def test_the_ends_of_an_interval_are_exact() -> None:
    assert interval(10, 10)[1] == 1
    assert interval(0, 10)[0] == 0


def test_every_class_is_scikit_learns(case) -> None:
    scores, labels = case
    labels = np.where(labels == 11, 0, labels)
    scores[:, 5] = 1e-6
    found = per_class(predictions(scores, labels), labels, tuple(f"class {number}" for number in range(12)))
    precision, recall, _, images = sklearn_metrics.precision_recall_fscore_support(
        labels, scores.argmax(1), labels=range(12), zero_division=0
    )
    assert [one.number for one in found] == list(range(12))
    assert [one.images for one in found] == images.tolist()
    for one in found:
        assert one.name == f"class {one.number}"
        assert one.accuracy == (None if one.number == 11 else pytest.approx(recall[one.number]))
        # Never guessed is not the same as never right.
        assert one.precision == (None if one.number == 5 else pytest.approx(precision[one.number]))
    assert sum(one.right for one in found) == (scores.argmax(1) == labels).sum()
    assert sum(one.guessed for one in found) == len(labels)


def test_the_cells_that_are_not_zero_are_the_matrix(case) -> None:
    scores, labels = case
    made = predictions(scores, labels)
    triples = confusion_triples(made, labels)
    table = np.zeros((12, 12), dtype=np.int64)
    table[triples[:, 0], triples[:, 1]] = triples[:, 2]
    np.testing.assert_array_equal(table, confusion(made, labels, 12))
    assert (triples[:, 2] > 0).all()
    assert triples.tolist() == sorted(triples.tolist())
