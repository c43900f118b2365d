"""Images of several classes, against scikit-learn's numbers."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from vitrail.data import Labels
from vitrail.evaluation.multilabel import answers, average_precision, measure_multilabel, table_of

NAMES = tuple("abcdefg")


@pytest.fixture
def case() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    shown = generator.random((200, 7)) < np.linspace(0.05, 0.6, 7)
    logits = (generator.normal(size=(200, 7)) + shown - 0.5).astype(np.float32)
    # Some are equal.
    return np.round(logits, 1), shown


def test_the_numbers_are_scikit_learns(case) -> None:
    logits, shown = case
    said = logits > 0
    found = measure_multilabel(logits, shown, NAMES)
    assert found.images == 200
    assert found.mean_average_precision == pytest.approx(sklearn_metrics.average_precision_score(shown, logits))
    assert found.micro_f1 == pytest.approx(sklearn_metrics.f1_score(shown, said, average="micro"))
    assert found.macro_f1 == pytest.approx(sklearn_metrics.f1_score(shown, said, average="macro"))
    assert found.exact.share == sklearn_metrics.accuracy_score(shown, said)
    each = sklearn_metrics.average_precision_score(shown, logits, average=None)
    assert [one.average_precision for one in found.classes] == pytest.approx(list(each))
    assert [(one.number, one.name) for one in found.classes] == list(enumerate(NAMES))
    assert [one.images for one in found.classes] == shown.sum(0).tolist()
    assert [one.right for one in found.classes] == (shown & said).sum(0).tolist()


def test_the_first_guess_is_counted_on_images_that_have_a_class(case) -> None:
    logits, shown = case
    shown[:50] = False
    found = measure_multilabel(logits, shown, NAMES)
    assert found.hit is not None
    has_any = shown.any(1)
    assert found.hit.images == has_any.sum() <= 150
    assert found.hit.right == sum(shown[row, logits[row].argmax()] for row in np.flatnonzero(has_any))


def test_the_loss_is_the_sigmoid_cross_entropy(case) -> None:
    logits, shown = case
    chances = 1 / (1 + np.exp(-logits.astype(np.float64)))
    wanted = -(shown * np.log(chances) + ~shown * np.log(1 - chances)).sum(1)
    np.testing.assert_allclose(answers(logits, shown).losses, wanted, rtol=1e-5)
    assert measure_multilabel(logits, shown, NAMES).loss == pytest.approx(wanted.mean(), rel=1e-6)


def test_answers_are_those_of_the_logits_even_when_very_sure() -> None:
    logits = np.array([[1000.0, -1000.0, 3.0], [-1000.0, -999.0, -998.0]], np.float32)
    found = answers(logits, np.array([[True, False, False], [False, True, False]]))
    assert found.guesses.tolist() == [[0, 2, 1], [2, 1, 0]]
    assert found.right.tolist() == [[True, False, False], [False, True, False]]
    assert found.confidence[0, 0] == 1
    assert np.isfinite(found.losses).all()
    assert found.confidence.dtype == found.losses.dtype == np.float32


def test_a_class_that_no_image_shows_is_left_out_of_the_means() -> None:
    logits = np.array([[1.0, -1.0, -1.0], [1.0, 1.0, -1.0]], np.float32)
    shown = np.array([[True, False, False], [True, False, False]])
    found = measure_multilabel(logits, shown, ("a", "b", "c"))
    assert [one.average_precision for one in found.classes] == [1.0, None, None]
    # b was guessed and is not there, which counts; c was neither.
    assert [one.f1 for one in found.classes] == [1.0, 0.0, None]
    assert (found.mean_average_precision, found.macro_f1) == (1.0, 0.5)


def test_images_of_nothing_at_all() -> None:
    found = measure_multilabel(np.full((3, 2), -1, np.float32), np.zeros((3, 2), bool), ("a", "b"))
    assert (found.mean_average_precision, found.hit, found.micro_f1, found.macro_f1) == (None, None, None, None)
    assert found.exact.share == 1


def test_equal_scores_come_together() -> None:
    """An order among them would be luck."""
    assert average_precision(np.zeros(4), np.array([True, False, False, False])) == 0.25
    assert average_precision(np.zeros(4), np.array([False, False, False, True])) == 0.25


def test_the_table_of_labels() -> None:
    labels = Labels.of_many([[0, 2], [], [1]], 3)
    assert table_of(labels).tolist() == [[True, False, True], [False, False, False], [False, True, False]]
