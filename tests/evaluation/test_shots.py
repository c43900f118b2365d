"""Which images are learnt from: the original's choice, and classes with too few."""

import numpy as np
import pytest

from vitrail.errors import DataError, UsageError
from vitrail.evaluation.shots import choose_shots


def test_the_choice_is_that_of_the_original(fixtures) -> None:
    original = np.load(fixtures / "fewshot_lsr" / "shot_selection.npz")
    names = [name for name in original if name != "labels"]
    assert len(names) == 9
    for name in names:
        seed, shots = (int(word) for word in name.removeprefix("seed").split("_shots"))
        np.testing.assert_array_equal(choose_shots(original["labels"], shots, seed), original[name])


def test_few_shots_are_the_first_of_many_and_seeds_differ() -> None:
    labels = np.random.default_rng(0).integers(0, 5, 200)
    few, many = choose_shots(labels, 3, 7).reshape(5, 3), choose_shots(labels, 11, 7).reshape(5, 11)
    np.testing.assert_array_equal(few, many[:, :3])
    assert (labels[many] == np.arange(5)[:, None]).all()
    assert len(np.unique(many)) == 55
    assert (choose_shots(labels, 3, 8).reshape(5, 3) != few).any()


def test_a_class_with_too_few_images_is_named_with_its_count() -> None:
    labels = np.array([0] * 5 + [1] * 3 + [2] * 1)
    with pytest.raises(DataError) as error:
        choose_shots(labels, 2, 0, ("ant", "bee", "cow"))
    assert str(error.value) == (
        "the class 'cow' has 1 image; wanted 2 of each for 2-shot. Ask for at most 1 with shots."
    )
    with pytest.raises(DataError, match=r"the class 'bee' has 3 images, and 1 more of 3 classes have fewer than 5; "):
        choose_shots(labels, 5, 0, ("ant", "bee", "cow"))
    assert len(choose_shots(labels, 1, 0, ("ant", "bee", "cow"))) == 3


def test_a_class_without_images_is_not_passed_over() -> None:
    with pytest.raises(DataError, match=r"the class 'dog' has 0 images; .* Take more of the data"):
        choose_shots(np.array([0, 1, 2]), 1, 0, ("ant", "bee", "cow", "dog"))
    with pytest.raises(DataError, match="the class 1 has 0 images"):
        choose_shots(np.array([0, 2]), 1, 0)


@pytest.mark.parametrize(("shots", "seed"), [(0, 0), (-1, 0), (1, -1)])
def test_numbers_that_are_none(shots, seed) -> None:
    with pytest.raises(UsageError):
        choose_shots(np.array([0, 1]), shots, seed)
