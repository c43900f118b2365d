"""`vitrail vtab` from the words to the table, on tiny data that somebody prepared."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.experiments.conftest import save_network
from tests.training.tiny_run import make_images

from vitrail.cli import main
from vitrail.data.vtab.tasks import TASKS
from vitrail.experiments.driver import Driver
from vitrail.training.events import Event, Stepped
from vitrail.training.folder import RunFolder, read_run
from vitrail.training.run import run

QUICK = ("--steps", 2, "--batch-size", 16, "--image-size", 8, "--seeds", 1, "--device", "cpu", "--workers", 0)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A model, and kitti-distance (4 classes) as a folder that somebody prepared; runs without a view and a page."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    save_network(tmp_path / "model")
    for split, count in (("train", 8), ("val", 3), ("test", 2)):
        make_images(tmp_path / "data" / "vtab" / "kitti-distance" / split, per_class=count)
    monkeypatch.setattr(Driver, "train", lambda _driver, session, folder, _run: run(session, folder, lambda _r: None))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(before)


def said(capsys, *words: object, code: int = 0) -> tuple[str, str]:
    found = main(["vtab", *map(str, words)])
    printed = capsys.readouterr()
    assert found == code, printed.err
    return printed.out, printed.err


def start(capsys, *words: object, code: int = 0) -> tuple[str, str]:
    return said(capsys, "model", "--data-root", "data", "--name", "v", *QUICK, *words, code=code)


def table() -> dict:
    return json.loads(Path("runs/v/table.json").read_text())


def test_the_list_names_every_file(capsys):
    out, _ = said(capsys, "list", "--data-root", "data")
    for task in TASKS.values():
        assert task.name in out
        assert all(f"data/{pattern}" in out for pattern in task.files) == (task.name != "kitti-distance")
    rows = json.loads(said(capsys, "list", "--data-root", "data", "--json")[0])
    assert [row["name"] for row in rows if not row["missing"]] == ["kitti-distance"]
    assert len(rows) == 19


def test_a_task_is_a_fine_tuning_and_is_done_once(capsys):
    out, err = start(capsys, "--tasks", "kitti-distance")
    assert f"in the parts of {Path('data/vtab/kitti-distance').absolute()}." in err
    assert "own split" in out and "Not as in the paper: 2 steps instead of 2,500" in out
    assert err.count("is our own split") == 1
    final = read_run(RunFolder(Path("runs/v/kitti-distance/seed-0")))
    assert final.counts == {"train": 44, "test": 8}
    assert (final.config.augment.crop, final.config.optim.lr) == ("whole", 0.01)
    score = table()["tasks"]["kitti-distance"]
    assert (score["images"], score["whole"], score["seeds"]) == (8, 711, 1)
    assert (score["train"], score["val"]) == (32, 12)
    assert "kitti-distance: 32 + 12 images to learn from instead of 800 + 200" in out
    assert table()["mean"] is None and table()["groups"] == {"Natural": None, "Specialized": None, "Structured": None}
    split = json.loads(Path("runs/v/splits/kitti-distance.json").read_text())
    assert split["sha256"] == score["sha256"] and len(split["val200"]) == 12
    before = {path: path.stat().st_mtime_ns for path in Path("runs/v/kitti-distance").rglob("*")}
    start(capsys, "--tasks", "kitti-distance")
    said(capsys, "--resume", "runs/v")
    assert before == {path: path.stat().st_mtime_ns for path in Path("runs/v/kitti-distance").rglob("*")}
    assert table()["tasks"]["kitti-distance"] == score


def test_what_is_not_there_is_told_and_the_others_go_on(capsys):
    out, err = start(capsys, "--tasks", "dtd", "kitti-distance", code=3)
    assert "1 of 2 tasks have no data here. Wanted:" in out
    wanted = str(Path("data").absolute() / "dtd/dtd/labels/*1.txt")
    assert wanted in out and wanted in table()["missing"]["dtd"]
    assert set(table()["tasks"]) == {"kitti-distance"}
    assert "1 of 19 tasks are there, so there is no mean of all." in out
    assert "error: 1 task has no number: dtd. dtd: " in err
    assert err.endswith("Then go on: vitrail vtab --resume runs/v.\n")


def test_data_that_fails_is_told_and_the_others_go_on(capsys, place):
    (place / "data/vtab/dmlab.csv").write_text("path,label\n")
    out, _ = start(capsys, "--tasks", "dmlab", "kitti-distance", code=3)
    assert "dmlab failed: " in out and "there are no rows below the names" in table()["missing"]["dmlab"]
    assert set(table()["tasks"]) == {"kitti-distance"}


def test_augreg_with_a_length_that_was_asked_for_tries_the_rates(capsys):
    out, _ = start(capsys, "--tasks", "kitti-distance", "--setting", "augreg", "--rates", 0.01, 0.03)
    assert "held-out accuracy" in out
    sweep = read_run(RunFolder(Path("runs/v/kitti-distance/sweep/lr-0.03")))
    assert sweep.counts == {"train": 32, "held-out": 12}
    assert sweep.config.recipe == "augreg-finetune-vtab-500"


@pytest.mark.slow
def test_augreg_keeps_the_length_that_was_best_on_val(capsys):
    words = ("model", "--data-root", "data", "--name", "v", *QUICK[2:], "--tasks", "kitti-distance")
    said(capsys, *words, "--setting", "augreg", "--rates", 0.003, 0.01)
    folder = table()["tasks"]["kitti-distance"]["folder"]
    results = {
        path.parent.name: json.loads(path.read_text()) for path in Path("runs/v/kitti-distance").glob("*/result.json")
    }
    assert set(results) == {"augreg-finetune-vtab-500", "augreg-finetune-vtab-2500"}
    best = {name: max(trial["measured"]["accuracy"] for trial in result["rates"]) for name, result in results.items()}
    assert best[Path(folder).name] == max(best.values())


def test_stopped_and_gone_on_with(capsys, monkeypatch):
    def stopped(_driver, session, folder, _run):
        def watch(event: Event) -> None:
            if event == Stepped(step=1):
                os.kill(os.getpid(), signal.SIGINT)

        return run(session, folder, watch)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "train", stopped)
        _, err = start(capsys, "--tasks", "kitti-distance", "--train.log-every", 1, code=75)
    assert "vitrail vtab --resume runs/v" in err
    said(capsys, "--resume", "runs/v")
    assert table()["tasks"]["kitti-distance"]["images"] == 8


def test_another_command_of_the_same_name_is_refused_but_for_its_tasks(capsys, place):
    start(capsys, "--tasks", "kitti-distance")
    _, err = start(capsys, "--tasks", "kitti-distance", "--lr", 0.5, code=2)
    assert "the VTAB of this name is another one: settings.optim.lr: null, now 0.5" in err
    make_images(place / "mine/train", per_class=4)
    make_images(place / "mine/test", per_class=2)
    # Four classes, where this task has six.
    _, err = start(capsys, "--tasks", "dmlab", "--sources", "dmlab=mine", code=3)
    assert "there are 4 classes; wanted 6 for dmlab" in table()["missing"]["dmlab"]
    # What another command of the same name has done is in the table as well.
    assert set(table()["tasks"]) == {"kitti-distance"}
    # Its images come from where they came from.
    other = f"kitti-distance={place / 'mine'}"
    _, err = start(capsys, "--tasks", "kitti-distance", "--sources", "kitti-distance=mine", code=2)
    assert f"the task kitti-distance is kitti-distance here, now {other}." in err
    config = place / "runs/v/config.json"
    before = config.read_text()
    config.write_text(json.dumps({**json.loads(before), "tasks": [other]}))
    said(capsys, "--resume", "runs/v", code=2)
    assert f"it was begun with vtab:kitti-distance; wanted vtab:{other}." in table()["missing"]["kitti-distance"]
    config.write_text(before)
    # What cannot be read of another task does not end the command.
    (place / "runs/v/kitti-distance/result.json").write_text("{")
    out, err = start(capsys, "--tasks", "dmlab", "--sources", "dmlab=mine", code=3)
    assert "kitti-distance failed: " in out and "2 tasks have no number: dmlab, kitti-distance" in err
    assert set(table()["missing"]) == {"dmlab", "kitti-distance"}


def test_another_split_than_before_is_refused(capsys, place):
    start(capsys, "--tasks", "kitti-distance")
    (place / "runs/v/kitti-distance/result.json").unlink()
    next((place / "data/vtab/kitti-distance/train/ant").iterdir()).unlink()
    start(capsys, "--tasks", "kitti-distance", code=2)
    assert "the split is another one than before: " in table()["missing"]["kitti-distance"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--tasks", "pets"], "Unknown VTAB task 'pets'."),
        (["--data", "digits"], "--data cannot be set for vtab: --tasks says which; --sources says where from"),
        (["--held-out", "0.1"], "--held-out cannot be set for vtab"),
        (["--sources", "dtd"], "a source is 'dtd'; wanted TASK=DATA"),
        (["--tasks", "dtd", "--sources", "svhn=digits"], "there is a source for svhn, which is not among the --tasks"),
        (["--out", "data/vtab"], "it would lie inside the data"),
        (["--data-root", "elsewhere", "--out", "elsewhere", "--name", "vtab"], "it would lie inside the data"),
        (["--data-root", "elsewhere", "--out", "elsewhere", "--name", "dtd"], "it would lie inside the data"),
        (["--sources", "dtd=data", "dtd=model"], "dtd is named twice; wanted one place for its images"),
        (["--tasks", "dtd", "dtd=data"], "dtd is named twice"),
        (["--tasks", "dtd=data", "--sources", "dtd=model"], "dtd is named twice"),
        (["--train.keep", "best"], "keep is 'best'; wanted 'last'"),
        (["--lr", "0.1", "--rates", "0.1", "0.2"], "both --lr and --rates are given"),
        (["--image-size", "2"], "patch"),
    ],
)
def test_words_that_do_not_fit(words, reason, capsys):
    _, err = start(capsys, *words, code=2)
    assert reason in err
    assert not Path("runs").exists()


def test_one_rate_does_not_choose_a_length(capsys):
    words = ("model", "--data-root", "data", *QUICK[2:], "--setting", "augreg")
    for rates in (["--lr", 0.01], ["--rates", 0.01]):
        err = said(capsys, *words, *rates, code=2)[1]
        assert "there is one learning rate and 2 lengths" in err and "Name the length with --steps" in err
    assert not Path("runs").exists()


def test_nothing_is_written_into_a_source(capsys, place):
    for split in ("train", "test"):
        make_images(place / "mine" / split, per_class=2)
    rows = [f"{path},{path.parent.name},{path.parents[1].name}\n" for path in sorted((place / "mine").rglob("*.png"))]
    assert rows
    (place / "mine.csv").write_text(f"path,label,split\n{''.join(rows)}")
    before = sorted(place.rglob("*"))
    for source, out in (("mine", "mine"), ("mine", "mine/train"), ("mine.csv", "mine/train/ant")):
        words = ("--tasks", "kitti-distance", "--sources", f"kitti-distance={source}", "--out", out)
        assert "it would lie inside the data" in start(capsys, *words, code=2)[1]
    assert sorted(place.rglob("*")) == before


def test_a_typing_error_leaves_nothing_behind(capsys):
    _, err = start(capsys, "--stepz", 3, code=2)
    assert "there is no --stepz. Did you mean --steps?" in err
    assert not Path("runs").exists()


def test_without_a_model(capsys):
    assert "there is no model to start from" in said(capsys, "--tasks", "dtd", code=2)[1]
    assert "there is no such folder" in said(capsys, "--resume", "nowhere", code=2)[1]


def test_a_task_is_data_for_any_command(capsys):
    assert (
        main(["fewshot", "model", "--data", "vtab:kitti-distance", "--root", "data", "--shots", "1", "--device", "cpu"])
        == 0
    )
    out = capsys.readouterr().out
    assert "vtab:kitti-distance, train800: features of 32 images" in out
    words = ["--data", "vtab:kitti-distance", "--root", "data", "--recipe", "finetune-vtab", "--name", "f"]
    assert main(["finetune", "model", *words, *map(str, QUICK)]) == 0
