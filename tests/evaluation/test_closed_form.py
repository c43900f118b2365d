"""The few-shot classifier: the original's outputs, a plain solve, and inputs that are none."""

import numpy as np
import pytest
import torch

from vitrail.errors import DataError, UsageError
from vitrail.evaluation import closed_form, fewshot
from vitrail.evaluation.closed_form import decompose


@pytest.fixture
def original(fixtures) -> dict[str, np.ndarray]:
    return dict(np.load(fixtures / "fewshot_lsr" / "N_ge_D.npz"))


def parts(case: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(case[name] for name in ("x_train", "y_train", "x_test", "y_test"))


def blobs(images: int, dim: int, classes: int = 4, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Features of classes that can be told apart, in dimensions of very different size."""
    generator = np.random.default_rng(seed)
    labels = np.arange(images) % classes
    centres = np.random.default_rng(99).normal(size=(classes, dim))
    sizes = 10.0 ** np.random.default_rng(98).uniform(-2, 2, dim)
    return ((centres[labels] + generator.normal(size=(images, dim)) + 3) * sizes).astype(np.float32), labels


def plainly(x: np.ndarray, y: np.ndarray, classes: int, l2: float) -> np.ndarray:
    """The textbook, with the constant column among the others."""
    x = x.astype(np.float64)
    x = (x - x.mean(0)) / (x.std(0) + 1e-5)
    x = np.pad(x, ((0, 0), (0, 1)), constant_values=100.0)
    targets = 2.0 * np.eye(classes)[y] - 1
    if len(x) >= x.shape[1]:
        return np.linalg.solve(x.T @ x + l2 * np.eye(x.shape[1]), x.T @ targets)
    return x.T @ np.linalg.solve(x @ x.T + l2 * np.eye(len(x)), targets)


def test_weights_and_accuracies_are_those_of_the_original(original) -> None:
    assert len(original["l2"]) == 10
    for place, l2 in enumerate(original["l2"]):
        found = fewshot(*parts(original), l2=float(l2))
        np.testing.assert_allclose(found.weights, original["w_float64"][place], rtol=1e-6)
        assert found.accuracy == original["acc_float64"][place]
        assert found.images == 200
        assert found.right == round(200 * found.accuracy)
        # The original computes in float32, where a small l2 leaves few digits: one image of 200 may differ.
        assert abs(found.accuracy - original["acc_big_vision"][place]) < 0.0051
        if l2 >= 8:
            assert found.accuracy == pytest.approx(original["acc_big_vision"][place], abs=1e-6)


def test_the_default_is_the_originals(original) -> None:
    assert fewshot(*parts(original)).l2 == 1024
    np.testing.assert_allclose(fewshot(*parts(original)).weights, original["w_float64"][6], rtol=1e-9)


@pytest.mark.parametrize(("images", "dim"), [(40, 7), (40, 39), (40, 40), (40, 41), (12, 200), (4, 300)])
@pytest.mark.parametrize("l2", [2.0**-10, 1.0, 2.0**10, 2.0**19])
def test_a_plain_solve_gives_the_same_with_few_and_with_many_images(images, dim, l2) -> None:
    x, y = blobs(images, dim)
    found = fewshot(x, y, *blobs(50, dim, seed=4), l2=l2)
    assert found.weights.shape == (dim + 1, 4)
    wanted = plainly(x, y, 4, l2)
    np.testing.assert_allclose(found.weights, wanted, rtol=1e-6, atol=1e-8 * np.abs(wanted).max())


def test_the_answers_are_those_of_the_weights() -> None:
    train, (x, y) = blobs(40, 9), blobs(301, 9, seed=4)
    found = fewshot(*train, x, y)
    seen = train[0].astype(np.float64)
    whitened = (x - seen.mean(0)) / (seen.std(0) + 1e-5)
    guesses = (whitened @ found.weights[:-1] + 100 * found.weights[-1]).argmax(1)
    assert found.right == (guesses == y).sum()
    assert 0.5 < found.accuracy < 1


def test_many_test_images_are_counted_in_parts(monkeypatch) -> None:
    train, test = blobs(40, 9), blobs(301, 9, seed=4)
    whole = fewshot(*train, *test)
    monkeypatch.setattr(closed_form, "_ROWS", 7)
    assert fewshot(*train, *test).right == whole.right


def test_one_decomposition_serves_every_l2() -> None:
    x, y = blobs(40, 9)
    solved = decompose(x, y, 4)
    for l2 in (2.0**-10, 1.0, 2.0**19):
        np.testing.assert_allclose(solved.weights(l2).numpy(), plainly(x, y, 4, l2), rtol=1e-6)


def test_a_dimension_that_never_changes_and_features_that_are_all_equal() -> None:
    x, y = blobs(40, 9)
    x[:, 3] = 1e4
    assert fewshot(x, y, x, y).accuracy > 0.8
    found = fewshot(np.ones((8, 5)), np.arange(8) % 4, np.ones((6, 5)), np.arange(6) % 4)
    assert np.isfinite(found.weights).all()
    # Nothing tells the classes apart, so the first one is guessed.
    assert found.right == 2


def test_tensors_lists_and_half_precision_are_taken() -> None:
    x, y = blobs(40, 9)
    wanted = fewshot(x, y, x, y)
    tensors = fewshot(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(x), y.tolist())
    np.testing.assert_array_equal(tensors.weights, wanted.weights)
    halves = torch.from_numpy(x).bfloat16()
    assert fewshot(halves, y, halves.requires_grad_(), y).accuracy > 0.8


def test_a_class_that_only_the_test_images_have_is_never_right() -> None:
    x, y = blobs(40, 9)
    known = y < 3
    found = fewshot(x[known], y[known], x, y, l2=1.0)
    assert found.weights.shape == (10, 4)
    assert found.right <= known.sum()
    assert found.images == 40


def test_the_arrays_are_not_changed() -> None:
    x, y = blobs(40, 9)
    kept = x.copy()
    x.flags.writeable = False
    fewshot(x, y, x, y)
    np.testing.assert_array_equal(x, kept)


def _with_nan(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[3, 1], x[5, 0] = np.nan, np.inf
    return x


X, Y = blobs(12, 5)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((_with_nan(X), Y, X, Y), DataError, "train_x is not finite in 2 of 12 rows, first in row 3"),
        ((X, Y, _with_nan(X), Y), DataError, "test_x is not finite in 2 of 12 rows, first in row 3"),
        ((X, Y * 0 + 2, X, Y), DataError, "all training features are of class 2; wanted two or more classes"),
        ((X, Y, X[:, :4], Y), UsageError, "train_x has 5 dimensions and test_x 4; wanted features of one network"),
        ((X, Y[:5], X, Y), UsageError, r"train_y is int64 \(5,\); wanted 12 class numbers"),
        ((X, Y.astype(float), X, Y), UsageError, r"train_y is float64 \(12,\); wanted 12 class numbers"),
        ((X, Y, X, Y - 1), UsageError, "test_y holds -1; wanted class numbers from 0 up"),
        ((X[:0], Y[:0], X, Y), UsageError, r"train_x is float32 \(0, 5\)"),
        ((X[0], Y[:1], X, Y), UsageError, r"train_x is float32 \(5,\)"),
        ((X.astype(int), Y, X, Y), UsageError, r"train_x is int64 \(12, 5\); wanted floating-point features"),
    ],
)
def test_what_cannot_be_learnt_from_is_an_error(arguments, kind, message) -> None:
    with pytest.raises(kind, match=message):
        fewshot(*arguments)


@pytest.mark.parametrize("l2", [0.0, -1.0, np.nan, np.inf])
def test_an_l2_that_is_none(l2) -> None:
    with pytest.raises(UsageError, match=r"l2 is .*; wanted a positive number"):
        fewshot(X, Y, X, Y, l2=l2)
