"""Numbers survive the way through JSON."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vitrail.serving.looks.numbers import as_numbers


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_every_float32_comes_back(values) -> None:
    written = json.dumps(as_numbers(np.array(values, dtype=np.float32)))
    assert np.array_equal(np.array(json.loads(written), dtype=np.float32), np.array(values, dtype=np.float32))


def test_a_probability_takes_no_more_digits_than_it_has() -> None:
    values = np.random.default_rng(0).random((7, 5), dtype=np.float32)
    assert max(len(text) for row in as_numbers(values) for text in map(repr, row)) <= 14
    assert np.array_equal(np.array(as_numbers(values), dtype=np.float32), values)


def test_nothing_is_nothing() -> None:
    assert as_numbers(np.zeros((0, 3), dtype=np.float32)) == []
    assert as_numbers(np.zeros(2, dtype=np.float32)) == [0.0, 0.0]
