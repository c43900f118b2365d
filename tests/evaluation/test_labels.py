"""Which output is which class: names decide, numbers only where there are no names, and nothing is guessed."""

import warnings
from collections import defaultdict
from importlib.resources import files

import numpy as np
import pytest

from vitrail.data import Arrays, Labels
from vitrail.data.sources.class_names import ensure_named
from vitrail.errors import DataError, Notice, UsageError
from vitrail.evaluation.labels import match_classes
from vitrail.zoo.imagenet import imagenet_classes, imagenet_ids


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
        r"...; wanted classes among its 2: 'a', 'z'. Rename them .* classes=FILE",
    ):
        match_classes(data, ("a", "z"), 2, "model")


def test_as_many_classes_without_names_may_be_in_any_order() -> None:
    with pytest.warns(Notice, match="the names of its 2 classes are not known, .*cannot be told.*classes=data-order"):
        assert match_classes(source(("cat", "dog")), None, 2, "model").by == "order"
    found = match_classes(source(("cat", "dog")), None, 2, "model", is_in_order=True)
    assert (found.by, found.source.classes) == ("number", ("cat", "dog"))


def test_a_data_set_with_numbers_of_its_own_is_matched_by_them_and_said() -> None:
    digits = source(tuple("abc"))
    digits.name = "digits"
    with pytest.warns(Notice, match="taken to be those of the data, in their order: 'a', 'b', 'c'"):
        assert match_classes(digits, None, 3, "model").by == "number"


def test_class_names_that_are_numbers_are_those_of_outputs() -> None:
    """Sorted as text, 10 stands before 2."""
    names = tuple(sorted(map(str, range(11))))
    assert names[2] == "10"
    found = match_classes(source(names), None, 11, "model")
    assert found.by == "number"
    assert found.source.labels.values.tolist() == [int(name) for name in names]
    assert found.source.classes == tuple(map(str, range(11)))
    with pytest.warns(Notice, match="cannot be told"):
        assert match_classes(source(("1", "2", "3")), None, 3, "model").by == "order"


def test_another_number_of_classes_without_names_is_an_error() -> None:
    with pytest.raises(DataError, match=r"the data has 2 classes and the model 1,000, whose names are not .*classes="):
        match_classes(source(("cat", "dog")), None, 1000, "model")


def test_a_model_without_a_head() -> None:
    with pytest.raises(UsageError, match="my runs/m: the model has no head") as found:
        match_classes(source(("cat", "dog")), None, 0, "my runs/m")
    assert "`vitrail finetune 'my runs/m' --data FOLDER`" in str(found.value)
    assert "`vitrail fewshot 'my runs/m' --data FOLDER`" in str(found.value)


def test_a_thousand_wordnet_numbers_are_imagenets_classes_in_order() -> None:
    data = source(imagenet_ids())
    with pytest.warns(Notice, match="in their order: 'n01440764'"):
        assert match_classes(data, None, 1000, "model").by == "number"
    words = tuple(f"word {number}" for number in range(1000))
    with pytest.warns(Notice, match="is not known.*classes=imagenet"):
        found = match_classes(data, words, 1000, "model")
    assert (found.by, found.source.classes) == ("order", words)
    assert data.classes == imagenet_ids(), "the data is as it was"


# torchvision's names, WordNet's numbers, and all names of a class as the files of Hugging Face have them.
OUTPUTS = [
    imagenet_classes(),
    imagenet_ids(),
    tuple(f"{n} {name}" for n, name in zip(imagenet_ids(), imagenet_classes(), strict=True)),
]


@pytest.mark.parametrize("labels", OUTPUTS)
@pytest.mark.parametrize(
    "names",
    [
        ("n01440764", "n02012849", "n03710721"),
        ("tench", "crane bird", "maillot tank suit"),
        ("Tinca_tinca", "Crane_Bird", "tank suit"),
        ("n01440764_tench", "n02012849-crane", "maillot, tank suit"),
    ],
)
def test_a_few_classes_of_imagenet_by_any_of_their_names(labels, names) -> None:
    found = match_classes(source(names), labels, 1000, "model")
    assert found.by == "name"
    assert found.source.labels.values.tolist() == [0, 134, 639]
    assert found.source.classes == labels


def test_class_folders_of_imagenet_called_by_class_number() -> None:
    few = source(("007", "134", "999"))
    with pytest.warns(Notice, match="ImageNet's class numbers"):
        found = match_classes(few, imagenet_classes(), 1000, "model", is_said=True)
    assert found.source.labels.values.tolist() == [7, 134, 999]
    # Digits are no birds: nobody said that they are ImageNet's.
    with pytest.raises(DataError, match="unknown to the model"):
        match_classes(few, imagenet_classes(), 1000, "model")
    everything = source(tuple(sorted(map(str, range(1000)))))
    with pytest.warns(Notice, match="ImageNet's class numbers"):
        found = match_classes(everything, imagenet_classes(), 1000, "model")
    assert found.source.labels.values.tolist() == [int(name) for name in everything.classes]


def test_a_name_of_two_classes_is_met() -> None:
    with pytest.raises(DataError, match=r"'crane' may be n02012849 \(crane bird\) or n03126707 \(crane\)") as found:
        match_classes(source(("crane", "tench")), imagenet_classes(), 1000, "model")
    assert "WordNet number" in str(found.value)
    # Where the other one is there as well, it is clear.
    both = match_classes(source(("crane", "crane bird")), imagenet_classes(), 1000, "model")
    assert both.source.labels.values.tolist() == [517, 134]
    with pytest.warns(Notice, match=r"'maillot' for n03710721"):
        swimsuits = match_classes(source(("maillot", "n03710637")), imagenet_classes(), 1000, "model")
    assert swimsuits.source.labels.values.tolist() == [639, 638]


