"""What a network says: every image once, ties, several classes, and memory that runs out."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, top_k_accuracy_score
from torch import nn

from vitrail.config import Preprocessing
from vitrail.data import Arrays, Labels, Preparation
from vitrail.evaluation import Predictions, classify, measure

CLASSES = 7
PREPARATION = Preparation(
    size=(4, 4), channels=1, preprocessing=Preprocessing(mean=(0.5,), std=(0.5,), interpolation="bilinear")
)


def source(images: int = 23, classes: int = CLASSES, labels: Labels | None = None) -> Arrays:
    """Image i has the grey level i everywhere, so that a network can see which one it is."""
    pixels = np.broadcast_to(np.arange(images, dtype=np.uint8)[:, None, None], (images, 4, 4)).copy()
    names = tuple(f"class {number}" for number in range(classes))
    return Arrays("levels", "test", names, labels or Labels.of(np.arange(images) % classes, classes), pixels)


def number_of(images: torch.Tensor) -> torch.Tensor:
    return ((images[:, 0, 0, 0] + 1) / 2 * 255).round().long()


class Table(nn.Module):
    """Logits by image number, and a record of what was asked."""

    def __init__(self, images: int = 23, classes: int = CLASSES) -> None:
        super().__init__()
        self.logits = torch.randn(images, classes, generator=torch.Generator().manual_seed(8))
        self.seen: list[list[int]] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        numbers = number_of(images)
        self.seen.append(numbers.tolist())
        return self.logits[numbers]


def same(came: Predictions, wanted: Predictions) -> bool:
    return all(np.array_equal(vars(came)[name], vars(wanted)[name]) for name in vars(wanted))


@pytest.mark.parametrize("batch_size", [1, 5, 22, 23, 100])
@pytest.mark.parametrize("workers", [0, 1])
def test_every_image_once_and_in_order(batch_size, workers) -> None:
    network, told = Table(), []
    found = classify(network, source(), PREPARATION, batch_size=batch_size, workers=workers, advance=told.append)
    assert [number for batch in network.seen for number in batch] == list(range(23))
    assert [len(batch) for batch in network.seen] == told
    assert sum(told) == len(found) == 23
    assert same(found, classify(Table(), source(), PREPARATION, batch_size=23))


def test_the_answers_are_those_of_the_logits() -> None:
    network = Table()
    found = classify(network, source(), PREPARATION, batch_size=10)
    labels, scores = np.arange(23) % CLASSES, network.logits.softmax(1).numpy()
    np.testing.assert_array_equal(found.guesses, np.argsort(-network.logits.numpy(), axis=1)[:, :5])
    np.testing.assert_allclose(found.confidence, -np.sort(-scores, axis=1)[:, :5], rtol=1e-6)
    np.testing.assert_array_equal(found.right, found.guesses == labels[:, None])
    wanted = nn.functional.cross_entropy(network.logits, torch.from_numpy(labels), reduction="none")
    np.testing.assert_allclose(found.losses, wanted.numpy(), rtol=1e-6)
    numbers = measure(found)
    assert numbers.top5 == top_k_accuracy_score(labels, scores, k=5)
    assert numbers.loss == pytest.approx(log_loss(labels, scores, labels=range(CLASSES)), rel=1e-5)
    assert {name: vars(found)[name].dtype.name for name in vars(found)} == {
        "guesses": "int64", "confidence": "float32", "right": "bool", "losses": "float32",
    }  # fmt: skip


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_fewer_than_five_classes_give_fewer_guesses(classes) -> None:
    found = classify(Table(classes=classes), source(classes=classes), PREPARATION, batch_size=9)
    assert found.guesses.shape == found.confidence.shape == found.right.shape == (23, classes)
    assert measure(found).top5 == 1


def test_ties_go_to_the_lower_class_number() -> None:
    """A zero head says the same of every class."""
    found = classify(lambda images: torch.zeros(len(images), CLASSES), source(), PREPARATION, batch_size=9)
    np.testing.assert_array_equal(found.guesses, np.tile(np.arange(5), (23, 1)))


def test_images_of_several_classes_and_of_none() -> None:
    wanted = [[0, 2], [], [6], [1, 3, 5]]
    labels = Labels.of_many(wanted, CLASSES)
    network = Table(4)
    found = classify(network, source(4, labels=labels), PREPARATION, batch_size=3, sigmoid=True)
    for row in range(4):
        assert found.right[row].tolist() == [int(guess) in wanted[row] for guess in found.guesses[row]]
    hot = torch.zeros(4, CLASSES)
    for row, classes in enumerate(wanted):
        hot[row, classes] = 1
    losses = nn.functional.binary_cross_entropy_with_logits(network.logits, hot, reduction="none").sum(1)
    np.testing.assert_allclose(found.losses, losses.numpy(), rtol=1e-6)
    np.testing.assert_allclose(found.confidence[:, 0], network.logits.sigmoid().amax(1).numpy(), rtol=1e-6)


def test_of_soft_labels_only_the_largest_share_is_right() -> None:
    shares = np.full((4, CLASSES), 0.05, np.float16)
    shares[np.arange(4), [3, 1, 6, 0]] = 0.7
    labels = Labels(np.array([3, 1, 6, 0]), CLASSES, shares=shares)
    network = Table(4)
    found = classify(network, source(4, labels=labels), PREPARATION, batch_size=3)
    assert found.right.tolist() == (found.guesses == labels.values[:, None]).tolist()
    assert not found.right.all()


def test_sigmoid_reads_each_class_by_itself() -> None:
    plain, each = (classify(Table(), source(), PREPARATION, batch_size=23, sigmoid=kind) for kind in (False, True))
    np.testing.assert_array_equal(plain.guesses, each.guesses)
    assert (each.confidence[:, 0] > plain.confidence[:, 0]).all()
    assert (each.losses != plain.losses).all()


class Tight(Table):
    """Has room for a few images only."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if len(images) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(images)


