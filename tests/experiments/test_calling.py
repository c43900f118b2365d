"""Calls from Python: what comes back, what is told on the way, and a process that is left as it was."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.experiments.conftest import save_network
from tests.training.tiny_run import make_images

import vitrail
from vitrail.errors import DataError, UsageError, VitrailError
from vitrail.training.divergence import Diverged
from vitrail.training.events import Done, Evaluated, Event, RunBegan, RunEnded, Stepped, Trained
from vitrail.training.folder import RunFolder, read_run
from vitrail.training.stopping import Stopped

QUICK: dict[str, Any] = {"device": "cpu", "split": "train[:100]", "batch_size": 16}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place of its own."""
    monkeypatch.chdir(tmp_path)


def state() -> dict[str, Any]:
    """Everything that a call has to leave as it was."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
        "torch": torch.get_rng_state().tolist(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "handlers": {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)},
        "filters": list(warnings.filters),
        "show": warnings.showwarning,
        "workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "threads alive": threading.active_count(),
    }


def press_ctrl_c(step: int):
    """Ctrl-C after this step."""

    def hear(event: Event) -> None:
        if event == Stepped(step=step):
            os.kill(os.getpid(), signal.SIGINT)

    return hear


def test_a_run_comes_back_with_everything() -> None:
    heard: list[Event] = []
    run = vitrail.train("vit-digits", steps=6, name="mine", on_event=heard.append, **QUICK)
    assert run.folder == Path("runs/mine").absolute() and run.verb == "train"
    assert run.result.split == "test" and run.result.images == 359 and run.result.steps == 6
    assert run.accuracy == run.result.accuracy
    with torch.no_grad():
        assert run.model(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    assert run.model.labels == tuple(map(str, range(10)))
    assert run.report is not None and run.report.read_text().startswith("<!doctype html>")
    assert repr(run) == f"Finished('{run.folder}', train, accuracy={run.accuracy:.4f})"
    # It stands wherever a model does.
    assert vitrail.load_model(run).labels == run.model.labels
    assert [event.step for event in heard if isinstance(event, Stepped)] == [1, 2, 3, 4, 5, 6]
    *_, done, ended = heard
    assert heard[0] == RunBegan(folder="runs/mine", title="vit-digits", steps=6)
    assert ended == RunEnded(folder="runs/mine", title="vit-digits")
    assert isinstance(done, Done) and done.metrics is not None and done.metrics["accuracy"] == run.accuracy
    # What is logged is what was told.
    kinds = (Trained, Evaluated, Done)
    assert [event for event in run.history if isinstance(event, kinds)] == [e for e in heard if isinstance(e, kinds)]
    record = read_run(RunFolder(run.folder))
    assert record.command == (
        "vitrail.train('vit-digits', steps=6, name='mine', device='cpu', split='train[:100]', batch_size=16)"
    )


def test_the_same_config_as_from_the_command_line() -> None:
    from vitrail.cli import main

    settings = {"augment.mixup": 0.4, "optim.clip": None, "optim.betas": (0.8, 0.9)}
    vitrail.train("vit-digits", steps=2, lr=0.01, name="called", settings=settings, **QUICK)
    typed = "--steps 2 --lr 0.01 --name typed --augment.mixup 0.4 --optim.clip None --optim.betas 0.8 0.9"
    more = "--device cpu --split train[:100] --batch-size 16"
    assert main(["train", "vit-digits", *typed.split(), *more.split()]) == 0
    assert read_run(RunFolder(Path("runs/called"))).config == read_run(RunFolder(Path("runs/typed"))).config
    weights = [Path(f"runs/{name}/model/model.safetensors").read_bytes() for name in ("called", "typed")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("way", ["done", "refused", "stopped", "failed", "diverged"])
def test_the_process_is_left_as_it_was(way: str) -> None:
    before = state()

    def fail(_event: Event) -> None:
        raise ZeroDivisionError

    call: dict[str, Any] = {"steps": 4, "settings": {"train.deterministic": True}, **QUICK}
    match way:
        case "done":
            vitrail.train("vit-digits", **call)
        case "refused":
            with pytest.raises(UsageError):
                vitrail.train("vit-digits", **call, freeze=99)
        case "stopped":
            with pytest.raises(Stopped):
                vitrail.train("vit-digits", on_event=press_ctrl_c(2), **call)
        case "failed":
            with pytest.raises(ZeroDivisionError):
                vitrail.train("vit-digits", on_event=fail, **call)
        case "diverged":
            with pytest.raises(Diverged):
                call["settings"] = {"train.deterministic": True, "train.log_every": 1, "optim.clip": None}
                vitrail.train("vit-digits", **{**call, "steps": 60, "lr": 1e38})
    after = state()
    assert {name for name in before if before[name] != after[name]} == set()


def test_ctrl_c_raises_what_can_go_on_and_ends_as_if_nothing_had_happened() -> None:
    whole = vitrail.train("vit-digits", steps=8, name="whole", **QUICK)
    with pytest.raises(Stopped) as caught:
        vitrail.train("vit-digits", steps=8, name="cut", on_event=press_ctrl_c(3), **QUICK)
    assert "vitrail.train(resume='runs/cut')" in str(caught.value)
    run = caught.value.run
    assert (
        run.folder == Path("runs/cut").absolute() and run.result is None and run.accuracy is None and run.report is None
    )
    assert "not at its end" in repr(run)
    again = run.resume()
    assert again.accuracy == whole.accuracy
    weights = [(one.folder / "model/model.safetensors").read_bytes() for one in (whole, again)]
    assert weights[0] == weights[1]
    assert again.resume().accuracy == whole.accuracy


def test_a_fine_tuning_of_a_network_in_memory_is_stopped_and_goes_on(data: Path) -> None:
    network = vitrail.load_model(save_network(Path("source")))
    call: dict[str, Any] = {
        "data": data,
        "steps": 4,
        "batch_size": 8,
        "rates": (0.01, 0.1),
        "seeds": 2,
        "device": "cpu",
    }
    whole = vitrail.finetune(network, name="whole", **call)
    assert whole.accuracy == whole.result.mean and len(whole.result.seeds) == 2
    assert set(whole.history) == {"sweep/lr-0.01", "sweep/lr-0.1", "seed-0", "seed-1"}
    steps: list[Event] = []

    def hear(event: Event) -> None:
        if isinstance(event, Stepped):
            steps.append(event)
            if len(steps) == 6:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Stopped) as caught:
        vitrail.finetune(network, name="cut", on_event=hear, **call)
    # It may be moved meanwhile, with what was stored in it.
    moved = caught.value.run.folder.rename("moved")
    again = vitrail.finetune(resume=moved, device="cpu")
    assert again.result.mean == whole.result.mean and again.result.chosen == whole.result.chosen
    assert (whole.folder / "in-memory/model-0/model.safetensors").is_file()


def test_a_network_in_memory_is_trained_from_the_weights_it_has() -> None:
    network = vitrail.load_model(save_network(Path("source")))
    run = vitrail.train(network, data="digits", steps=2, name="mine", lr=0.0, image_size=8, **QUICK)
    config = read_run(RunFolder(run.folder)).config
    assert config.recipe == "vit-digits" and config.model.width == 32
    assert config.start is not None and Path(config.start).is_relative_to(run.folder.resolve())
    # With a rate of zero the blocks are as they were, behind a new head.
    for name, tensor in network.state_dict().items():
        if name.startswith("blocks"):
            assert torch.equal(tensor, run.model.state_dict()[name]), name
    assert run.model.labels == tuple(map(str, range(10)))


def test_arrays_are_stored_and_learnt_from() -> None:
    random_numbers = np.random.default_rng(0)
    images = random_numbers.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    labels = np.arange(40) % 4
    run = vitrail.train("vit-digits", data=(images, labels), steps=2, batch_size=8, device="cpu", name="arrays")
    assert run.model.labels == ("0", "1", "2", "3")
    config = read_run(RunFolder(run.folder)).config
    assert Path(config.data.data).is_relative_to(run.folder.resolve())
    assert run.resume().accuracy == run.accuracy


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ({"data": torch.utils.data.TensorDataset(torch.zeros(3))}, "TensorDataset"),
        ({"data": (np.zeros((3, 8, 8)), [0, 1, 2])}, "uint8"),
        ({"recipe": torch.nn.Linear(3, 3), "data": "digits"}, "Linear"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(call: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        vitrail.train(call.get("recipe", "vit-digits"), data=call["data"], steps=1, device="cpu")
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_works_outside_the_main_thread() -> None:
    found: list[Any] = []

    def work() -> None:
        found.append(vitrail.train("vit-digits", steps=2, name="threaded", **QUICK))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    assert found and found[0].result.steps == 2


def test_a_plan_says_what_will_be_done_and_does_nothing(data: Path) -> None:
    source = save_network(Path("source"))
    plan = vitrail.plan("finetune", source, data=data, steps=5, rates=(0.01, 0.1), seeds=2, device="cpu", batch_size=8)
    assert [name for name, _ in plan.runs] == ["sweep/lr-0.01", "sweep/lr-0.1", "seed-0", "seed-1"]
    assert plan.config.train.steps == 5 and plan.config.optim.lr == 0.01
    assert plan.cost.images == 4 * 5 * 8
    assert plan.cost.flops > 0 and plan.cost.seconds is not None and plan.cost.seconds > 0
    assert plan.cost.memory is not None and plan.cost.memory > 0
    assert not Path("runs").exists()
    run = plan.start()
    assert run.result.images == 12
    single = vitrail.plan("train", "vit-digits", epochs=2, device="cpu", batch_size=16, split="train[:100]")
    assert [name for name, _ in single.runs] == [""] and single.cost.images == 12 * 16


def test_a_transfer_takes_values_for_some_data_sets_alone(data: Path) -> None:
    source = save_network(Path("source"))
    heard: list[Event] = []
    call: dict[str, Any] = {
        "data": [str(data), "digits"],
        "batch_size": 8,
        "rates": (0.1,),
        "seeds": 1,
        "device": "cpu",
    }
    steps = {"digits": 2, data.name: 3}
    run = vitrail.transfer(source, name="both", steps=steps, on_event=heard.append, image_size=8, **call)
    assert [(cell.data, cell.state) for cell in run.result.cells] == [(data.name, "done"), ("digits", "done")]
    assert [event.step for event in heard if isinstance(event, Done)] == [3, 2]
    began = [Path(event.folder) for event in heard if isinstance(event, RunBegan)]
    assert began == [Path("runs/both/source") / data.name / "seed-0", Path("runs/both/source/digits/seed-0")]
    with pytest.raises(UsageError, match="Unknown data set"):
        vitrail.transfer(source, name="other", steps={"digit": 2}, **call)
    plan = vitrail.plan("transfer", source, name="planned", steps=2, image_size=8, **call)
    assert [name for name, _ in plan.runs] == [f"source/{data.name}/seed-0", "source/digits/seed-0"]


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_tasks_are_planned_and_done_from_a_network_in_memory() -> None:
    for split, images in (("train", 8), ("val", 3), ("test", 2)):
        make_images(Path("data/vtab/kitti-distance") / split, per_class=images)
    source = save_network(Path("source"))
    call: dict[str, Any] = {"tasks": "kitti-distance", "data_root": "data", "steps": 2, "image_size": 8, "seeds": 1}
    call |= {"batch_size": 8, "device": "cpu", "name": "mine"}
    plan = vitrail.plan("vtab", source, **call)
    assert [name.rpartition("/")[0] for name, _ in plan.runs][-1] == "kitti-distance"
    assert not Path("runs").exists()
    assert set(plan.start().result.scores) == {"kitti-distance"}
    run = vitrail.vtab(vitrail.load_model(source), **{**call, "name": "memory"})
    assert run.result.scores["kitti-distance"].images == 8
    with pytest.raises(DataError, match="dtd"):
        vitrail.vtab(source, **{**call, "name": "absent", "tasks": ["dtd"]})


def test_a_refused_call_removes_nothing_but_its_own() -> None:
    images, labels = np.zeros((8, 8, 8), np.uint8), [0, 1] * 4
    call: dict[str, Any] = {"data": (images, labels), "steps": 1, "device": "cpu"}
    theirs = Path("runs/mine/in-memory/data/thesis.tex")
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    with pytest.raises(UsageError):
        vitrail.train("vit-digits", name="mine", **call)
    assert theirs.exists()
    done = vitrail.train("vit-digits", steps=1, name="done", **QUICK)
    with pytest.raises(UsageError, match="there is a run already"):
        vitrail.train("vit-digits", name="done", **call)
    assert not (done.folder / "in-memory").exists()


def test_what_cannot_be_given_together_is_told() -> None:
    images = (np.zeros((8, 8, 8), np.uint8), [0, 1] * 4)
    with pytest.raises(UsageError, match="given twice"):
        vitrail.train("vit-digits", data=images, settings={"data.data": "digits"})
    with pytest.raises(UsageError, match="in memory came with resume"):
        vitrail.train(data=images, resume="runs/x")
    for wrong in ("lr", {1: 2}, [("lr", 1)]):
        with pytest.raises(UsageError, match="settings is"):
            vitrail.train("vit-digits", settings=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="name is given for one data set alone"):
        vitrail.transfer("model", data=["digits"], name={"digits": "x"})
    assert not Path("runs").exists()


def test_a_run_is_not_gone_on_with_from_within() -> None:
    told: list[str] = []

    def hear(event: Event) -> None:
        if event == Stepped(step=2):
            with pytest.raises(UsageError) as caught:
                vitrail.train(resume="runs/outer", device="cpu")
            told.append(str(caught.value))

    vitrail.train("vit-digits", steps=3, name="outer", on_event=hear, **QUICK)
    assert len(told) == 1 and "this very process" in told[0]


@pytest.mark.parametrize("verb", ["train", "selftrain"])
def test_a_plan_of_epochs(verb: str) -> None:
    if verb == "selftrain":
        teacher = vitrail.train("vit-digits", steps=2, name="teacher", **QUICK)
        more: dict[str, Any] = {"unlabelled": "digits", "unlabelled_split": "train[100:200]", "student": "vit-digits"}
        plan = vitrail.plan("selftrain", teacher, data="digits", epochs=2, rounds=2, **QUICK, **more)
        assert [name for name, _ in plan.runs] == ["round-1", "round-2"]
    else:
        plan = vitrail.plan("train", "vit-digits", epochs=2, **QUICK)
    assert plan.cost.images >= 2 * 90
    assert {path.name for path in Path("runs").glob("*")} <= {"teacher"}


@pytest.mark.slow
def test_two_processes_tell_stop_and_fail_as_one_does() -> None:
    heard: list[Event] = []
    run = vitrail.train("vit-digits", steps=6, name="two", processes=2, on_event=heard.append, **QUICK)
    assert [event.step for event in heard if isinstance(event, Stepped)] == [1, 2, 3, 4, 5, 6]
    alone = vitrail.train("vit-digits", steps=6, name="one", **QUICK)
    assert run.accuracy == pytest.approx(alone.accuracy, abs=0.02)
    with pytest.raises(UsageError, match="there is a run already"):
        vitrail.train("vit-digits", steps=6, name="two", processes=2, **QUICK)
    before = state()["handlers"]
    with pytest.raises(Stopped) as caught:
        vitrail.train("vit-digits", steps=400, name="cut", processes=2, on_event=press_ctrl_c(3), **QUICK)
    assert state()["handlers"] == before
    assert caught.value.run.folder == Path("runs/cut").absolute()
    assert 3 <= json.loads(Path("runs/cut/log.jsonl").read_text().splitlines()[-1])["step"] < 400


@pytest.mark.slow
def test_a_script_without_a_main_guard_gets_a_sentence(data: Path) -> None:
    """Where processes are not forked, each of them runs the script again."""
    script = f"""
        import multiprocessing
        import vitrail
        if multiprocessing.get_start_method(allow_none=True) is None:
            multiprocessing.set_start_method("spawn")
        try:
            vitrail.train(data={str(data)!r}, steps=1, workers=1, image_size=32, device="cpu", batch_size=8)
        except vitrail.errors.VitrailError as error:
            print("told:", error)
    """
    Path("script.py").write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=300)
    assert "told:" in done.stdout and "__main__" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("verb", ["vtab", "selftrain"])
def test_what_runs_in_one_process_is_refused_in_several(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=f"{verb} was started in 2 processes"):
        getattr(vitrail, verb)("model", device="cpu")
    with pytest.raises(UsageError, match="in memory are given to one of several processes"):
        vitrail.train("vit-digits", data=(np.zeros((2, 8, 8), np.uint8), [0, 1]), device="cpu")


def test_values_as_people_have_them() -> None:
    source = save_network(Path("source"))
    given: dict[str, Any] = {"device": torch.device("cpu"), "rates": 0.01, "seeds": np.int64(1), "resume": None}
    run = vitrail.finetune(source, data="digits", steps=2, image_size=8, split="train[:100]", **given)
    assert run.result.chosen == 0.01
    assert run.report is not None and "The learning rate was given" in run.report.read_text()
    assert vitrail.finetune(run, data="digits", steps=2, device="cpu", split="train[:100]", lr=0.1).result.chosen == 0.1
    with pytest.raises(UsageError, match="on_event is 3"):
        vitrail.train("vit-digits", on_event=3, device="cpu")  # type: ignore[arg-type]


def test_errors_are_of_one_family_and_never_an_exit() -> None:
    for call in ({"epochs": 0}, {"data": "nowhere"}, {"resume": "nowhere"}):
        recipe = () if "resume" in call else ("vit-digits",)
        with pytest.raises(VitrailError):
            vitrail.train(*recipe, device="cpu", **call)


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["done", "stopped", "failed"])
def test_the_memory_and_the_generator_of_a_gpu_are_as_before(way: str) -> None:
    torch.cuda.manual_seed(3)
    before = torch.cuda.memory_allocated(), torch.cuda.get_rng_state().tolist()

    def fail(_event: Event) -> None:
        raise ZeroDivisionError

    call: dict[str, Any] = {"steps": 4, "device": "cuda", "batch_size": 16, "settings": {"model.dropout": 0.1}}
    match way:
        case "done":
            vitrail.train("vit-digits", **call)
        case "stopped":
            with pytest.raises(Stopped):
                vitrail.train("vit-digits", on_event=press_ctrl_c(2), **call)
        case "failed":
            with pytest.raises(ZeroDivisionError):
                vitrail.train("vit-digits", on_event=fail, **call)
    assert (torch.cuda.memory_allocated(), torch.cuda.get_rng_state().tolist()) == before
