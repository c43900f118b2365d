import contextvars
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.experiments.conftest import save_network
from tests.training.tiny_run import make_images

from vitrail.cli import main
from vitrail.experiments import transfer
from vitrail.experiments.driver import Driver
from vitrail.experiments.finetune import FinetuneFolder, read_finetuning
from vitrail.runtime.lock import only_one
from vitrail.training.divergence import Diverged
from vitrail.training.events import Event, Stepped
from vitrail.training.run import run

QUICK = ("--steps", 2, "--lr", 0.1, "--batch-size", 16, "--device", "cpu", "--workers", 0)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache and a place of its own, one thread, and runs without a view and a report."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Driver, "train", lambda _driver, session, folder, _run: run(session, folder, lambda _r: None))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save_network(tmp_path / "tiny")


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    make_images(tmp_path / "birds/train", per_class=6)
    make_images(tmp_path / "birds/test", per_class=2)
    return tmp_path / "birds"


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    return make_images(tmp_path / "trees", per_class=6, classes=("ash", "elm"))


def said(capsys, code: int, *words: object) -> tuple[str, str]:
    came = main(["transfer", *map(str, words)])
    printed = capsys.readouterr()
    assert came == code, printed.err
    assert "Traceback" not in printed.err
    return printed.out, printed.err


def plan_of(folder: str):
    return read_finetuning(FinetuneFolder(Path("runs") / folder)).plan


def test_one_command_is_read_when_given_again_and_its_table_grows(capsys, source: Path, birds: Path, trees: Path):
    words = ("--data", birds, trees, *QUICK, "--steps", 3, "trees=2", "--name", "mine")
    out, _ = said(capsys, 0, source, *words)
    assert "1 of 2: tiny on birds" in out
    assert "test accuracy" in out
    # After each finished one the table, in the end what it has to be read with.
    assert out.count("top-1, %") == 2
    assert "The paper has no number for birds, trees." in out
    assert "* measured on training images that were left out" in out
    assert (plan_of("mine/tiny/birds").config.train.steps, plan_of("mine/tiny/trees").config.train.steps) == (3, 2)
    weights = Path("runs/mine/tiny/birds/model/model.safetensors")
    before, written = Path("runs/mine/table.json").read_text(), weights.stat().st_mtime_ns

    out, _ = said(capsys, 0, source, *words)
    assert "2 of 2: tiny on trees: done before" in out
    assert "run 1 of" not in out
    assert out.count("top-1, %") == 1
    assert json.loads(Path("runs/mine/table.json").read_text())["cells"] == json.loads(before)["cells"]
    assert weights.stat().st_mtime_ns == written

    second = save_network(Path("second"))
    out, _ = said(capsys, 0, second, "--data", birds, *QUICK, "--name", "mine")
    assert [cell["model"] for cell in json.loads(Path("runs/mine/table.json").read_text())["cells"]] == [
        "tiny",
        "tiny",
        "second",
    ]
    # Each is an ordinary fine-tuning.
    assert main(["finetune", "--resume", "runs/mine/second/birds", "--device", "cpu"]) == 0

    _, error = said(capsys, 2, source, *words, "--seed", 7)
    assert "is another one: config.train.seed: 0, now 7" in error


def test_absent_data_is_known_before_the_first_run(capsys, source: Path, birds: Path):
    words = (source, "--data", birds, "nowhere", "oxford-pets", "--data-root", "empty", *QUICK, "--name", "mine")
    _, error = said(capsys, 3, *words)
    assert "2 of 3 data sets cannot be used" in error
    assert "nowhere: there is no such folder or file" in error
    assert "oxford-pets: " in error
    assert "--skip-missing" in error
    assert not Path("runs").exists()

    out, error = said(capsys, 3, *words, "--skip-missing")
    assert "2 of 3 fine-tunings failed (tiny on nowhere, tiny on oxford-pets); the others are kept" in error
    assert "failed: tiny on oxford-pets: " in out
    cells = json.loads(Path("runs/mine/table.json").read_text())["cells"]
    assert [cell["state"] for cell in cells] == ["done", "failed", "failed"]
    # Nothing is left to do if nothing is there.
    _, error = said(capsys, 3, source, "--data", "nowhere", *QUICK, "--skip-missing", "--name", "none")
    assert "1 of 1 data sets cannot be used" in error
    assert not Path("runs/none").exists()


