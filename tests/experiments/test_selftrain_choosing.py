"""The threshold and the balance of Noisy Student."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.errors import UsageError
from vitrail.experiments.selftrain_choosing import Choice, choose_images, middle

ANSWERS = st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1, width=32)), min_size=1, max_size=60)


def arrays(answers: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([guess for guess, _ in answers]), np.array([sure for _, sure in answers], np.float32)


@given(ANSWERS, st.floats(0, 0.99))
def test_without_balance_every_sure_image_is_learnt_from_once(answers, threshold) -> None:
    guesses, confidence = arrays(answers)
    chosen = choose_images(guesses, confidence, 5, Choice(threshold=threshold, balance=False))
    assert chosen.tolist() == [place for place, sure in enumerate(confidence) if sure >= threshold]


@given(ANSWERS, st.floats(0, 0.99), st.none() | st.integers(1, 30))
def test_every_class_gets_the_same_number_and_its_surest_images(answers, threshold, per_class) -> None:
    guesses, confidence = arrays(answers)
    chosen = choose_images(guesses, confidence, 5, Choice(threshold=threshold, per_class=per_class))
    assert (confidence[chosen] >= threshold).all() and (np.diff(chosen) >= 0).all()
    sure = [np.flatnonzero((guesses == number) & (confidence >= threshold)) for number in range(5)]
    there = [group for group in sure if len(group)]
    if not there:
        assert not len(chosen)
        return
    wanted = per_class or sorted(map(len, there))[(len(there) - 1) // 2]
    for number, group in enumerate(sure):
        mine = chosen[guesses[chosen] == number]
        assert len(mine) == (wanted if len(group) else 0)
        if not len(group):
            continue
        places, times = np.unique(mine, return_counts=True)
        # None is left out for a less sure one, and repetitions are shared out evenly.
        assert len(places) == min(wanted, len(group))
        left = np.setdiff1d(group, places)
        assert not len(left) or confidence[left].max() <= confidence[places].min()
        assert times.max() - times.min() <= 1


def test_an_example() -> None:
    guesses = np.array([0, 0, 0, 1, 2, 2])
    confidence = np.array([0.5, 0.9, 0.8, 0.7, 0.2, 0.6], np.float32)
    assert choose_images(guesses, confidence, 4, Choice(per_class=2)).tolist() == [1, 2, 3, 3, 5, 5]
    assert choose_images(guesses, confidence, 4, Choice()).tolist() == [1, 3, 5]


def test_the_class_in_the_middle() -> None:
    assert middle(np.array([0, 7, 1, 100, 0, 3])) == 3
    assert middle(np.array([0, 5])) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 1.0},
        {"threshold": -0.1},
        {"per_class": 0},
        {"per_class": 10**12},
        {"labels": "firm"},
        {"balance": False, "per_class": 3},
    ],
)
def test_what_makes_no_choice_is_refused(wrong) -> None:
    with pytest.raises(UsageError):
        Choice(**wrong)
