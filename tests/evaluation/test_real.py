"""ReaL labels: the rule of the paper, the real file where it is at hand, and files that are something else."""

import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from vitrail.data import Labels, Source
from vitrail.errors import DataError, Notice, UsageError
from vitrail.evaluation.real import RealLabels, match_real, measure_real, read_real


class Named(Source):
    """Images that are nothing but names."""

    name, split = "imagenet", "val"

    def __init__(self, places: list[str], labels: Labels | None = None, classes: int = 1000) -> None:
        self.places, self.classes = places, tuple(f"class {number}" for number in range(classes))
        self.labels = labels or Labels.of(np.zeros(len(places), np.int64), classes)

    def read(self, index: int) -> bytes:
        raise AssertionError("no image is needed")

    def where(self, index: int) -> str:
        return self.places[index]

    def manifest(self) -> Iterable[bytes]:
        return [place.encode() for place in self.places]


def place(number: int) -> str:
    return f"imagenet/val/n{number % 7:08}/ILSVRC2012_val_{number:08}.JPEG"


def labels_of(sets: list[list[int]]) -> RealLabels:
    return RealLabels("real.json", "", tuple(map(frozenset, sets)))


def test_a_guess_in_the_set_is_right_and_empty_sets_are_skipped_and_counted() -> None:
    real = labels_of([[3, 5], [], [1], [2, 3, 4], []])
    # As class folders have them: not in the order of the numbers.
    source = Named([place(number) for number in (4, 1, 5, 3, 2)], Labels.of([4, 3, 0, 2, 0], 10), classes=10)
    sets = match_real(real, source)
    assert sets == [{2, 3, 4}, {3, 5}, set(), {1}, set()]
    found = measure_real(np.array([3, 5, 0, 0, 9]), sets, source.labels.values, real)
    assert (found.top1.right, found.top1.images) == (2, 3)
    assert (found.images, found.labelled, found.skipped) == (5, 3, 2)
    assert found.agreement == pytest.approx(2 / 3)
    assert found.top1.low < 2 / 3 < found.top1.high


def test_random_predictions_are_counted_as_the_real_file_says() -> None:
    """Against a direct count on the published labels, in the order of the class folders."""
    pytest.importorskip("timm")
    path = Path(str(resources.files("timm") / "data" / "_info" / "imagenet_real_labels.json"))
    published = json.loads(path.read_text())
    generator = np.random.default_rng(5)
    numbers = generator.permutation(50_000) + 1
    # A third of the guesses are taken from the sets, so that many are right.
    by_number = generator.integers(0, 1000, 50_000)
    by_number[::3] = [one[-1] if one else 0 for one in published[::3]]
    guesses = by_number[numbers - 1]
    truth = np.array([one[0] if one else 0 for one in published])[numbers - 1]
    source = Named([place(int(number)) for number in numbers], Labels.of(truth, 1000))
    real = read_real(path)
    found = measure_real(guesses, match_real(real, source), source.labels.values, real)
    right = sum(int(guess) in labels for guess, labels in zip(by_number, published, strict=True) if labels)
    assert found.labelled == found.top1.images == 46_837
    assert (found.images, found.skipped) == (50_000, 3_163)
    assert found.top1.right == right > 15_000
    assert found.agreement == 1


def test_a_part_of_the_validation_set_is_looked_up_by_number() -> None:
    real = labels_of([[number % 10] for number in range(50_000)])
    source = Named([place(50_000), place(13)], classes=10)
    assert match_real(real, source) == [{9}, {2}]


def test_another_order_of_classes_is_noticed() -> None:
    real, source = labels_of([[1], [2], [3]]), Named([place(1), place(2), place(3)], Labels.of([5, 6, 7], 10), 10)
    with pytest.warns(Notice, match=r"the ReaL set of 0\.0% of the images only.*ReaL accuracy is right"):
        measure_real(np.array([1, 2, 3]), match_real(real, source), source.labels.values, real)


def test_what_is_right_by_real_labels_does_not_depend_on_those_of_the_data() -> None:
    real, source = labels_of([[1], [2], [3]]), Named([place(1), place(2), place(3)], Labels.of([5, 6, 7], 10), 10)
    found = measure_real(np.array([1, 2, 0]), match_real(real, source), None, real)
    assert (found.top1.right, found.agreement) == (2, None)


@pytest.mark.parametrize(
    ("sets", "source", "message"),
    [
        ([[1]] * 3, Named([place(1), place(2)]), r"labels of 3 images; wanted the 50,000 .* as many as the 2 of the"),
        ([[1]] * 49_999, Named([place(1)] * 50_000), "labels of 49,999 images; wanted the 50,000"),
        ([[1], [1000]], Named([place(1), place(2)]), "the class number 1,000; wanted numbers of the 1,000 classes"),
        ([[], []], Named([place(1), place(2)]), "none of the 2 images of the data has a label"),
        ([[1], [1]], Named([place(1), "cat/1.jpg"]), r"cat/1.jpg: its name has no number .* ILSVRC2012_val_00000001"),
        ([[1], [1]], Named([place(1), place(3)]), r"_00000003.JPEG: its number is 3; wanted one of the 2 images"),
        ([[1], [1]], Named([place(1), place(0)]), "its number is 0"),
    ],
)
def test_labels_that_do_not_fit_the_data(sets, source, message) -> None:
    with pytest.raises(DataError, match=message):
        match_real(labels_of(sets), source)


def test_images_of_several_labels_have_no_real_ones() -> None:
    source = Named([place(1)], Labels.of_many([[1, 2]], 1000))
    with pytest.raises(UsageError, match="several labels per image; wanted ImageNet for real"):
        match_real(labels_of([[1]]), source)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is no JSON"),
        ("[[1], [2]", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"a": [1]}', "holds an object; wanted a list of lists of class numbers"),
        ("[[1], 2]", "entry 1 is 2; wanted a list of class numbers"),
        ('[[1], {"0": 1}]', "entry 1 is an object"),
        ('[["cat"]]', "entry 0 holds 'cat'; wanted class numbers"),
        ("[[true]]", "entry 0 holds 'True'"),
        ("[[1.5]]", "entry 0 holds '1.5'"),
        ("[[-1]]", "entry 0 holds '-1'"),
    ],
)
def test_files_that_are_something_else(tmp_path, content, message) -> None:
    (tmp_path / "real.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_real(tmp_path / "real.json")


def test_a_file_that_is_not_there(tmp_path) -> None:
    with pytest.raises(DataError, match=r"real.json: cannot be read \(No such file"):
        read_real(tmp_path / "real.json")
