"""Losses: the original's numbers, torch's own, smoothing and mixed targets."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from vitrail.config import TrainConfig
from vitrail.training.objective import build_objective, hits, shares, sigmoid_cross_entropy, softmax_cross_entropy


def objective(loss: str, smoothing: float = 0.0):
    return build_objective(TrainConfig(batch_size=4, steps=1, loss=loss, label_smoothing=smoothing))


@pytest.mark.parametrize(
    ("loss", "targets", "wanted"),
    [
        ("sigmoid", "multilabels", "sigmoid_xent_multi"),
        ("sigmoid", "onehot", "sigmoid_xent_onehot"),
        ("softmax", "onehot", "softmax_xent_onehot"),
    ],
)
def test_the_originals_losses(loss, targets, wanted, fixtures) -> None:
    with np.load(fixtures / "losses" / "losses.npz") as file:
        logits, given, expected = (torch.from_numpy(file[name]) for name in ("logits", targets, wanted))
    exact = objective(loss)(logits.double(), given.double())
    torch.testing.assert_close(exact, expected.double(), rtol=0, atol=1e-6)
    # In float32 the last bit of a sum near 18 is worth 2e-6.
    torch.testing.assert_close(objective(loss)(logits, given), expected, rtol=2e-7, atol=0)
    if targets == "onehot":
        torch.testing.assert_close(objective(loss)(logits, given.argmax(dim=1)), expected, rtol=2e-7, atol=0)


@pytest.fixture
def logits() -> torch.Tensor:
    return 4 * torch.randn(16, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


CLASSES = torch.arange(16) % 7


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_smoothed_softmax_is_torchs(smoothing, logits) -> None:
    wanted = functional.cross_entropy(logits, CLASSES, label_smoothing=smoothing, reduction="none")
    torch.testing.assert_close(objective("softmax", smoothing)(logits, CLASSES), wanted, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_smoothed_sigmoid_is_torchs_summed_over_classes(smoothing, logits) -> None:
    soft = functional.one_hot(CLASSES, 7).double() * (1 - smoothing) + smoothing / 7
    wanted = functional.binary_cross_entropy_with_logits(logits, soft, reduction="none").sum(dim=1).float()
    torch.testing.assert_close(objective("sigmoid", smoothing)(logits.float(), CLASSES), wanted, rtol=1e-6, atol=1e-6)


def test_mixed_targets_are_smoothed_as_class_numbers_are(logits) -> None:
    one_hot = functional.one_hot(CLASSES, 7).double()
    mixed = 0.3 * one_hot + 0.7 * one_hot.roll(1, dims=0)
    alone, other = (objective("softmax", 0.1)(logits, classes) for classes in (CLASSES, CLASSES.roll(1)))
    found = objective("softmax", 0.1)(logits, mixed)
    torch.testing.assert_close(found, 0.3 * alone + 0.7 * other, rtol=1e-7, atol=1e-7)


def test_logits_that_overflow_a_plain_exponential() -> None:
    extreme = torch.tensor([[1000.0, -1000.0, 0.0]], requires_grad=True)
    for loss in (softmax_cross_entropy, sigmoid_cross_entropy):
        value = loss(extreme, torch.tensor([[0.0, 1.0, 0.0]])).sum()
        assert value.item() >= 2000
        (gradient,) = torch.autograd.grad(value, extreme)
        assert gradient.isfinite().all()
    assert softmax_cross_entropy(extreme, torch.tensor([[1.0, 0.0, 0.0]])).item() == 0


def test_shares() -> None:
    assert shares(torch.tensor([1, 0]), 3).tolist() == [[0, 1, 0], [1, 0, 0]]
    smooth = shares(torch.tensor([2]), 4, 0.2)
    torch.testing.assert_close(smooth, torch.tensor([[0.05, 0.05, 0.85, 0.05]]))
    given = torch.tensor([[0.25, 0.75]])
    assert shares(given, 2) is given


def test_hits_count_first_guesses_and_shares_of_mixed_targets() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [5.0, 0.0, 0.0]])
    assert hits(logits, torch.tensor([1, 2])).tolist() == [1, 0]
    mixed = torch.tensor([[0.25, 0.75, 0.0], [0.0, 1.0, 0.0]])
    assert hits(logits, mixed).tolist() == [0.75, 0]
