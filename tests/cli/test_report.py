"""`vitrail report`: the page of whatever a folder holds, and a sentence where it holds nothing to tell."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.report.reader import Reader
from tests.report.runs import FULL, done, make_run, predictions, run_config, source, trained

import vitrail
from vitrail.cli import main
from vitrail.config import Preprocessing, to_json
from vitrail.data.check import check, open_splits
from vitrail.runtime.lock import only_one


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))


def fails(capsys, *words: str, code: int = 2) -> str:
    assert main(["report", *words]) == code
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert "Traceback" not in told
    return told


def read(path: str) -> Reader:
    reader = Reader(Path(path).read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def test_the_page_of_a_run_is_made_anew(capsys) -> None:
    folder = make_run(Path("run"), FULL)
    assert main(["report", "run"]) == 0
    assert re.fullmatch(r"run/report.html  [\d.]+ kB, all in one file: open it\n", capsys.readouterr().out)
    assert "finished" in read("run/report.html").words
    before = {file.name for file in folder.path.iterdir()}
    assert main(["report", "run", "--out", "elsewhere/page.html"]) == 0
    assert {file.name for file in folder.path.iterdir()} == before
    assert read("elsewhere/page.html").words == read("run/report.html").words


def test_a_run_that_is_being_written_or_was_cut_off(capsys) -> None:
    folder = make_run(Path("run"), [trained(5)])
    with folder.log.open("a") as file:
        file.write('{"event": "train", "step": 10, "lo')
    assert main(["report", "run"]) == 0
    words = read("run/report.html").words
    assert "at step 5 of 20" in words
    assert "vitrail train --resume run" in words
    assert "right now" not in words
    with only_one(folder.lock, busy="busy"):
        assert main(["report", "run"]) == 0
    words = read("run/report.html").words
    assert "It is being trained right now: this page shows how far it had come." in words
    assert "--resume" not in words


def test_a_run_whose_data_has_gone_keeps_what_its_answers_say(capsys) -> None:
    folder, images = make_run(Path("run"), FULL), source()
    said = predictions(images.labels.values, 3, {1: 0})
    np.savez(folder.path / "predictions.npz", **vars(said), labels=images.labels.values, digest=images.digest())
    assert main(["report", "run"]) == 0
    reader = read("run/report.html")
    assert "The images that were measured cannot be shown." in reader.words
    assert "taken for itself: 3 of 4" in reader.words
    assert {"classes", "calibration"} <= set(reader.sections())
    assert "mistakes" not in reader.sections()


def test_runs_compared(capsys) -> None:
    for name, lr in (("a", 1e-3), ("b", 1e-2)):
        config = run_config()
        config = type(config)(**{**vars(config), "optim": type(config.optim)(**{**vars(config.optim), "lr": lr})})
        make_run(Path(name), FULL, config=config)
    assert main(["report", "a", "b"]) == 0
    assert "comparison.html" in capsys.readouterr().out
    assert "optim.lr0.0010.01" in read("comparison.html").words
    assert main(["report", "a", "b", "--out", "c.html"]) == 0
    Path("comparison.html").write_text("mine")
    assert "is no page of ours" in fails(capsys, "a", "b")
    assert Path("comparison.html").read_text() == "mine"
    assert "given twice" in fails(capsys, "a", "./a")
    assert "at most 6" in fails(capsys, *"abcdefg", "--out", "c.html")


def test_what_is_no_run_gets_a_sentence(capsys) -> None:
    assert "`ls runs` shows yours" in fails(capsys)
    assert "there is no such folder" in fails(capsys, "nowhere")
    make_run(Path("runs/one"), FULL)
    assert "vitrail report runs/one" in fails(capsys, "runs")
    assert "vitrail report runs/one" in fails(capsys, "runs/one/config.json")
    Path("other").mkdir()
    Path("other/config.json").write_text('{"format": "else"}')
    assert "says format 'else'" in fails(capsys, "other", code=3)
    Path("other/config.json").write_text("{")
    assert "cannot be read" in fails(capsys, "other", code=3)
    Path("other/config.json").write_text("[]")
    assert "is not the record of a run" in fails(capsys, "other", code=3)
    Path("evaluated").mkdir()
    Path("evaluated/result.json").write_text('{"format": "vitrail-evaluation/1", "command": "vitrail evaluate m"}')
    assert "Make it again: vitrail evaluate m" in fails(capsys, "evaluated")


def test_where_it_may_be_written(capsys) -> None:
    make_run(Path("run"), FULL)
    assert "ends in .html" in fails(capsys, "run", "--out", "page.txt")
    Path("mine.html").write_text("<p>mine")
    assert "is no page of ours" in fails(capsys, "run", "--out", "mine.html")
    Path("link.html").symlink_to("mine.html")
    assert "no plain file" in fails(capsys, "run", "--out", "link.html")
    assert Path("mine.html").read_text() == "<p>mine"


def test_nothing_is_written_into_the_data(capsys, place) -> None:
    config = run_config()
    data = type(config.data)(data=str(place / "photos"))
    make_run(Path("run"), [*FULL[:-1], done()], config=type(config)(**{**vars(config), "data": data}))
    before = sorted((place / "photos").rglob("*"))
    assert "inside the data" in fails(capsys, "run", "--out", str(place / "photos" / "train" / "page.html"))
    assert sorted((place / "photos").rglob("*")) == before


def test_what_a_check_found_is_told_with_the_run(capsys, place) -> None:
    (place / "photos" / "train" / "ant" / "bad <i>.jpg").write_bytes(b"no image")
    found = check(open_splits(place / "photos"), workers=0)
    Path("check.json").write_text(json.dumps(to_json(found)))
    make_run(Path("run"), FULL)
    assert main(["report", "run", "--check", "check.json"]) == 0
    words = read("run/report.html").words
    assert "What the check of the data found" in words
    assert "1 file cannot be used: train/ant/bad <i>.jpg" in words
    Path("check.json").write_text("{}")
    assert "check.json" in fails(capsys, "run", "--check", "check.json", code=3)


def test_a_model_alone(capsys) -> None:
    model = vitrail.create_model("vit-test", num_classes=3)
    model.labels, model.metrics = ("고양이", "<script>x</script>", "🐕"), {"test": {"accuracy": 0.5}}
    model.preprocessing = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bilinear")
    vitrail.save_model(model, "mine")
    before = sorted(Path("mine").iterdir())
    assert main(["report", "mine"]) == 0
    reader = read("mine.html")
    assert "고양이, <script>x</script>, 🐕" in reader.words
    assert "test.accuracy0.5" in reader.words
    assert len(reader.scripts) == 1
    assert len(reader.inside("learnt", "src")) == 2
    assert sorted(Path("mine").iterdir()) == before
    assert "is a model, and only runs" in fails(capsys, "mine", "mine.html")