def test_one_that_fails_takes_nothing_with_it(capsys, source: Path, birds: Path, trees: Path, monkeypatch):
    words = (source, "--data", birds, trees, *QUICK, "--name", "mine")

    def diverging(_driver, session, folder, _run):
        if "birds" in str(folder.path):
            raise Diverged("the loss is not finite at any of the learning rates")
        return run(session, folder, lambda _r: None)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "train", diverging)
        out, error = said(capsys, 4, *words)
    assert "failed: tiny on birds: the loss is not finite" in error
    assert "1 of 2 fine-tunings failed (tiny on birds); the others are kept" in error
    assert "To try again: vitrail transfer --resume runs/mine." in error
    assert "failed" in Path("runs/mine/table.md").read_text()
    assert Path("runs/mine/tiny/trees/result.json").is_file()
    out, _ = said(capsys, 0, "--resume", "runs/mine", "--device", "cpu")
    assert "2 of 2: tiny on trees: done before" in out
    assert "failed" not in Path("runs/mine/table.md").read_text()


def test_ctrl_c_and_going_on(capsys, source: Path, birds: Path, trees: Path, monkeypatch):
    def interrupted(_driver, session, folder, _run):
        def watch(event: Event) -> None:
            if isinstance(event, Stepped) and "trees" in str(folder.path):
                os.kill(os.getpid(), signal.SIGINT)

        return run(session, folder, watch)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "train", interrupted)
        _, error = said(capsys, 75, source, "--data", birds, trees, *QUICK, "--name", "mine")
    assert "everything is saved. To go on: vitrail transfer --resume runs/mine." in error
    assert "..." in Path("runs/mine/table.md").read_text()
    out, _ = said(capsys, 0, "--resume", "runs/mine", "--device", "cpu")
    assert "1 of 2: tiny on birds: done before" in out
    assert "going on after step 1" in out
    assert "..." not in Path("runs/mine/table.md").read_text()


def test_real_labels_are_counted_from_the_answers_of_the_final_models(capsys, source: Path, tmp_path: Path):
    make_images(tmp_path / "pictures/train", per_class=6)
    make_images(tmp_path / "pictures/val", per_class=2)
    for number, path in enumerate(sorted((tmp_path / "pictures/val").rglob("*.png")), start=1):
        path.rename(path.with_name(f"ILSVRC2012_val_{number:08}.png"))
    # Of the eight images the second has no label; the others have their own, or any for the last.
    sets = [[0], [], [1], [1], [2], [2], [3], [0, 1, 2, 3]]
    (tmp_path / "real.json").write_text(json.dumps(sets))
    words = ("--data", "pictures", "--recipe", "finetune-imagenet", "--image-size", 8, *QUICK, "--seeds", 2)
    _, error = said(capsys, 3, source, *words, "--real-labels", "absent.json")
    assert "absent.json: cannot be read" in error
    _, error = said(capsys, 2, source, "--data", "pictures", *QUICK, "--real-labels", "real.json")
    assert "--real-labels is given without ImageNet" in error
    assert not Path("runs").exists()
    out, _ = said(capsys, 0, source, *words, "--real-labels", "real.json", "--name", "mine")
    assert "pictures ReaL" in out
    counted = []
    for seed in (0, 1):
        guesses = np.load(f"runs/mine/tiny/pictures/seed-{seed}/predictions.npz")["guesses"][:, 0]
        counted.append(sum(int(guess) in own for guess, own in zip(guesses, sets, strict=True) if own) / 7)
    found = json.loads(Path("runs/mine/table.json").read_text())["cells"][0]["found"]
    assert found["real_mean"] == pytest.approx(sum(counted) / 2)
    assert found["real_images"] == 7


def test_mistakes_get_a_sentence_and_leave_nothing(capsys, source: Path, birds: Path, tmp_path: Path):
    given = (source, "--data", birds, *QUICK)
    assert "Unknown data set 'bird'. Did you mean 'birds'?" in said(capsys, 2, *given, "--image-size", "bird=8")[1]
    assert "there is no model to start from" in said(capsys, 2, "--data", birds)[1]
    assert "is given twice" in said(capsys, 2, source, source, "--data", birds)[1]
    assert "there is no such file or folder" in said(capsys, 3, "no.npz", "--data", birds)[1]
    assert "freeze is 9" in said(capsys, 2, *given, "--freeze", 9)[1]
    assert "it would lie inside the data" in said(capsys, 2, *given, "--out", birds)[1]
    assert "cannot change a run that goes on" in said(capsys, 2, "--resume", "runs/mine", "--steps", 3)[1]
    assert "there is no such folder" in said(capsys, 2, "--resume", "runs/mine")[1]
    assert not list(tmp_path.glob("runs/*"))
    (tmp_path / "runs/taken").mkdir(parents=True)
    (tmp_path / "runs/taken/thesis.tex").touch()
    assert "holds something else" in said(capsys, 2, *given, "--name", "taken")[1]


