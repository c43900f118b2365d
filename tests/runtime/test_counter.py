"""Random numbers as a function of where they are used."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vitrail.runtime.counter import permutation, philox, random_words, uniforms

SEEDS = st.integers(0, 2**64 - 1)
IDS = st.integers(0, 2**63)


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_known_answers_of_the_authors(counter, key, wanted) -> None:
    def words(text: str) -> list[int]:
        return [int(word, 16) for word in text.split()]

    first, second = words(key)
    assert philox(np.array(words(counter), dtype=np.uint64), (first, second)).tolist() == words(wanted)


@given(SEEDS, st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), IDS)
def test_the_counter_says_what_the_numbers_are_for(seed, purpose, epoch, identity) -> None:
    """Block, purpose, id and epoch each have bits of their own, and the seed is the key."""
    counter = [1 | purpose << 16, identity & 0xFFFFFFFF, identity >> 32, epoch]
    wanted = philox(np.array(counter, dtype=np.uint64), (seed & 0xFFFFFFFF, seed >> 32))
    assert random_words(seed, purpose, epoch, identity, 8)[4:].tolist() == wanted.tolist()


@given(SEEDS, st.integers(0, 100), st.lists(IDS, min_size=1, max_size=20), st.integers(1, 9))
def test_a_number_does_not_depend_on_its_batch(seed, epoch, ids, count) -> None:
    together = uniforms(seed, 3, epoch, np.array(ids, dtype=np.uint64), count)
    assert together.shape == (len(ids), count)
    for row, identity in enumerate(ids):
        assert np.array_equal(together[row], uniforms(seed, 3, epoch, identity, count))
    assert np.array_equal(together[:, :1], uniforms(seed, 3, epoch, np.array(ids, dtype=np.uint64), 1))
    assert np.array_equal(together[::-1], uniforms(seed, 3, epoch, np.array(ids[::-1], dtype=np.uint64), count))


def test_epochs_may_differ_within_a_batch() -> None:
    mixed = uniforms(7, 1, np.array([4, 5]), np.array([9, 9]), 3)
    assert np.array_equal(mixed, np.stack([uniforms(7, 1, 4, 9, 3), uniforms(7, 1, 5, 9, 3)]))


def test_every_argument_changes_every_number() -> None:
    base = (5, 1, 2, 3)
    reference = random_words(*base, 64)
    for place in range(4):
        for other in (4, 2**20, 2**31):
            changed = list(base)
            changed[place] = other if place != 1 else other % 2**16 + 7
            # Two of 64 words of 32 bits are equal by chance once in a billion tries.
            assert (random_words(*changed, 64) == reference).sum() <= 1
    assert (random_words(5 + 2**32, 1, 2, 3, 64) == reference).sum() <= 1
    assert (random_words(5, 1, 2, 3 + 2**32, 64) == reference).sum() <= 1


def test_numbers_are_below_one_and_uniform() -> None:
    """Chi-square over 256 cells, for each of the draws of an id and for the low bits."""
    drawn = uniforms(0, 1, 0, np.arange(100_000), 6)
    assert drawn.dtype == np.float64
    assert drawn.min() >= 0
    assert drawn.max() < 1
    words = random_words(0, 1, 0, np.arange(100_000), 6)
    assert np.array_equal(words * 2.0**-32, drawn)
    for column in range(6):
        high = np.bincount((drawn[:, column] * 256).astype(int), minlength=256)
        low = np.bincount((words[:, column] & 255).astype(int), minlength=256)
        assert 1e-4 < stats.chisquare(high).pvalue < 1 - 1e-4
        assert 1e-4 < stats.chisquare(low).pvalue < 1 - 1e-4


def test_draws_do_not_follow_each_other() -> None:
    drawn = uniforms(1, 1, 0, np.arange(50_000), 4)
    neighbours = np.concatenate([drawn, np.roll(drawn, -1, axis=0)], axis=1)
    correlation = np.corrcoef(neighbours, rowvar=False)
    assert np.abs(correlation - np.eye(8)).max() < 5 / math.sqrt(50_000)


@given(SEEDS, st.integers(0, 1000), st.integers(0, 300))
def test_a_permutation_holds_everything_once(seed, epoch, length) -> None:
    order = permutation(seed, 2, epoch, length)
    assert sorted(order.tolist()) == list(range(length))
    assert np.array_equal(order, permutation(seed, 2, epoch, length))


def test_a_permutation_is_the_same_in_pieces(monkeypatch) -> None:
    whole = permutation(3, 1, 4, 1000)
    monkeypatch.setattr("vitrail.runtime.counter._PIECE", 7)
    assert np.array_equal(permutation(3, 1, 4, 1000), whole)


def test_small_permutations_are_uniform() -> None:
    places = {order: place for place, order in enumerate(itertools.permutations(range(4)))}
    counts = np.zeros(24)
    for seed in range(12_000):
        counts[places[tuple(permutation(seed, 1, 0, 4).tolist())]] += 1
    assert stats.chisquare(counts).pvalue > 1e-4


def test_epochs_and_seeds_shuffle_differently() -> None:
    orders = {tuple(permutation(seed, 1, epoch, 50).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_a_million_takes_a_moment() -> None:
    order = permutation(0, 1, 0, 1_000_000)
    assert np.array_equal(np.bincount(order), np.ones(1_000_000))
