"""Numbers from predictions, against scikit-learn's."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from vitrail.evaluate import Predictions, confusion, measure


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