def test_help_needs_neither_models_nor_data(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["transfer", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for word in ("--data", "--skip-missing", "--real-labels", "--steps cifar10=1000 oxford-pets=500", "--resume"):
        assert word in out


@pytest.mark.slow
def test_two_processes_make_the_same_table(source: Path, birds: Path, trees: Path):
    import subprocess

    words = [sys.executable, "-m", "vitrail", "transfer", source, "--data", birds, trees, *QUICK]
    for extra in (["--name", "one"], ["--name", "two", "--processes", 2]):
        subprocess.run([*map(str, words), *map(str, extra)], check=True, timeout=300)
    one, two = (json.loads(Path(f"runs/{name}/table.json").read_text())["cells"] for name in ("one", "two"))
    assert [cell["found"]["mean"] for cell in one] == [cell["found"]["mean"] for cell in two]


def test_other_weights_in_the_same_place_are_another_model(capsys, source: Path, birds: Path, tmp_path: Path):
    words = (source, "--data", birds, *QUICK, "--name", "mine")
    said(capsys, 0, *words)
    shutil.rmtree(source)
    save_network(source, seed=7)
    _, err = said(capsys, 2, *words)
    assert "start_fingerprint" in err
    assert "choose another --name" in err


def test_a_second_command_leaves_the_folder_of_the_first_alone(capsys, source: Path, birds: Path):
    """Also in the time before the first run, when there is nothing but a lock and a config."""
    words = (source, "--data", birds, *QUICK, "--name", "mine")
    said(capsys, 0, *words)
    shutil.rmtree("runs/mine/tiny")
    with only_one(Path("runs/mine/.lock"), busy="mine"):
        _, err = said(capsys, 2, *words)
        assert "another process is working on" in err
        assert Path("runs/mine/.lock").exists()
        assert Path("runs/mine/config.json").is_file()
    said(capsys, 0, *words)


def test_a_model_keeps_its_name_in_a_table(capsys, source: Path, birds: Path, trees: Path, tmp_path: Path):
    other = save_network(tmp_path / "other" / "tiny", seed=5)
    said(capsys, 0, source, other, "--data", birds, *QUICK, "--name", "mine")
    said(capsys, 0, source, "--data", trees, *QUICK, "--name", "mine")
    pairs = json.loads(Path("runs/mine/config.json").read_text())["pairs"]
    assert len({pair["model"] for pair in pairs}) == 2
    assert "tiny" not in {pair["model"] for pair in pairs}
    assert [pair["data"] for pair in pairs] == ["birds", "birds", "trees"]


def test_a_rate_that_leads_nowhere_gives_a_number_and_no_riddle(capsys, source: Path, birds: Path):
    out, _ = said(capsys, 0, source, "--data", birds, *QUICK, "--steps", 4, "--lr", "1e9", "--name", "far")
    assert "field 'loss'" not in out
    assert "test accuracy" in out


def test_a_second_start_before_the_first_has_written_its_config_writes_nothing(capsys, source, birds, monkeypatch):
    join, second = transfer._join_folder, []
    words = ["transfer", *map(str, (source, "--data", birds, *QUICK, "--seeds", 1, "--name", "mine"))]

    def meet(*arguments):
        if not second:
            second.append(None)
            second[0] = contextvars.Context().run(main, words)
            assert [path.name for path in Path("runs/mine").iterdir()] == [".lock"]
        return join(*arguments)

    monkeypatch.setattr(transfer, "_join_folder", meet)
    assert main(words) == 0
    assert second == [2]
    assert "another process is working on" in capsys.readouterr().err


def test_a_table_from_before_copies_were_looked_for_goes_on_as_it_was_begun(capsys, source, birds, trees):
    words = ("--data", birds, trees, *QUICK, "--name", "mine")
    said(capsys, 0, source, *words, "--copies", "apart")
    shutil.rmtree("runs/mine/tiny/trees")
    # It did not say so.
    for file in Path("runs/mine").rglob("config.json"):
        file.write_text(re.sub(r'"copies": "apart",\s*', "", file.read_text()))
    second = save_network(Path("second"))
    _, error = said(capsys, 0, source, second, *words)
    assert "note: " in error and "--copies apart" in error
    folders = ("tiny/birds", "tiny/trees", "second/birds", "second/trees")
    assert {plan_of(f"mine/{folder}").config.data.copies for folder in folders} == {"apart"}

    _, error = said(capsys, 0, source, *words, "--name", "new")
    assert "--copies" not in error
    assert plan_of("new/tiny/trees").config.data.copies == "together"
