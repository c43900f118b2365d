"""One class per image, or any number of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitrail.data.sources.labels import Labels

MANY = st.lists(st.lists(st.integers(0, 5), unique=True, max_size=4), max_size=12)


def test_one_class_per_image() -> None:
    labels = Labels.of([2, 0, 2], 4)
    assert len(labels) == 3
    assert not labels.is_multi
    assert labels.classes_of(0) == (2,)
    assert labels.counts().tolist() == [1, 0, 2, 0]
    targets = labels.targets(np.array([2, 1]))
    assert targets.dtype == torch.int64
    assert targets.tolist() == [2, 0]


def test_several_classes_per_image_or_none() -> None:
    labels = Labels.of_many([[0, 2], [], [1]], 3)
    assert len(labels) == 3
    assert labels.is_multi
    assert [labels.classes_of(index) for index in range(3)] == [(0, 2), (), (1,)]
    assert labels.counts().tolist() == [1, 1, 1]
    targets = labels.targets(np.array([2, 0, 1]))
    assert targets.dtype == torch.float32
    assert targets.tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]


@given(MANY, st.data())
def test_a_selection_keeps_order_and_repeats(many, data) -> None:
    labels = Labels.of_many(many, 6)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(many) - 1))) if many else [], dtype=np.int64)
    part = labels.select(chosen)
    assert part.is_multi
    assert part.num_classes == 6
    assert [part.classes_of(index) for index in range(len(part))] == [labels.classes_of(int(each)) for each in chosen]
    assert torch.equal(part.targets(np.arange(len(part))), labels.targets(chosen))


@given(st.lists(st.integers(0, 5), min_size=1), st.data())
def test_a_selection_of_single_labels(classes, data) -> None:
    chosen = np.array(data.draw(st.lists(st.integers(0, len(classes) - 1))), dtype=np.int64)
    part = Labels.of(classes, 6).select(chosen)
    assert not part.is_multi
    assert part.values.tolist() == [classes[index] for index in chosen]


def test_no_images() -> None:
    for labels in (Labels.of([], 3), Labels.of_many([], 3)):
        assert len(labels) == 0
        assert labels.counts().tolist() == [0, 0, 0]
        assert len(labels.select(np.array([], dtype=np.int64))) == 0
    assert Labels.of([], 3).targets(np.array([], dtype=np.int64)).shape == (0,)
    assert Labels.of_many([], 3).targets(np.array([], dtype=np.int64)).shape == (0, 3)


def test_an_image_that_does_not_exist() -> None:
    with pytest.raises(IndexError):
        Labels.of([1, 2], 3).classes_of(2)
    with pytest.raises(IndexError):
        Labels.of_many([[1]], 3).classes_of(1)


def test_shares_stay_with_their_images() -> None:
    shares = np.array([[0.25, 0.75], [0.5, 0.5], [1, 0]], np.float16)
    labels = Labels(np.array([1, 0, 0]), 2, shares=shares)
    assert not labels.is_multi and labels.counts().tolist() == [2, 1]
    targets = labels.targets(np.array([1, 0]))
    assert targets.dtype == torch.float32 and targets.tolist() == [[0.5, 0.5], [0.25, 0.75]]
    some = labels.select(np.array([2, 0, 0]))
    assert some.values.tolist() == [0, 1, 1]
    assert some.targets(np.arange(3)).tolist() == [[1, 0], [0.25, 0.75], [0.25, 0.75]]


def test_known_classes_beside_shares_have_all_of_their_image() -> None:
    known, shared = Labels.of([1, 0], 2), Labels(np.array([1]), 2, shares=np.array([[0.25, 0.75]], np.float16))
    joined = Labels.joined([known, shared])
    assert joined.values.tolist() == [1, 0, 1]
    assert joined.targets(np.arange(3)).tolist() == [[0, 1], [1, 0], [0.25, 0.75]]
    assert Labels.joined([known, known]).targets(np.arange(4)).tolist() == [1, 0, 1, 0]
