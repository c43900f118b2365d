"""The order of training: every image once an epoch, whatever the batch, the ranks and the first step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.data.loading.order import Picks, Stream, epoch_order, evaluation_picks
from vitrail.errors import UsageError

LENGTHS = st.integers(1, 60)
BATCHES = st.integers(1, 150)
SEEDS = st.integers(0, 2**63)


def row(stream: Stream, steps: int) -> list[tuple[int, int]]:
    """(epoch, image) of the places of the first steps."""
    picks = [stream.step(step) for step in range(steps)]
    return [pair for pick in picks for pair in zip(pick.epochs.tolist(), pick.indices.tolist(), strict=True)]


@given(LENGTHS, BATCHES, SEEDS, st.integers(1, 5))
def test_every_epoch_has_every_image_once(length, batch_size, seed, epochs):
    steps = -(-length * epochs // batch_size)
    seen = row(Stream(length=length, batch_size=batch_size, seed=seed), steps)
    assert len(seen) == steps * batch_size
    assert [epoch for epoch, _ in seen] == [place // length for place in range(len(seen))]
    for epoch in range(epochs):
        assert sorted(image for at, image in seen if at == epoch) == list(range(length))


@given(LENGTHS, SEEDS, st.data())
def test_ranks_share_a_batch_without_changing_it(length, seed, data):
    batch_size = data.draw(BATCHES)
    ranks = data.draw(st.integers(1, min(batch_size, 12)))
    step = data.draw(st.integers(0, 10_000))
    whole = Stream(length=length, batch_size=batch_size, seed=seed).step(step)
    indices, epochs = np.full(batch_size, -1), np.full(batch_size, -1)
    for rank in range(ranks):
        mine = Stream(length=length, batch_size=batch_size, seed=seed, rank=rank, ranks=ranks).step(step)
        assert batch_size // ranks <= len(mine) <= -(-batch_size // ranks)
        indices[rank::ranks], epochs[rank::ranks] = mine.indices, mine.epochs
    assert indices.tolist() == whole.indices.tolist()
    assert epochs.tolist() == whole.epochs.tolist()


@given(LENGTHS, BATCHES, BATCHES, SEEDS)
def test_the_row_does_not_depend_on_the_batch_size(length, one, other, seed):
    places = 3 * length
    rows = [
        row(Stream(length=length, batch_size=size, seed=seed), -(-places // size))[:places] for size in (one, other)
    ]
    assert rows[0] == rows[1]


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(epoch_order(seed, epoch, 50).tolist()) for seed in (0, 1, 2**40, -1) for epoch in range(25)}
    assert len(orders) == 100
    assert tuple(range(50)) not in orders


def test_the_order_is_the_same_in_every_release():
    assert Stream(length=10, batch_size=10, seed=7).step(0).indices.tolist() == [6, 3, 7, 8, 5, 9, 2, 1, 0, 4]


def test_no_place_is_preferred():
    # Where image 0 stands, over a thousand epochs: 100 a place, give or take 9.
    places = np.bincount([int(np.argmin(epoch_order(3, epoch, 10))) for epoch in range(1000)], minlength=10)
    assert places.min() > 60
    assert places.max() < 140


def test_a_late_step_of_a_large_set_costs_no_walk_through_the_earlier_ones():
    stream = Stream(length=1_281_167, batch_size=4096, seed=0)
    picks = stream.step(10**6)
    assert picks.epochs[0] == 10**6 * 4096 // 1_281_167
    assert len(np.unique(picks.indices)) == 4096


@given(st.integers(0, 60), BATCHES, st.integers(1, 12))
def test_evaluation_sees_every_image_once(length, batch_size, ranks):
    seen: list[int] = []
    for rank in range(ranks):
        batches = list(evaluation_picks(length, batch_size, rank, ranks))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert all(0 < len(batch) <= batch_size for batch in batches)
        mine = [image for batch in batches for image in batch.indices.tolist()]
        assert mine == sorted(mine)
        seen += mine
    assert sorted(seen) == list(range(length))


def test_the_last_batch_of_an_evaluation_is_short():
    batches = [batch.indices.tolist() for batch in evaluation_picks(7, 3)]
    assert batches == [[0, 1, 2], [3, 4, 5], [6]]
    assert [batch.indices.tolist() for batch in evaluation_picks(7, 3, rank=1, ranks=2)] == [[1, 3, 5]]
    assert list(evaluation_picks(2, 3, rank=2, ranks=3)) == []


@given(st.integers(1, 50), st.integers(1, 60))
def test_pieces_of_a_batch(length, size):
    picks = Picks(np.arange(length), np.arange(length) + 5)
    pieces = list(picks.cut(size))
    assert all(len(piece) == size for piece in pieces[:-1])
    assert np.concatenate([piece.indices for piece in pieces]).tolist() == picks.indices.tolist()
    assert np.concatenate([piece.epochs for piece in pieces]).tolist() == picks.epochs.tolist()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"length": 0}, "the number of images is 0; wanted a whole number from 1"),
        ({"batch_size": 0}, "batch_size is 0; wanted a whole number from 1"),
        ({"batch_size": 2.5}, "batch_size is 2.5; wanted a whole number"),
        ({"ranks": 0}, "ranks is 0"),
        ({"rank": -1}, "rank is -1"),
        ({"rank": 2, "ranks": 2}, "rank is 2; wanted below the 2 ranks"),
        ({"ranks": 5}, "batch_size is 4; wanted an image for each of the 5 ranks"),
    ],
)
def test_what_makes_no_order(values, message):
    with pytest.raises(UsageError, match=message):
        Stream(**{"length": 10, "batch_size": 4, "seed": 0, **values})


@pytest.mark.parametrize(("values", "message"), [((5, 0), "batch_size is 0"), ((5, 2, 3, 3), "rank is 3; wanted")])
def test_what_makes_no_evaluation(values, message):
    with pytest.raises(UsageError, match=message):
        list(evaluation_picks(*values))
