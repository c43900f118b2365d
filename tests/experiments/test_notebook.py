"""What a notebook shows of a run."""

import base64
import re
from pathlib import Path

import pytest

import vitrail
from vitrail.experiments.calling import Finished
from vitrail.experiments.notebook import progress_of_runs
from vitrail.runtime.progress import showing
from vitrail.training.events import Evaluated, RunBegan, RunEnded, Stepped


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_run_shows_its_headline_and_its_pictures(capsys) -> None:
    run = vitrail.train("vit-digits", steps=2, name="mine", device="cpu", split="train[:100]", batch_size=16)
    shown = run._repr_html_()
    assert f"{100 * run.accuracy:.2f} %" in shown
    assert run.report.as_uri() in shown
    names = re.findall(r'<img alt="(\w+)"', shown)
    assert names == ["accuracy", "loss", "confusion"]
    for name, drawn in zip(names, re.findall(r"base64,([\w+/=]+)", shown), strict=True):
        assert base64.b64decode(drawn) == (run.folder / "figures" / f"{name}.svg").read_bytes()
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_what_stands_in_a_name_is_text() -> None:
    shown = Finished("train", Path("/runs/<script>"))._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown
    assert "resume" in shown


def test_progress_is_shown_run_by_run_and_told_on(capsys, monkeypatch) -> None:
    # A line as soon as anything is done.
    monkeypatch.setattr("vitrail.runtime.progress._SECONDS_BETWEEN_LINES", 0.0)
    heard = []
    events = [
        RunBegan(folder="a", title="lr 0.1", start=2, steps=5),
        Stepped(step=3),
        Evaluated(step=3, images=9, accuracy=0.5, loss=1.0, is_best=True),
        Stepped(step=4),
        RunEnded(folder="a", title="lr 0.1"),
    ]
    with showing(True), progress_of_runs(heard.append) as hear:
        for event in events:
            hear(event)
    assert heard == events
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("lr 0.1: 1 of 3 steps")
    assert second.startswith("lr 0.1: 2 of 3 steps") and "50.0 %" in second


def test_a_call_shows_progress_where_it_is_asked_for(capsys, monkeypatch) -> None:
    monkeypatch.setattr("vitrail.runtime.progress._SECONDS_BETWEEN_LINES", 0.0)
    vitrail.train("vit-digits", steps=2, device="cpu", split="train[:100]", batch_size=16, progress=True)
    assert "vit-digits: 2 of 2 steps" in capsys.readouterr().err