def test_only_what_is_none_of_imagenets_classes_is_named_as_unknown() -> None:
    names = ("Tinca_tinca", "n01443537", "unicorn", "puma")
    with pytest.raises(DataError, match=r"1 of the 4 classes .* unknown to the model: 'unicorn';"):
        match_classes(source(names), imagenet_classes(), 1000, "model", is_said=True)


def test_two_names_of_one_class_are_counted_as_one_and_told() -> None:
    with pytest.warns(Notice, match=r"counted as one: 'cougar', 'puma' are n02125311 \(cougar\)"):
        found = match_classes(source(("cougar", "tench", "puma")), imagenet_classes(), 1000, "model")
    assert found.source.labels.values.tolist() == [286, 0, 286]


def test_capitals_alone_do_not_tell_two_classes_apart() -> None:
    for name in ("Cardigan", "cardigan", "CARDIGAN"):
        with pytest.raises(DataError, match=f"{name!r} may be n02113186 .* or n02963159 .*WordNet number"):
            match_classes(source((name, "tench")), imagenet_classes(), 1000, "model")
    found = match_classes(source(("Cardigan", "cardigan")), imagenet_classes(), 1000, "model")
    assert found.source.labels.values.tolist() == [264, 474]
    found = match_classes(source(("cardigan", "n02113186")), imagenet_classes(), 1000, "model")
    assert found.source.labels.values.tolist() == [474, 264]


def test_a_name_that_is_taken_for_one_of_two_classes_is_told() -> None:
    with pytest.warns(Notice, match=r"'harp' for n03495258 \(harp\)"):
        match_classes(source(("harp", "tench")), imagenet_classes(), 1000, "model")
    with pytest.warns(Notice, match=r"'panther' for n02128925 \(jaguar\)"):
        match_classes(source(("panther", "cougar")), imagenet_classes(), 1000, "model")
    with pytest.raises(DataError, match=r"'panther' may be n02125311 \(cougar\) or n02128925 \(jaguar\)"):
        match_classes(source(("panther", "cougar", "jaguar")), imagenet_classes(), 1000, "model")


def test_no_name_of_the_list_is_guessed_in_silence() -> None:
    text = files("vitrail.zoo").joinpath("imagenet_classes.txt").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    bearers = defaultdict(set)
    for number, (_, *names) in enumerate(rows):
        for name in names:
            bearers[name.casefold().replace("-", " ")].add(number)
    ambiguous = 0
    for name in sorted({name for row in rows for name in row[1:]}):
        meant = bearers[name.casefold().replace("-", " ")]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                found = match_classes(source((name,)), imagenet_classes(), 1000, "model").source.labels.values.tolist()
            except DataError as error:
                assert len(meant) > 1 and all(rows[number][0] in str(error) for number in meant), name
                ambiguous += 1
                continue
        assert found[0] in meant and len(told) == (len(meant) > 1), name
        ambiguous += len(told)
    # As many names, and "Cardigan" in two spellings.
    assert ambiguous == sum(len(one) > 1 for one in bearers.values()) + 1 == 20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everything = match_classes(source(imagenet_classes()), imagenet_classes(), 1000, "model")
    assert everything.source.labels.values.tolist() == list(range(1000))


def test_imagenet_in_the_order_of_its_names_is_not_taken_for_its_own_order() -> None:
    folders = source(tuple(sorted(imagenet_classes())))
    with pytest.warns(Notice, match=r"cannot be told.*classes=imagenet"):
        assert match_classes(folders, None, 1000, "model").by == "order"
    found = match_classes(folders, imagenet_classes(), 1000, "model", is_said=True)
    assert [imagenet_classes()[number] for number in found.source.labels.values] == list(folders.classes)


def test_a_part_of_imagenet_for_a_model_without_names_says_how_to_name_them() -> None:
    with pytest.raises(DataError, match="classes=imagenet"):
        match_classes(source(imagenet_ids()[:10]), None, 1000, "model")


@pytest.mark.parametrize("names", [[f"n{number:08}" for number in range(999)], [f"class {n}" for n in range(1000)]])
def test_a_part_of_them_or_other_names_are_not(names) -> None:
    with pytest.raises(DataError, match="unknown to the model"):
        match_classes(source(tuple(names)), tuple(f"word {number}" for number in range(1000)), 1000, "model")


def test_a_file_of_names_of_another_model(tmp_path) -> None:
    with pytest.raises(UsageError, match=r"names.txt: there are 2 class names; wanted 1,000, one for each output of m"):
        ensure_named(("a", "b"), 1000, tmp_path / "names.txt", "m")


def test_two_outputs_of_one_name_are_not_guessed_between() -> None:
    with pytest.raises(DataError, match=r"the model has several outputs called 'crane'.*classes=FILE"):
        match_classes(source(("crane", "dog")), ("crane", "crane", "dog"), 3, "model")
    found = match_classes(source(("dog",)), ("crane", "crane", "dog"), 3, "model")
    assert found.source.labels.values.tolist() == [2]


def test_names_of_a_model_are_read_in_one_spelling_too() -> None:
    found = match_classes(source(("caf\u00e9", "dog")), ("dog", "cafe\u0301"), 2, "model")
    assert found.source.labels.values.tolist() == [1, 0]
