"""A queue is full when what waits takes too long, however many that are."""

from contextlib import ExitStack

import pytest

from vitrail.serving.engine.job import Refused
from vitrail.serving.engine.room import Room


def fill(room: Room) -> int:
    """How many get in."""
    with ExitStack() as places:
        with pytest.raises(Refused) as refused:
            for _ in range(10_000):
                places.enter_context(room.taken())
        assert refused.value.reason == "busy"
        assert refused.value.retry_after > 0
        return room.count


@pytest.mark.parametrize(("seconds", "places"), [(0.1, 11), (0.25, 5), (0.01, 101), (60, 1)])
def test_room_is_counted_in_seconds(seconds, places) -> None:
    assert fill(Room(1.0, seconds)) == places


def test_one_who_leaves_makes_room() -> None:
    room = Room(1.0, 0.6)
    with room.taken():
        with room.taken(), pytest.raises(Refused):
            room.ensure()
        room.ensure()
    assert room.count == 0


def test_the_pace_is_that_of_batches_one_behind_the_other() -> None:
    room = Room(1.0, 5.0)
    # All were asked for at 0, and eight of them are done every 0.4 s.
    for number in range(1, 60):
        room.measure(8, 0.0, 0.4 * number)
    assert room.seconds_each == pytest.approx(0.05, rel=0.02)


def test_a_pause_without_work_does_not_count() -> None:
    room = Room(1.0, 0.05)
    for number in range(60):
        # One image every ten seconds, each answered after 0.05 s.
        room.measure(1, 10.0 * number, 10.0 * number + 0.05)
    assert room.seconds_each == pytest.approx(0.05)


def test_a_new_model_is_not_judged_by_the_old_one() -> None:
    room = Room(1.0, 5.0)
    room.expect(0.01)
    assert fill(room) == 101