@pytest.mark.parametrize("room", [1, 3, 10])
def test_less_memory_gives_the_same_answers(room) -> None:
    network = Tight(room)
    found = classify(network, source(), PREPARATION, batch_size=16)
    assert same(found, classify(Table(), source(), PREPARATION, batch_size=16))
    assert max(len(batch) for batch in network.seen) <= room
    # What did not fit once is not tried again.
    assert len(network.seen[-1]) <= max(len(batch) for batch in network.seen)


def test_no_room_for_one_image_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        classify(Tight(0), source(), PREPARATION, batch_size=16)


def test_memory_that_runs_out_on_a_cpu_is_met_too() -> None:
    class Machine(Tight):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if len(images) > self.room:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")
            return super().forward(images)

    assert len(classify(Machine(3), source(), PREPARATION, batch_size=16)) == 23


def test_other_errors_are_not_taken_for_memory() -> None:
    def broken(images: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        classify(broken, source(), PREPARATION, batch_size=16)


def test_no_gradients_are_kept_and_bfloat16_answers_in_float32() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES))
    seen = []
    model.register_forward_hook(lambda _module, _inputs, output: seen.append((output.dtype, output.requires_grad)))
    exact = classify(model, source(), PREPARATION, batch_size=23)
    rough = classify(model, source(), PREPARATION, batch_size=23, bfloat16=True)
    assert seen == [(torch.float32, False), (torch.bfloat16, False)]
    assert rough.losses.dtype == np.float32
    np.testing.assert_allclose(rough.losses, exact.losses, atol=0.05)


def test_a_network_that_gives_no_numbers_is_counted_all_the_same() -> None:
    found = classify(lambda images: torch.full((len(images), CLASSES), torch.nan), source(), PREPARATION, batch_size=9)
    assert len(found) == 23
    assert np.isnan(found.losses).all()
