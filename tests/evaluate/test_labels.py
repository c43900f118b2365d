"""Which output is which class: names decide, numbers only where there are no names, and nothing is guessed."""

import numpy as np
import pytest

from vitrail.data import Arrays, Labels
from vitrail.data.sources.class_names import ensure_named
from vitrail.errors import DataError, Notice, UsageError
from vitrail.evaluate.labels import match_classes


def source(classes: tuple[str, ...], labels: list[int] | None = None) -> Arrays:
    numbers = list(range(len(classes))) if labels is None else labels
    pixels = np.zeros((len(numbers), 2, 2), np.uint8)
    return Arrays("pictures", "test", classes, Labels.of(numbers, len(classes)), pixels)


def test_names_decide() -> None:
    found = match_classes(source(("cat", "dog")), ("dog", "eel", "cat"), 3, "model")
    assert found.by == "name"
    assert found.source.labels.values.tolist() == [2, 0]
    assert found.source.classes == ("dog", "eel", "cat")


def test_a_name_that_no_image_carries_need_not_be_known() -> None:
    found = match_classes(source(("cat", "dog", "emu"), [0, 1, 1]), ("dog", "cat"), 2, "model")
    assert found.source.labels.values.tolist() == [1, 0, 0]


def test_unknown_names_are_listed() -> None:
    data = source(tuple("abcdefgh"))
    with pytest.raises(
        DataError,
        match=r"pictures, test: 7 of the 8 classes of the data are unknown to the model: 'b', 'c', 'd', 'e', 'f', "
        r"...; wanted classes among its 2: 'a', 'z'. Rename them .* --classes FILE",
    ):
        match_classes(data, ("a", "z"), 2, "model")


def test_as_many_classes_without_names_are_matched_by_number_and_said() -> None:
    with pytest.warns(Notice, match="model: the names of its 2 classes are not known, .* in their order: 'cat', 'dog'"):
        found = match_classes(source(("cat", "dog")), None, 2, "model")
    assert (found.by, found.source.classes) == ("number", ("cat", "dog"))


def test_another_number_of_classes_without_names_is_an_error() -> None:
    with pytest.raises(DataError, match=r"the data has 2 classes and the model 1,000, whose names are not .*--classes"):
        match_classes(source(("cat", "dog")), None, 1000, "model")


def test_a_model_without_a_head() -> None:
    with pytest.raises(UsageError, match="my runs/m: the model has no head") as found:
        match_classes(source(("cat", "dog")), None, 0, "my runs/m")
    assert "`vitrail finetune 'my runs/m' --data FOLDER`" in str(found.value)
    assert "`vitrail fewshot 'my runs/m' --data FOLDER`" in str(found.value)


def test_a_thousand_wordnet_numbers_are_imagenets_classes_in_order() -> None:
    """Class folders of ImageNet for a model whose labels are words."""
    data = source(tuple(f"n{number:08}" for number in range(1000)))
    words = tuple(f"word {number}" for number in range(1000))
    with pytest.warns(Notice, match="they are matched by number, in the order of the WordNet numbers"):
        found = match_classes(data, words, 1000, "model")
    assert (found.by, found.source.classes) == ("number", words)
    np.testing.assert_array_equal(found.source.labels.values, np.arange(1000))
    assert data.classes[0] == "n00000000", "the data is as it was"


@pytest.mark.parametrize("names", [[f"n{number:08}" for number in range(999)], [f"class {n}" for n in range(1000)]])
def test_a_part_of_them_or_other_names_are_not(names) -> None:
    with pytest.raises(DataError, match="unknown to the model"):
        match_classes(source(tuple(names)), tuple(f"word {number}" for number in range(1000)), 1000, "model")


def test_a_file_of_names_of_another_model(tmp_path) -> None:
    with pytest.raises(UsageError, match=r"names.txt: there are 2 class names; wanted 1,000, one for each output of m"):
        ensure_named(("a", "b"), 1000, tmp_path / "names.txt", "m")


def test_two_outputs_of_one_name_are_not_guessed_between() -> None:
    with pytest.raises(DataError, match=r"the model has several outputs called 'crane'.*--classes FILE"):
        match_classes(source(("crane", "dog")), ("crane", "crane", "dog"), 3, "model")
    found = match_classes(source(("dog",)), ("crane", "crane", "dog"), 3, "model")
    assert found.source.labels.values.tolist() == [2]


def test_names_of_a_model_are_read_in_one_spelling_too() -> None:
    found = match_classes(source(("caf\u00e9", "dog")), ("dog", "cafe\u0301"), 2, "model")
    assert found.source.labels.values.tolist() == [1, 0]
