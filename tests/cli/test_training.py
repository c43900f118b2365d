"""What all verbs that train show, and what hostile folders of runs can do to going on."""

import contextvars
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.data.conftest import state_of
from tests.tiny_fixtures import _one_thread as _one_thread
from tests.training.test_resume import Crash, crash_at
from tests.training.tiny_run import (
    assert_same_run,
    config,
    events,
    fingerprint,
    losses,
    make_images,
    started,
    trained,
)

from vitrail.cli import main, training
from vitrail.errors import Notice
from vitrail.runtime.lock import only_one
from vitrail.training import checkpoint as checkpoints
from vitrail.training import estimate, start
from vitrail.training.events import Stepped
from vitrail.training.folder import RunFolder


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and a place of its own."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("data") / "images", per_class=6)


# The plan.


def test_a_time_that_could_not_be_tried_out(images, tmp_path, capsys, monkeypatch):
    session = started(config(images), tmp_path / "run")

    def short(_session) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(estimate, "seconds_per_image", short)
    training.say_plan(session, RunFolder(tmp_path / "run"))
    assert "float32; for how long is seen after the first steps\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("each", "told"), [(1e-9, "about 1 second\n"), (1.0, "about 1:36"), (0.05, "about 5 seconds\n")]
)
def test_the_time_is_that_of_all_images(each, told, images, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(estimate, "seconds_per_image", lambda _session: each)
    training.say_plan(started(config(images, steps=12), tmp_path / "run"), RunFolder(tmp_path / "run"))
    assert told in capsys.readouterr().out


def test_pieces_are_told_where_a_batch_has_several(images, tmp_path, capsys):
    training.say_plan(started(config(images, micro_batch=2), tmp_path / "a"), RunFolder(tmp_path / "a"))
    assert "batch 8, 2 at a time, " in capsys.readouterr().out
    training.say_plan(started(config(images), tmp_path / "b"), RunFolder(tmp_path / "b"))
    assert "at a time" not in capsys.readouterr().out


def test_many_patches_are_told_before_they_are_tried(images, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "_MANY_PATCHES", 3)
    tried = []

    def each(_session) -> float:
        tried.append([str(one.message) for one in told])
        return 1.0

    monkeypatch.setattr(estimate, "seconds_per_image", each)
    with pytest.warns(Notice) as told:
        training.say_plan(started(config(images), tmp_path / "a"), RunFolder(tmp_path / "a"))
    assert len(tried) == 1 and "a smaller --image-size takes far less" in tried[0][-1]


# Folders of runs that someone else has made.


@pytest.fixture(scope="module")
def stopped(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its second epoch."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Crash):
        trained(started(config(images, epochs=3), folder), folder, crash_at(Stepped, 5))
    assert len(checkpoints.listed(folder / "checkpoints")) == 2
    return folder


@pytest.fixture
def case(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "case"))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A place of the user, in which nothing may be written."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "file").write_text("mine")
    before = state_of(place)
    yield place
    assert state_of(place) == before


def forge(folder: Path, change: Callable[[dict], object]) -> None:
    """Change the state of every checkpoint, with a checksum that fits."""
    for path in checkpoints.listed(folder / "checkpoints"):
        state = json.loads((path / "state.json").read_text())
        del state["checksum"]
        change(state)
        text = json.dumps({**state, "checksum": checkpoints._checksum(state)})
        (path / "state.json").write_text(text)


def put(path: Path, make: Callable[[Path], object]) -> None:
    """Something else in the place of a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    make(path)


def refused(capsys, folder: Path, *codes: int, seconds: float = 20) -> str:
    """What resuming says: one sentence, within seconds."""
    ended: list[int] = []
    thread = threading.Thread(
        target=lambda: ended.append(main(["train", "--resume", str(folder), "--device", "cpu"])), daemon=True
    )
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert ended, error
    assert ended[0] in codes, error
    (line,) = [line for line in error.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"step": -1}, "step is -1"),
        ({"step": "7"}, "field 'step'"),
        ({"step": 7.5}, "field 'step'"),
        ({"steps": -3}, "steps is -3"),
        ({"micro_batch": 0}, "micro_batch is 0"),
        ({"micro_batch": -8}, "micro_batch is -8"),
        ({"micro_batch": True}, "field 'micro_batch'"),
        ({"records": -1}, "records is -1"),
        ({"bad_in_a_row": -1}, "bad_in_a_row is -1"),
        ({"seconds": "1"}, "field 'seconds'"),
        ({"rate_factor": None}, "field 'rate_factor'"),
        ({"best": [1]}, "field 'best'"),
        ({"best": {"accuracy": "a", "loss": 0.0, "step": 1}}, "field 'accuracy'"),
        ({"evaluated": "x"}, "field 'evaluated'"),
        ({"events": "x"}, "field 'events'"),
        ({"events": [1]}, "field 'events'"),
        ({"events": [{}]}, "an event is not one"),
        ({"events": [{"event": "length", "step": "x"}]}, "an event is not one"),
        ({"more": 1}, "more"),
    ],
    ids=str,
)
def test_progress_that_is_none(capsys, values, told, case):
    forge(case, lambda state: state["progress"].update(values))
    before = state_of(case)
    assert told in refused(capsys, case, 2, 3)
    assert state_of(case) == before


@pytest.mark.parametrize(
    "values",
    [
        {"micro_batch": 100},
        {"micro_batch": 3},
        {"rate_factor": -1.0},
        {"rate_factor": float("nan")},
        {"seconds": -5.0},
        {"seconds": float("nan")},
        {"step": 10**6},
        {"best": {"accuracy": float("nan"), "loss": 0.0, "step": 1}},
    ],
    ids=str,
)
def test_progress_that_cannot_be(capsys, values, case):
    """More images at a time than in a batch, a rate that climbs, a time before the beginning."""
    forge(case, lambda state: state["progress"].update(values))
    refused(capsys, case, 2, 3)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: state.pop("config"), "the run has changed since its last checkpoint"),
        (lambda state: state.update(config=[1]), "the run has changed since its last checkpoint"),
        (lambda state: state.pop("data"), "the run has changed since its last checkpoint"),
        (lambda state: state.pop("progress"), "the progress of the checkpoint"),
        (lambda state: state.update(progress=[]), "the progress of the checkpoint"),
        (lambda state: state.update(sha256=[1]), "none of its checkpoints can be read"),
        (lambda state: state.update(sha256={}), "is not there"),
        (lambda state: state["sha256"].update({"../x": "a"}), "none of its checkpoints can be read"),
        (lambda state: state.update(format="other/1"), "none of its checkpoints can be read"),
    ],
)
def test_a_state_that_lacks_something(capsys, change, told, case):
    forge(case, change)
    assert told in refused(capsys, case, 2, 3)


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "train", "step": 1}',
        '{"event": "train", "step": 1, "loss": "low"}',
        '{"event": "evaluated", "step": 1, "accuracy": []}',
        "[]",
    ],
)
def test_a_log_without_its_numbers_is_no_obstacle(capsys, line, case, images, tmp_path):
    wanted = tmp_path / "wanted"
    trained(started(config(images, epochs=3), wanted), wanted)
    (case / "log.jsonl").write_text(f"{line}\n" * 8)
    assert main(["train", "--resume", str(case), "--device", "cpu"]) == 0
    assert fingerprint(case) == fingerprint(wanted)
    assert "are left out" in capsys.readouterr().err
    assert main(["report", str(case)]) == 0


def test_a_garbage_line_in_the_log_is_put_aside(capsys, case, images, tmp_path):
    wanted = tmp_path / "wanted"
    trained(started(config(images, epochs=3), wanted), wanted)
    lines = (case / "log.jsonl").read_text().splitlines()
    (case / "log.jsonl").write_text("\n".join([*lines[:1], "\0\0<garbage>", *lines[2:]]) + "\n")
    assert main(["train", "--resume", str(case), "--device", "cpu"]) == 0
    assert "1 of " in (told := capsys.readouterr().err) and "log.jsonl.damaged" in told
    assert "<garbage>" in (case / "log.jsonl.damaged").read_text()
    assert fingerprint(case) == fingerprint(wanted)
    assert [event["records"] for event in events(case, "lost_records")] == [1]
    assert len(losses(case)) == len(losses(wanted)) - 1
    assert "have a gap" in (case / "report.html").read_text()


def test_a_log_that_is_gone_is_told_once(capsys, case, images, tmp_path):
    wanted = tmp_path / "wanted"
    trained(started(config(images, epochs=3), wanted), wanted)
    (case / "log.jsonl").unlink()
    assert main(["train", "--resume", str(case), "--device", "cpu"]) == 0
    assert "records are gone" in capsys.readouterr().err
    assert fingerprint(case) == fingerprint(wanted)
    assert losses(case) == losses(wanted)[-len(losses(case)) :]
    assert events(case, "done")
    assert main(["train", "--resume", str(case), "--device", "cpu"]) == 0
    assert "This run is finished" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["fifo", "link"])
def test_weights_that_never_end(capsys, name, make, case):
    for path in checkpoints.listed(case / "checkpoints"):
        put(path / name, make)
    assert "none of its checkpoints can be read" in refused(capsys, case, 3)


def test_a_config_that_never_ends(capsys, case):
    put(case / "config.json", os.mkfifo)
    assert "there is no config.json" in refused(capsys, case, 2)


def test_a_log_that_is_a_link_is_never_written_through(capsys, case, tmp_path):
    log = tmp_path / "log.txt"
    shutil.copy(case / "log.jsonl", log)
    before = log.read_bytes()
    put(case / "log.jsonl", lambda path: path.symlink_to(log))
    assert "log.jsonl" in refused(capsys, case, 2, 3)
    assert log.read_bytes() == before


def test_a_log_that_is_a_link_to_nothing(capsys, case, elsewhere):
    put(case / "log.jsonl", lambda path: path.symlink_to(elsewhere / "none"))
    assert "log.jsonl: is a link" in refused(capsys, case, 2)


def test_figures_that_lead_into_the_data(capsys, case, images):
    before = state_of(images)
    put(case / "figures", lambda path: path.symlink_to(images / "ant"))
    assert "figures: is a link" in refused(capsys, case, 2)
    assert state_of(images) == before


@pytest.mark.parametrize("name", ["report.html", "predictions.npz"])
def test_results_take_the_place_of_links(name, case, elsewhere):
    put(case / name, lambda path: path.symlink_to(elsewhere / "file"))
    assert main(["train", "--resume", str(case), "--device", "cpu"]) == 0
    assert stat.S_ISREG((case / name).lstat().st_mode)


def test_a_model_takes_the_place_of_a_link(case, tmp_path):
    (tmp_path / "empty").mkdir()
    put(case / "model", lambda path: path.symlink_to(tmp_path / "empty"))
    assert main(["train", "--resume", str(case), "--device", "cpu"]) == 0
    assert list((tmp_path / "empty").iterdir()) == []
    assert (case / "model/model.safetensors").is_file()


@pytest.mark.parametrize("name", ["log.jsonl", "state.json"])
def test_text_that_never_ends(capsys, name, case):
    paths = [case / name] if name == "log.jsonl" else [path / name for path in checkpoints.listed(case / "checkpoints")]
    for path in paths:
        put(path, os.mkfifo)
    try:
        refused(capsys, case, 2, 3, seconds=1.5)
    finally:
        # Whoever still reads is told that nothing more comes.
        for path in paths:
            os.close(os.open(path, os.O_RDWR))


@pytest.mark.parametrize("name", [".lock", "checkpoints"])
def test_what_else_may_be_a_link(name, case, tmp_path):
    target = tmp_path / "target"
    if name == "checkpoints":
        shutil.copytree(case / name, target)
    before = state_of(target) if target.exists() else None
    put(case / name, lambda path: path.symlink_to(target))
    main(["train", "--resume", str(case), "--device", "cpu"])
    assert (state_of(target) if target.exists() else None) == before


def test_a_run_that_was_copied_goes_on_as_the_run_itself(case, images, tmp_path):
    wanted = tmp_path / "wanted"
    trained(started(config(images, epochs=3), wanted), wanted)
    assert main(["train", "--resume", str(case), "--device", "cpu"]) == 0
    assert_same_run(case, wanted)


def test_a_run_that_is_being_trained_is_only_read(capsys, case):
    with only_one(case / ".lock", busy="somebody"):
        before = state_of(case)
        assert f"another process is training {case}" in refused(capsys, case, 2)
        assert state_of(case) == before
    assert main(["train", "--resume", str(case), "--device", "cpu"]) == 0
    capsys.readouterr()
    before = state_of(case)
    assert main(["train", "--resume", str(case), "--device", "cpu"]) == 0
    assert "This run is finished" in capsys.readouterr().out
    assert state_of(case) == before


# One at a time, from before the first byte.

TINY = ["train", "vit-digits", "--steps", "1", "--device", "cpu", "--name", "mine"]


def test_a_second_start_between_the_look_at_the_folder_and_its_config_writes_nothing(capsys, monkeypatch):
    """As two commands at one moment have it: neither sees a config, and only one holds the folder."""
    made, second = start.first_model, []

    def meet(*arguments):
        if not second:
            second.append(None)
            before = state_of(Path("runs/mine"))
            second[0] = contextvars.Context().run(main, [*TINY, "--seed", "2"])
            assert state_of(Path("runs/mine")) == before
        return made(*arguments)

    monkeypatch.setattr(start, "first_model", meet)
    assert main([*TINY, "--seed", "1"]) == 0
    assert second == [2]
    assert "another process is working on" in capsys.readouterr().err
    assert json.loads(Path("runs/mine/config.json").read_text())["config"]["train"]["seed"] == 1


def test_who_holds_a_name_is_told_and_its_folder_is_not_touched(capsys):
    program = (
        "import sys; from pathlib import Path; from vitrail.runtime.lock import only_one\n"
        "with only_one(Path('runs/mine/.lock'), busy=''):\n    print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        before = state_of(Path("runs"))
        assert main(TINY) == 2
        assert f"(process {other.pid} on " in capsys.readouterr().err
        assert state_of(Path("runs")) == before
        other.kill()
    # A process that was killed leaves its lock file, which holds nothing.
    assert Path("runs/mine/.lock").exists()
    assert main(TINY) == 0


@pytest.mark.parametrize("kind", ["tensorboard", "wandb"])
def test_a_tracker_that_is_missing_is_told_before_there_is_a_folder(kind, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(kind, kind), None)
    assert main([*TINY, "--track", kind]) == 2
    assert "vitrail[track]" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_tracker_that_cannot_start_leaves_no_run(capsys, monkeypatch):
    def refuse(**_):
        Path("runs/mine/wandb").mkdir()
        raise OSError("no route to host")

    fake = types.SimpleNamespace(init=refuse, Settings=lambda **_: None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    assert main([*TINY, "--track", "wandb"]) == 2
    assert "wandb could not start" in capsys.readouterr().err
    assert list(Path("runs").iterdir()) == []
    assert main(TINY) == 0


def test_few_images_of_ones_own_are_better_fine_tuned_from(capsys, images):
    assert main(["train", "--data", str(images), "--steps", "1", "--image-size", "32", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert f"vitrail finetune vit-ti16 --data {images}" in said
    assert said.index("vitrail finetune vit-ti16") < said.index("accuracy")
    assert main(TINY) == 0
    assert "vit-ti16" not in capsys.readouterr().out
