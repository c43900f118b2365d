"""Who is computed next, with whom, and who never is."""

import threading
import time

import numpy as np
import pytest

from vitrail.prediction.predictor import Prepared
from vitrail.serving.engine.board import _SECONDS_A_PIXEL, Board, Task
from vitrail.serving.engine.watch import Watch
from vitrail.serving.looks.prepare import Weight

IMAGE = Prepared(np.zeros((3, 2, 2), dtype=np.float32), np.zeros((2, 2, 3), dtype=np.uint8), 1)
FOREVER = 1e12


def board(batch_size: int = 4, batch_wait: float = 0.0) -> Board:
    made = Board(batch_size, batch_wait)
    made.open_looks()
    return made


def task(number: int, kind: str = "predictions", deadline: float = FOREVER) -> Task:
    return Task(number, kind, {}, b"bytes", float(number), deadline)


def decode(made: Board, count: int) -> None:
    for _ in range(count):
        made.decoded(made.next_to_decode(), IMAGE)


def numbers(tasks: list[Task]) -> list[int]:
    return [one.number for one in tasks]


def in_time(function, *arguments):
    """The result of a call that might never return."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*arguments)), daemon=True)
    thread.start()
    thread.join(0.2)
    return found[0] if found else None


def test_images_come_in_batches_in_the_order_they_were_asked_for() -> None:
    made = board()
    for number in range(6):
        made.add(task(number))
    decode(made, 6)
    assert numbers(made.next_work()) == [0, 1, 2, 3]
    assert numbers(made.next_work()) == [4, 5]


def test_a_batch_waits_for_others_and_no_longer_than_agreed() -> None:
    made = board(batch_wait=0.3)
    made.add(task(0))
    began = time.monotonic()
    decode(made, 1)
    threading.Timer(0.05, lambda: (made.add(task(1)), decode(made, 1))).start()
    assert numbers(made.next_work()) == [0, 1]
    assert time.monotonic() - began >= 0.29


def test_a_full_batch_does_not_wait() -> None:
    made = board(batch_size=2, batch_wait=1000.0)
    made.add(task(0))
    made.add(task(1))
    decode(made, 2)
    assert numbers(in_time(made.next_work)) == [0, 1]


def test_looks_and_batches_take_turns() -> None:
    made = board(batch_size=1)
    for number in range(3):
        made.add(task(number))
    for number, kind in [(10, "inspections"), (11, "filters")]:
        made.add(task(number, kind))
    decode(made, 4)
    order = [numbers(made.next_work())[0] for _ in range(5)]
    # A question without an image is not decoded, and so it was ready before the other.
    assert order == [11, 0, 10, 1, 2]


def test_looks_wait_for_the_network_and_images_do_not() -> None:
    made = Board(4, 0.0)
    made.add(task(0, "filters"))
    assert in_time(made.next_work) is None
    made = Board(4, 0.0)
    made.add(task(0, "filters"))
    made.add(task(1))
    decode(made, 1)
    assert numbers(made.next_work()) == [1]
    made.open_looks()
    assert numbers(made.next_work()) == [0]


def test_only_some_are_decoded_ahead_of_the_model() -> None:
    made = board(batch_size=2)
    for number in range(50):
        made.add(task(number))
    made.add(task(99, "inspections"))
    decode(made, 6)
    # The lane of images is full; a look has a lane of its own.
    assert made.next_to_decode().number == 99
    assert in_time(made.next_to_decode) is None
    # The call above still waits, and takes the place that this batch makes.
    assert numbers(made.next_work()) == [0, 1]


@pytest.mark.parametrize("kind", ["predictions", "inspections"])
def test_a_cancelled_job_is_neither_decoded_nor_computed(kind) -> None:
    made = board()
    first, second, third = (task(number, kind) for number in range(3))
    for one in (first, second, third):
        made.add(one)
    made.cancel(1)
    assert second.body == b"", "its bytes are let go at once"
    decode(made, 2)
    made.cancel(0)
    assert numbers(made.next_work()) == [2]
    made.cancel(77)


def test_a_late_job_is_neither_decoded_nor_computed() -> None:
    now = [0.0]
    made = Board(4, 0.0, clock=lambda: now[0])
    made.add(task(0, deadline=5.0))
    made.add(task(1, deadline=1.0))
    made.add(task(2, deadline=3.0))
    decode(made, 1)
    now[0] = 2.0
    decode(made, 1)
    now[0] = 4.0
    assert numbers(made.next_work()) == [0]


def test_an_image_that_was_none_makes_room_for_the_next() -> None:
    made = board(batch_size=1)
    for number in range(9):
        made.add(task(number))
    for _ in range(8):
        made.decoded(made.next_to_decode(), None)
    decode(made, 1)
    assert numbers(made.next_work()) == [8]


def test_the_watch_knows_the_oldest_piece_of_work() -> None:
    now = [0.0]
    watch = Watch(lambda: now[0])
    assert watch.longest() == 0
    with watch.working():
        now[0] = 3.0
        assert watch.longest() == 3.0
    assert watch.longest() == 0


def weight(pixels: int, kind: str = "WEBP") -> Weight:
    return Weight(kind, pixels, is_heavy=True)


def test_dear_images_wait_for_as_long_as_agreed_and_others_do_not_wait_for_them() -> None:
    made = board()
    pixels = round(0.6 / _SECONDS_A_PIXEL)
    assert [made.set_aside(task(number), weight(pixels), 1.0) for number in range(2)] == [0.0, 0.0]
    assert made.set_aside(task(2), weight(pixels), 1.0) == pytest.approx(1.2)
    made.add(task(3))
    decode(made, 1)
    assert numbers(made.next_work()) == [3]
    made.decoded(made.next_heavy(10**9), IMAGE)
    assert numbers(made.next_work()) == [0]
    assert made.set_aside(task(4), weight(pixels), 1.0) == 0.0
    assert board().set_aside(task(5), weight(10**12), 1.0) == 0.0, "an empty queue takes any"


def test_dear_images_that_are_decoded_together_have_no_more_pixels_than_agreed() -> None:
    made = board()
    for number, pixels in enumerate([30, 20, 60, 1]):
        made.set_aside(task(number), weight(pixels), 1.0)
    first, second = made.next_heavy(50), made.next_heavy(50)
    assert numbers([first, second]) == [0, 1]
    assert in_time(made.next_heavy, 50) is None
    made.decoded(second, IMAGE)
    assert in_time(made.next_heavy, 50) is None
    # Both calls above still wait. One of them takes the largest, which is decoded alone.
    made.decoded(first, None)
    assert numbers(made.next_work()) == [1]


def test_a_dear_image_that_nobody_waits_for_is_not_decoded() -> None:
    made = board()
    for number in range(3):
        made.receive(task(number, deadline=0.0 if number == 1 else FOREVER))
        made.set_aside(made.next_to_weigh(), weight(1), 1.0)
    made.cancel(0)
    assert made.next_heavy(10**9).number == 2


def test_one_that_is_cancelled_before_it_was_weighed_is_not_decoded() -> None:
    made = board()
    made.receive(task(0))
    made.cancel(0)
    made.add(made.next_to_weigh())
    made.add(task(1))
    assert made.next_to_decode().number == 1


def test_what_dear_images_take_is_learnt_for_each_format() -> None:
    made = board()
    for _ in range(30):
        made.measured(weight(1000), 5.0)
    made.set_aside(task(0), weight(1000), 1.0)
    assert made.set_aside(task(1), weight(1000), 1.0) == pytest.approx(5.0, rel=0.01)
    other = board()
    other.measured(weight(1000), 5.0)
    other.set_aside(task(0), weight(1000, "JPEG"), 1.0)
    assert other.set_aside(task(1), weight(1000, "JPEG"), 1.0) == 0.0
