"""Class names decide, never class numbers."""

import numpy as np
import pytest

from vitrail.data import Arrays, Labels, OpenOptions, open_data
from vitrail.data.sources.classes import ensure_trainable, with_classes
from vitrail.data.sources.parts import parse_part, take_part
from vitrail.errors import DataError


def source(classes: tuple[str, ...], values: list[int]) -> Arrays:
    pixels = np.zeros((len(values), 2, 2), np.uint8)
    return Arrays("pets", "val", classes, Labels.of(values, len(classes)), pixels)


def named(source) -> list[str]:
    return [source.classes[number] for number in source.labels.values]


def test_images_are_numbered_by_the_names_of_a_model() -> None:
    ours = source(("cat", "dog"), [0, 1, 1])
    theirs = with_classes(ours, ("wolf", "dog", "cat"))
    assert theirs.classes == ("wolf", "dog", "cat")
    assert theirs.labels.num_classes == 3
    assert theirs.labels.values.tolist() == [2, 1, 1]
    assert named(theirs) == named(ours) == ["cat", "dog", "dog"]
    # The one that was given stays as it was.
    assert ours.labels.values.tolist() == [0, 1, 1]
    assert ours.classes == ("cat", "dog")


def test_equal_classes_change_nothing() -> None:
    ours = source(("cat", "dog"), [0, 1])
    assert with_classes(ours, ("cat", "dog")) is ours


def test_an_unknown_class_is_named() -> None:
    with pytest.raises(DataError, match=r"^pets, val: the class 'lynx' is not one of the 2 known ones; wanted .*'cat'"):
        with_classes(source(("cat", "lynx"), [0, 1]), ("cat", "dog"))
    many = tuple(f"class {number}" for number in range(1000))
    with pytest.raises(DataError, match=r"1000 known ones.*'class 4', \.\.\.") as caught:
        with_classes(source(("cat", "lynx"), [0, 1]), many)
    assert len(str(caught.value)) < 300


def test_an_unknown_class_without_images_does_no_harm() -> None:
    theirs = with_classes(source(("cat", "empty", "dog"), [0, 2, 2]), ("dog", "cat"))
    assert named(theirs) == ["cat", "dog", "dog"]


def test_names_that_only_look_alike_are_different() -> None:
    with pytest.raises(DataError, match="'Cat'"):
        with_classes(source(("Cat", "dog"), [0, 1]), ("cat", "dog"))


def test_several_classes_per_image() -> None:
    labels = Labels.of_many([[0, 1], [], [1]], 2)
    ours = Arrays("many", "train", ("cat", "dog"), labels, np.zeros((3, 1, 1), np.uint8))
    theirs = with_classes(ours, ("dog", "wolf", "cat"))
    assert [theirs.labels.classes_of(index) for index in range(3)] == [(2, 0), (), (0,)]


def test_a_part_is_mapped_like_the_whole() -> None:
    half = take_part(source(("cat", "dog"), [0, 1] * 5), parse_part("val[:50%]"))
    theirs = with_classes(half, ("dog", "cat"))
    assert named(theirs) == named(half)
    assert theirs.ids(np.arange(5)).tolist() == half.ids(np.arange(5)).tolist()


def test_opening_for_a_model() -> None:
    digits = tuple(str(number) for number in reversed(range(10)))
    theirs = open_data("digits", "test", options=OpenOptions(classes=digits))
    ours = open_data("digits", "test")
    assert theirs.classes == digits
    assert theirs.labels.values.tolist() == (9 - ours.labels.values).tolist()


def test_what_cannot_be_learnt() -> None:
    with pytest.raises(DataError, match=r"^pets, val: there are no images"):
        ensure_trainable(source(("a", "b"), []))
    with pytest.raises(DataError, match=r"^pets: there is one class, 'a'; wanted two or more to tell apart") as caught:
        ensure_trainable(source(("a",), [0, 0]))
    assert "Add a folder" in caught.value.fix
    ensure_trainable(source(("a", "b"), [0, 1]))
    one = Arrays("many", "train", ("a",), Labels.of_many([[0], []], 1), np.zeros((2, 1, 1), np.uint8))
    ensure_trainable(one)
