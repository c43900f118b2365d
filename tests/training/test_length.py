"""How long a run is, how a batch is cut, and when an epoch ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.config import TrainConfig
from vitrail.errors import UsageError
from vitrail.training.schedule import epoch_of, evaluation_interval, is_milestone, micro_batch, total_steps


def train(**changes) -> TrainConfig:
    return TrainConfig(**({"loss": "softmax", "batch_size": 8} | changes))


@given(epochs=st.integers(1, 50), images=st.integers(1, 10**5), batch=st.integers(1, 5000))
def test_the_last_step_is_the_first_to_finish_the_last_epoch(epochs, images, batch) -> None:
    steps = total_steps(train(epochs=epochs, batch_size=batch), images)
    assert steps * batch >= epochs * images > (steps - 1) * batch


def test_steps_are_taken_as_they_are() -> None:
    assert total_steps(train(steps=7), 10**9) == 7


@given(every=st.integers(1, 4), images=st.integers(1, 300), batch=st.integers(1, 400), epochs=st.integers(1, 6))
def test_every_epoch_end_is_a_milestone_exactly_once(every, images, batch, epochs) -> None:
    steps = -(-epochs * every * images // batch)
    found = [step for step in range(1, steps + 1) if is_milestone(step, every, batch, images)]
    # The first step after which k spans are done; a batch larger than a span ends several at once.
    wanted = {-(-number * every * images // batch) for number in range(1, epochs + 1)}
    assert set(found) == wanted
    for step in found:
        before, after = ((step - 1) * batch) // (every * images), (step * batch) // (every * images)
        assert after > before


@given(wanted=st.integers(1, 600), batch=st.integers(1, 600))
def test_a_micro_batch_divides_the_batch_and_none_larger_would(wanted, batch) -> None:
    size = micro_batch(wanted, batch)
    assert batch % size == 0
    assert 1 <= size <= wanted
    assert not [other for other in range(size + 1, min(wanted, batch) + 1) if batch % other == 0]


def test_a_batch_that_no_pair_divides_is_refused() -> None:
    assert micro_batch(6, 12, smallest=2) == 6
    for wanted, batch in ((1, 12), (3, 7), (6, 1)):
        with pytest.raises(UsageError, match=f"micro_batch is {wanted}; wanted at least 2 and a divisor of {batch}"):
            micro_batch(wanted, batch, smallest=2)


def test_epochs_as_fractions() -> None:
    assert epoch_of(0, 8, 100) == 0
    assert epoch_of(25, 8, 100) == 2


@pytest.mark.parametrize(
    ("changes", "images", "wanted"),
    [
        ({"epochs": 3}, 100, 1),
        ({"epochs": 200}, 100, 10),
        ({"steps": 1}, 10**6, 1),
        ({"steps": 25_000}, 1000, 10),
        ({"epochs": 200, "evaluate_every": 3}, 100, 3),
    ],
)
def test_about_twenty_evaluations(changes, images, wanted) -> None:
    assert evaluation_interval(train(**changes), images) == wanted
