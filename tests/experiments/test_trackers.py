import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from vitrail.errors import Notice, UsageError
from vitrail.experiments.trackers import several, tracking
from vitrail.training.events import (
    Done,
    Evaluated,
    Evaluating,
    LengthSet,
    Measuring,
    MicroBatchHalved,
    RolledBack,
    Saved,
    Skipped,
    Stepped,
    Trained,
)

TRAINED = Trained(
    step=10,
    epoch=0.5,
    loss=2.25,
    accuracy=0.125,
    learning_rate=0.5,
    gradient_norm=1.0,
    images_per_second=4096.0,
    data_wait=0.25,
    seconds=1.0,
)
EVALUATED = Evaluated(step=20, images=8, accuracy=0.75, top5=1.0, loss=1.5, is_best=True)
METRICS = {"images": 8, "accuracy": 0.5, "top5": 1.0, "loss": 1.0}
DONE = Done(step=30, split="test", metrics=METRICS, best=None, seconds=3.0)
SILENT = [
    Stepped(step=1),
    Evaluating(step=1, images=4),
    Measuring(step=1, images=4),
    Saved(step=1),
    Skipped(step=1, reason="loss or gradient is not finite"),
    MicroBatchHalved(step=1, before=4, micro_batch=2),
    LengthSet(step=1, steps=30),
    replace(DONE, split=None, metrics=None),
    replace(DONE, split="held_out"),
]
WANTED = {
    "train/loss": (10, 2.25),
    "train/accuracy": (10, 0.125),
    "train/learning_rate": (10, 0.5),
    "speed/images_per_second": (10, 4096.0),
    "speed/data_wait": (10, 0.25),
    "held_out/accuracy": (20, 0.75),
    "held_out/loss": (20, 1.5),
    "test/accuracy": (30, 0.5),
}


class FakeRun:
    def __init__(self) -> None:
        self.logged: list[dict] = []
        self.defined: list[tuple] = []
        self.ended_by: object = "not yet"

    def define_metric(self, name: str, step_metric: str) -> None:
        self.defined.append((name, step_metric))

    def log(self, values: dict) -> None:
        self.logged.append(values)

    def __enter__(self) -> "FakeRun":
        return self

    def __exit__(self, kind, *_rest) -> None:
        self.ended_by = kind


@pytest.fixture
def wandb(monkeypatch) -> SimpleNamespace:
    """A stand-in that notes what it was asked for."""
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    fake = SimpleNamespace(run=FakeRun(), asked={}, Settings=lambda **values: values)

    def init(**asked):
        fake.asked = asked
        return fake.run

    fake.init = init
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def read_events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_no_tracker_writes_nothing(tmp_path):
    with tracking(None, tmp_path, {}) as watcher:
        watcher(TRAINED)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_reads_back_what_was_tracked(tmp_path):
    pytest.importorskip("tensorboard")
    with tracking("tensorboard", tmp_path, {"train": {"batch_size": 64}}) as watcher:
        for event in [*SILENT, TRAINED, EVALUATED, DONE]:
            watcher(event)
    assert read_events(tmp_path) == {name: [point] for name, point in WANTED.items()}
    assert any(b"batch_size" in path.read_bytes() for path in tmp_path.iterdir())


def test_tensorboard_hides_what_is_done_again(tmp_path):
    pytest.importorskip("tensorboard")
    with tracking("tensorboard", tmp_path, {}) as watcher:
        for step in (10, 20, 30):
            watcher(replace(TRAINED, step=step, loss=float(step)))
        watcher(RolledBack(step=20, before=33, rate_factor=0.5))
        watcher(replace(TRAINED, step=30, loss=3.0))
        watcher(replace(TRAINED, step=40, loss=4.0))
    assert read_events(tmp_path)["train/loss"] == [(10, 10.0), (20, 20.0), (30, 3.0), (40, 4.0)]
    with tracking("tensorboard", tmp_path, {}, step=30) as watcher:
        watcher(replace(TRAINED, step=40, loss=0.5))
    assert read_events(tmp_path)["train/loss"] == [(10, 10.0), (20, 20.0), (30, 3.0), (40, 0.5)]


def test_wandb_gets_the_same_scalars(tmp_path, wandb):
    with tracking("wandb", tmp_path / "vit-digits", {"seed": 3}) as watcher:
        for event in [*SILENT, TRAINED, EVALUATED, DONE]:
            watcher(event)
        assert wandb.run.ended_by == "not yet"
    assert wandb.run.ended_by is None
    found = {name: (row["step"], row[name]) for row in wandb.run.logged for name in row if name != "step"}
    assert found == WANTED
    assert len(wandb.run.logged) == 3
    assert wandb.run.defined == [("*", "step")]
    assert wandb.asked["config"] == {"seed": 3}
    assert wandb.asked["group"] == "vit-digits"
    assert wandb.asked["dir"] == str(tmp_path / "vit-digits")
    assert wandb.asked["settings"] == {"console": "off"}


def test_wandb_learns_that_a_run_was_stopped(tmp_path, wandb):
    with pytest.raises(KeyError), tracking("wandb", tmp_path, {}):
        raise KeyError
    assert wandb.run.ended_by is KeyError


@pytest.mark.parametrize(("name", "mode"), [(None, "offline"), ("WANDB_MODE", None), ("WANDB_API_KEY", None)])
def test_wandb_stays_on_the_machine_unless_it_was_set_up(tmp_path, wandb, monkeypatch, name, mode):
    if name:
        monkeypatch.setenv(name, "online")
    with tracking("wandb", tmp_path, {}):
        assert wandb.asked["mode"] == mode


def test_wandb_that_cannot_start_is_one_sentence(tmp_path, wandb):
    def init(**_asked):
        raise RuntimeError("no route to host")

    wandb.init = init
    with pytest.raises(UsageError, match=r"^wandb could not start \(no route to host\)\. Set WANDB_MODE=offline"):
        tracking("wandb", tmp_path, {}).__enter__()


@pytest.mark.parametrize(("kind", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_a_missing_library_names_the_command(tmp_path, monkeypatch, kind, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as caught:
        tracking(kind, tmp_path, {}).__enter__()
    assert kind in str(caught.value)
    assert "pip install 'vitrail[track]'" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_tracker_gets_a_suggestion(tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'tensorboard'"):
        tracking("tensorbord", tmp_path, {}).__enter__()  # type: ignore[arg-type]


def test_a_tracker_that_fails_is_told_once_and_the_run_goes_on(tmp_path, wandb):
    calls = []

    def log(values: dict) -> None:
        calls.append(values)
        raise OSError(28, "No space left on device")

    wandb.run.log = log
    with tracking("wandb", tmp_path, {}) as watcher:
        with pytest.warns(Notice, match=r"wandb failed \(.*No space left on device\), so nothing more is tracked"):
            watcher(TRAINED)
        watcher(EVALUATED)
    assert len(calls) == 1


def test_several_tells_all_in_their_order():
    heard = []
    tell = several(lambda event: heard.append(("a", event)), lambda event: heard.append(("b", event)))
    tell(TRAINED)
    assert heard == [("a", TRAINED), ("b", TRAINED)]
    several()(TRAINED)
