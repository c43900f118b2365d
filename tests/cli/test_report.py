"""`vitrail report`: the page of whatever a folder holds, and a sentence where it holds nothing to tell."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.reports.reader import Reader
from tests.reports.runs import FULL, done, make_run, predictions, run_config, source, trained

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
    for name in ("evaluated", "also"):
        Path(name).mkdir(exist_ok=True)
        record = {"format": "vitrail-evaluation/1", "models": [{"model": f"runs/{name}"}], "data": {"data": "my data"}}
        Path(name, "result.json").write_text(json.dumps(record))
    together = "vitrail evaluate runs/evaluated runs/also --data 'my data'"
    assert together in fails(capsys, "evaluated", "also")
    Path("seen").mkdir()
    Path("seen/inspection.json").write_text('{"format": "vitrail-inspection/1", "command": "vitrail inspect m"}')
    assert "is an inspection" in fails(capsys, "seen")
    Path("runs/one/config.json").unlink()
    assert "the config.json of this run is not there any more" in fails(capsys, "runs/one")
    Path("notes.txt").write_text("mine")
    assert "is no folder and no file of weights" in fails(capsys, "notes.txt")


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


def config_of(data: str, root: str | None = None):
    config = run_config()
    return replace(config, data=replace(config.data, data=data, root=root))


@pytest.mark.parametrize("kind", ["table", "root", "unfinished", "model", "transfer"])
def test_nothing_is_written_into_data_of_any_kind(capsys, place, kind) -> None:
    data, root, images = str(place / "photos"), None, place / "photos" / "train" / "ant"
    if kind == "table":
        data = str(place / "table.csv")
        Path(data).write_text("path,label\nphotos/train/ant/0.png,a\nphotos/train/ant/1.png,b\n", encoding="utf-8")
    if kind == "root":
        # As class folders of a known data set below its root.
        data, root, images = "eurosat", str(place / "sets"), place / "sets" / "eurosat" / "2750" / "ant"
        (place / "photos" / "train").rename(place / "train")
        images.parent.parent.mkdir(parents=True)
        (place / "train").rename(images.parent)
    config = config_of(data, root)
    if kind in ("table", "root"):
        make_run(Path("run"), FULL, config=config)
    elif kind == "model":
        model = vitrail.load_model(place / "model")
        model.provenance = {"data": data}
        vitrail.save_model(model, "run")
    else:
        plan = {"config": to_json(config)}
        record = {"format": "vitrail-finetune/1", "plan": plan, "command": "", "versions": {}}
        if kind == "transfer":
            record = {"format": "vitrail-transfer/1", "pairs": [{"plan": plan}, {"plan": None}]}
        Path("run").mkdir()
        Path("run/config.json").write_text(json.dumps(record))
        make_run(Path("run/rate-1"), [trained(5)], config=config)
    before = sorted(place.rglob("*"))
    assert "it would lie inside the data" in fails(capsys, "run", "--out", str(images / "page.html"))
    assert sorted(place.rglob("*")) == before


def test_a_check_is_told_with_one_run_and_nothing_else(capsys) -> None:
    for name in "ab":
        make_run(Path(name), FULL)
    Path("check.json").write_text("{}")
    assert "--check is told with one run" in fails(capsys, "a", "b", "--check", "check.json")
    vitrail.save_model(vitrail.create_model("vit-test", num_classes=3), "mine")
    assert "--check is told with one run" in fails(capsys, "mine", "--check", "check.json")


def test_a_model_whose_images_are_not_known_and_a_file_of_weights(capsys) -> None:
    model = vitrail.create_model("vit-test", num_classes=3)
    vitrail.save_model(model, "mine")
    assert main(["report", "mine"]) == 0
    assert "The file does not say" in read("mine.html").words
    assert main(["report", "mine/model.safetensors"]) == 0
    assert len(read("model.html").inside("learnt", "src")) == 2


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
    vitrail.save_model(model, "other")
    assert "is a model, and only runs" in fails(capsys, "mine", "other")
