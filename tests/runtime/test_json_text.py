"""JSON that every editor reads, whatever names the system has."""

import json
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.runtime.json_text import finite, json_text


def test_letters_stay_as_they_are() -> None:
    assert json_text({"klasse": "Gänseblümchen 데이지"}) == '{"klasse": "Gänseblümchen 데이지"}'


def test_a_path_that_is_no_text_is_escaped_and_comes_back_as_the_same_bytes() -> None:
    raw = "größe".encode("latin-1")
    text = json_text({"path": os.fsdecode(raw), "klasse": "ü"}, indent=2)
    # What can be written to a UTF-8 file at all.
    found = json.loads(text.encode("utf-8"))
    assert os.fsencode(found["path"]) == raw
    assert found["klasse"] == "ü"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["a", "\udcff"])
def test_numbers_that_json_does_not_know_are_refused(value, name) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        json_text({name: value})


@given(st.recursive(st.none() | st.integers() | st.text(st.characters()) | st.binary().map(os.fsdecode), st.lists))
def test_everything_comes_back_from_bytes(value) -> None:
    assert json.loads(json_text(value).encode()) == value


def test_lines_when_asked_for() -> None:
    assert json_text([1, 2], indent=1) == "[\n 1,\n 2\n]"
    assert "\n" not in json_text({"a": "b\nc\udcff"})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_know_become_null(value) -> None:
    assert finite({"loss": value, "deep": [{"loss": value}, (1.5, "nan")]}) == {
        "loss": None,
        "deep": [{"loss": None}, [1.5, "nan"]],
    }
