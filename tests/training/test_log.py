"""The log: lines that are whole, torn, foreign or taken back."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vitrail.errors import DataError, DiskError, Notice
from vitrail.training.events import Done, Evaluated, Event, LengthSet, Resumed, RolledBack, Skipped, to_record
from vitrail.training.log import Log, read_log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.jsonl"


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def log(path, told):
    log = Log(path, told.append)
    yield log
    log.close()


def lengths(*steps: int) -> list[Event]:
    return [LengthSet(step=step, steps=10 * step) for step in steps]


def records(*steps: int) -> list[dict]:
    return [to_record(event) for event in lengths(*steps)]


def test_what_is_written_is_read_and_told(log, path, told) -> None:
    for event in lengths(1, 2, 3):
        log.write(event)
    # Before it is closed: a process that is killed now has lost nothing.
    assert list(read_log(path)) == records(1, 2, 3)
    assert told == lengths(1, 2, 3)
    log.sync()


def test_a_log_goes_on_after_it_was_closed(log, path) -> None:
    log.write(Resumed(step=1))
    log.close()
    log.close()
    log.write(Resumed(step=2))
    assert [record["step"] for record in read_log(path)] == [1, 2]


@pytest.mark.parametrize("torn", ['{"event": "train", "st', "{", '{"event": "train", "step": 4', "\0\0\0\0", '{"é'])
def test_a_last_line_that_was_cut_off_is_left_out(torn, log, path) -> None:
    for event in lengths(1, 2):
        log.write(event)
    log.close()
    with path.open("ab") as file:
        file.write(torn.encode()[:-1] if torn.endswith("é") else torn.encode())
    assert list(read_log(path)) == records(1, 2)
    log.rewind(2)
    assert path.read_text() == "".join(json.dumps(record) + "\n" for record in records(1, 2))
    log.write(Resumed(step=3))
    assert [record["step"] for record in read_log(path)] == [1, 2, 3]


def test_rewinding_keeps_what_a_checkpoint_knows_of(log, path) -> None:
    for event in [*lengths(1, 2, 3), Resumed(step=3)]:
        log.write(event)
    assert log.records == 4
    log.rewind(2)
    assert list(read_log(path)) == records(1, 2)
    assert log.records == 2
    log.rewind(0)
    assert path.read_bytes() == b""


def test_an_event_that_did_not_reach_the_log_is_written_once(log, path) -> None:
    happened = RolledBack(step=1, before=2, rate_factor=0.5)
    for event in [*lengths(1, 2), happened]:
        log.write(event)
    for known in (2, 3):
        log.rewind(known, [to_record(happened)])
        assert list(read_log(path)) == [*records(1, 2), to_record(happened)]


def test_rewinding_what_is_not_there_makes_nothing_and_says_what_is_gone(log, path) -> None:
    assert log.rewind(0) == 0
    with pytest.warns(Notice, match="5 of 5 records are gone"):
        assert log.rewind(5) == 5
    assert not path.exists()


@pytest.mark.parametrize("line", [b"<html>", b"\0\0\0", b"\xff\xfe", b"[1, 2]", b'{"event": "train"}'])
def test_rewinding_puts_a_foreign_line_aside_and_keeps_the_others(line, log, path) -> None:
    whole = [json.dumps(record).encode() for record in records(1, 2, 3)]
    before = b"\n".join([whole[0], line, whole[1], whole[2]]) + b"\n"
    path.write_bytes(before)
    with pytest.warns(Notice, match=r"1 of 3 records cannot be read.*log\.jsonl\.damaged"):
        assert log.rewind(3) == 1
    # What came after the checkpoint does not take the place of what is lost.
    assert list(read_log(path)) == records(1, 2)
    assert path.with_name("log.jsonl.damaged").read_bytes() == before
    path.write_bytes(before)
    with pytest.warns(Notice, match=r"log\.jsonl\.damaged-2"):
        log.rewind(3)
    assert path.with_name("log.jsonl.damaged-2").read_bytes() == before


@given(text=st.text())
@example(text="one\u2028two")
def test_any_text_is_one_line(text, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    log = Log(path, lambda _event: None)
    for step in (1, 2):
        log.write(Skipped(step=step, reason=text))
    log.rewind(2)
    log.close()
    assert [record["reason"] for record in read_log(path)] == [text, text]


def test_hangul_is_written_as_it_is(log, path) -> None:
    log.write(Skipped(step=1, reason="손실 값"))
    assert "손실 값" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_know_are_null(value, log, path) -> None:
    log.write(Evaluated(step=2, images=8, accuracy=0.5, loss=value, is_best=False))
    log.write(Done(step=2, split="test", metrics={"loss": value}, best=None, seconds=1.0))
    evaluated, done = read_log(path)
    assert evaluated["loss"] is done["metrics"]["loss"] is None


@pytest.mark.parametrize(
    "line",
    [
        b"<html>",
        b"",
        b"[1, 2]",
        b"3",
        b'{"event": "train"}',
        b'{"event": "train", "step": "4"}',
        b'{"step": 4}',
        b"\xff\xfe\x00",
    ],
)
def test_a_foreign_line_is_left_out_and_named(line, path) -> None:
    path.write_bytes(b'{"event": "train", "step": 1}\n' + line + b'\n{"event": "train", "step": 2}\n')
    damaged: list[int] = []
    assert [record["step"] for record in read_log(path, damaged=damaged)] == [1, 2]
    assert damaged == [2]


def test_a_log_that_is_not_there_or_is_a_folder(tmp_path) -> None:
    for path in (tmp_path / "nothing.jsonl", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            list(read_log(path))


def test_a_log_that_cannot_be_written_is_a_disk_error(tmp_path) -> None:
    log = Log(tmp_path, lambda _event: None)
    with pytest.raises(DiskError, match="could not be written"):
        log.write(Resumed(step=1))
