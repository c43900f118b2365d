"""Who speaks of several processes, and about what."""

import pytest

from vitrail.cli.speaker import one_speaker, processes_started, what_to_say
from vitrail.errors import DataError, UsageError
from vitrail.runtime import processes
from vitrail.runtime.processes import Elsewhere, LostProcess
from vitrail.training.stopping import Stopped


@pytest.fixture
def second(monkeypatch) -> None:
    """The second of two processes, which has found the first."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(processes, "_has_joined", True)


def test_alone_everything_is_told(monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    assert processes_started() == 1
    with one_speaker():
        print("here")
    assert capsys.readouterr().out == "here\n"
    assert what_to_say(UsageError("the word")) == "the word."
    assert what_to_say(Elsewhere(3)) == ""


def test_the_second_process_is_silent(second, capsys):
    assert processes_started() == 2
    with one_speaker():
        print("here")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DataError("is damaged", where="dog/7.png"), "process 1: dog/7.png: is damaged."),
        (Stopped("stopped after step 3"), ""),
        (Elsewhere(3), ""),
        (LostProcess("process 2 is gone", gone=(2,)), ""),
        (LostProcess("process 0 is gone", gone=(0,)), "process 1: process 0 is gone."),
        (LostProcess("one of the 2 processes is gone"), "process 1: one of the 2 processes is gone."),
    ],
)
def test_the_second_process_tells_what_only_it_knows(second, error, told):
    assert what_to_say(error) == told


def test_what_all_come_to_before_they_meet_is_told_by_the_first(second, monkeypatch):
    monkeypatch.setattr(processes, "_has_joined", False)
    assert what_to_say(UsageError("the word")) == ""
    monkeypatch.setenv("RANK", "0")
    assert what_to_say(UsageError("the word")) == "the word."
