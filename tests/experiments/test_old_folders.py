"""Folders that version 0.1 wrote: they are gone on with, shown, measured and served as if nothing had changed.

`benchmarks/old_folders.py` made them, with the code of 0.1.
"""

import json
import math
import shutil
from pathlib import Path

import pytest
from benchmarks.old_folders import COMMANDS, EVALUATIONS, PLACE, TREE, last_records, move, rounding, weights

from vitrail.cli import main
from vitrail.config.serve import ServeConfig
from vitrail.prediction import Predictor
from vitrail.serving.looks.loaded import load

FOLDERS = (*COMMANDS, *EVALUATIONS)


@pytest.fixture(scope="module")
def expected() -> dict:
    """How it ended with 0.1."""
    return json.loads((TREE / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all of them, which is where its files say."""
    place = tmp_path / "place"
    shutil.copytree(TREE, place)
    move(place, PLACE, str(place))
    monkeypatch.chdir(place)
    return place


def ends_alike(folder: Path, wanted: dict, rounded: str) -> None:
    """To the last bit on a machine that rounds as the first one did, and nearly so on others."""
    found = last_records(folder)
    if rounding() == rounded:
        assert weights(folder) == wanted["weights"]
        assert found == wanted["records"]
        return
    assert weights(folder).keys() == wanted["weights"].keys()
    assert found.keys() == wanted["records"].keys()
    for run, records in wanted["records"].items():
        assert [about(record) for record in found[run]] == [about(record) for record in records], run
        for came, record in zip(found[run], records, strict=True):
            assert loss_of(came) == pytest.approx(loss_of(record), rel=1e-3, nan_ok=True), run


def about(record: dict) -> tuple:
    """What no rounding changes."""
    return record["event"], record["step"], record.get("split"), (record.get("metrics") or record).get("images")


def loss_of(record: dict) -> float:
    return (record.get("metrics") or record).get("loss", math.nan)


def configs(folder: Path) -> dict[Path, bytes]:
    """What was asked for, here and in all that is inside; a model is written anew."""
    return {path: path.read_bytes() for path in folder.rglob("config.json") if path.parent.name != "model"}


def learnt_before(folder: Path) -> dict[Path, list[str]]:
    """What stays of each log: all of a run that is done, and of others what the newest checkpoint knows of."""
    kept = {}
    for log in folder.rglob("log.jsonl"):
        lines = log.read_text(encoding="utf-8").splitlines()
        if json.loads(lines[-1])["event"] != "done":
            state = max(log.parent.glob("checkpoints/*/state.json"))
            lines = lines[: json.loads(state.read_text(encoding="utf-8"))["progress"]["records"]]
        kept[log] = lines
    return kept


def ensure_not_done_again(before: dict[Path, list[str]]) -> None:
    """Lines have times in them: what was learnt again, from the start or an older checkpoint, would have others."""
    for log, lines in before.items():
        assert log.read_text(encoding="utf-8").splitlines()[: len(lines)] == lines, log


@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_gone_on_with_and_ends_as_it_would_have(name, old, expected) -> None:
    verb, folder = COMMANDS[name].split()[0], old / "runs" / name
    asked, learnt = configs(folder), learnt_before(folder)
    assert main([verb, "--resume", f"runs/{name}", "--device", "cpu"]) == 0
    ends_alike(folder, expected["resumed"][name], expected["rounding"])
    ensure_not_done_again(learnt)
    assert {path: path.read_bytes() for path in asked} == asked


@pytest.mark.parametrize("name", ["transfer", "vtab"])
def test_the_command_that_began_it_goes_on_with_it(name, old, expected) -> None:
    folder = old / "runs" / name
    learnt = learnt_before(folder)
    assert main(COMMANDS[name].split()) == 0
    ends_alike(folder, expected["resumed"][name], expected["rounding"])
    ensure_not_done_again(learnt)


@pytest.mark.parametrize("name", FOLDERS)
def test_its_page_is_made_and_nothing_else_is_changed(name, old) -> None:
    before = configs(old / "runs" / name)
    assert main(["report", f"runs/{name}", "--out", "page.html"]) == 0
    assert name in (old / "page.html").read_text(encoding="utf-8")
    assert configs(old / "runs" / name) == before


@pytest.mark.parametrize("name", EVALUATIONS)
def test_it_is_measured_as_it_was(name, old, expected, capsys) -> None:
    assert main(EVALUATIONS[name].split()) == 0
    [found] = json.loads(capsys.readouterr().out)["models"]
    wanted = expected["evaluated"][name]
    assert found["images"] == wanted["images"]
    assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
    # Two answers may be so near each other that another machine chooses the other one.
    assert abs(found["top1"]["right"] - wanted["right"]) <= 1


@pytest.mark.parametrize("name", EVALUATIONS)
def test_it_answers_and_is_served(name, old) -> None:
    folder, photo = old / "runs" / name, old / "photos" / "class-0" / "0.png"
    labels = tuple(json.loads((folder / "model" / "config.json").read_text(encoding="utf-8"))["labels"])
    [answers] = Predictor(folder, backend="torch")(photo, top_k=3)
    assert len(answers) == 3 and {label for label, _ in answers} <= set(labels)
    served = load(ServeConfig(source=str(folder), backend="torch"))
    assert served.predictor.labels == labels and served.network is not None and served.network.parameters() > 0
