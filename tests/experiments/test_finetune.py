import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.data.conftest import state_of
from tests.experiments.conftest import CLASSES, SMALL, carried_out, config, driven, save_network, stopping_at
from tests.training.tiny_run import make_images, quietly

import vitrail
from vitrail.config import BitConfig, RunConfig
from vitrail.data import Source, open_data
from vitrail.errors import DataError, Notice, UsageError
from vitrail.experiments.finetune import FinetuneFolder, Plan, Splits, make_plan, read_finetuning, read_result
from vitrail.training.divergence import Diverged
from vitrail.training.events import Event, Stepped
from vitrail.training.finish import Outcome
from vitrail.training.folder import RunFolder, read_run
from vitrail.training.log import read_log
from vitrail.training.run import run
from vitrail.training.session import Session
from vitrail.training.stopping import Stopped
from vitrail.weights import load_model

TEST = Splits(val=False, test=True)
NONE = Splits(val=False, test=False)


def two_rates(source: Path, data: Path, splits: Splits = TEST, **train: Any) -> Plan:
    return make_plan(config(source, data, **train), rates=(0.01, 0.1), seeds=2, splits=splits)


def files(source: Source | None) -> set[str]:
    return set() if source is None else {source.where(index) for index in range(len(source))}


def without_seconds(path: Path) -> Any:
    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: cleaned(item) for name, item in value.items() if name != "seconds"}
        return [cleaned(item) for item in value] if isinstance(value, list) else value

    return cleaned(json.loads((path / "result.json").read_text()))


@pytest.fixture(scope="module")
def unbroken(source: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rates and two seeds, carried out without a stop."""
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    before = state_of(data)
    carried_out(two_rates(source, data), folder)
    assert state_of(data) == before
    return folder


def test_the_layout(unbroken: Path):
    assert sorted(path.name for path in unbroken.iterdir()) == [
        *("config.json", "model", "result.json", "seed-0", "seed-1", "sweep")
    ]
    assert sorted(path.name for path in (unbroken / "sweep").iterdir()) == ["lr-0.01", "lr-0.1"]
    assert json.loads((unbroken / "config.json").read_text())["format"] == "vitrail-finetune/1"
    for name in ("sweep/lr-0.01", "sweep/lr-0.1", "seed-0", "seed-1"):
        assert list(read_log(unbroken / name / "log.jsonl"))[-1]["event"] == "done"


def test_the_result_says_what_the_runs_found(unbroken: Path):
    result = read_result(unbroken / "result.json")
    assert [trial.lr for trial in result.rates] == [0.01, 0.1]
    measured = {trial.lr: trial.measured for trial in result.rates if trial.measured}
    assert result.chosen == max(measured, key=lambda rate: (measured[rate].accuracy, -measured[rate].loss)) == 0.1
    accuracies = []
    for final in result.seeds:
        done = list(read_log(unbroken / final.folder / "log.jsonl"))[-1]
        assert done["split"] == "test"
        assert final.measured is not None
        assert (final.measured.accuracy, final.measured.images) == (done["metrics"]["accuracy"], 12)
        accuracies.append(final.measured.accuracy)
    assert result.mean == pytest.approx(np.mean(accuracies))
    assert result.std == pytest.approx(np.std(accuracies, ddof=1))
    assert result.images == 12


def test_the_folder_is_a_model(unbroken: Path):
    model, first = vitrail.load_model(unbroken), vitrail.load_model(unbroken / "seed-0")
    assert model.labels == CLASSES
    images = torch.rand(2, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(model(images), first(images))
    assert model.metrics["test"]["images"] == 12


def test_seeds_differ_and_rates_are_those_of_the_plan(unbroken: Path):
    records = {name: read_run(RunFolder(unbroken / name)) for name in ("sweep/lr-0.01", "seed-0", "seed-1")}
    assert records["seed-1"].config.train.seed == 1
    assert records["seed-0"].config.optim.lr == 0.1
    first, second = ((unbroken / name / "model/model.safetensors").read_bytes() for name in ("seed-0", "seed-1"))
    assert first != second


def test_what_is_learnt_from_and_what_is_not(source: Path, data: Path, tmp_path: Path):
    sessions: list[Session] = []
    fed: list[set[int]] = []

    def train(session: Session, folder: RunFolder, _planned: object) -> Outcome:
        batches, ids = session.batches, set()
        sessions.append(session)
        fed.append(ids)

        def recorded():
            for batch in batches():
                ids.update(batch.ids.tolist())
                yield batch

        session.batches = recorded  # type: ignore[method-assign]
        return run(session, folder, lambda _event: None)

    driven(two_rates(source, data), tmp_path / "run", train)
    everything, tests = files(open_data(data)), files(open_data(data, "test"))
    assert not everything & tests
    for session in sessions[:2]:
        learnt, held_out = files(session.data.train), files(session.data.held_out)
        assert session.data.test is None
        assert not learnt & held_out
        assert learnt | held_out == everything
        assert len(held_out) == 8
    for session in sessions[2:]:
        assert files(session.data.train) == everything
        assert session.data.held_out is None
        assert files(session.data.test) == tests
    assert [len(ids) for ids in fed] == [32, 32, 40, 40]


def test_the_rate_is_chosen_on_held_out_images_even_where_test_would_choose_otherwise(source: Path, tmp_path: Path):
    # In the test split every image lies in the folder of another class: who has learnt nothing does better there.
    make_images(tmp_path / "data/train", per_class=10)
    make_images(tmp_path / "data/test", per_class=3)
    test = tmp_path / "data/test"
    for name in CLASSES:
        (test / name).rename(test / f"{name}-aside")
    for name, other in zip(CLASSES, (*CLASSES[1:], CLASSES[0]), strict=True):
        (test / f"{name}-aside").rename(test / other)
    plan = make_plan(config(source, tmp_path / "data", steps=20), rates=(0.0, 0.1), seeds=1, splits=TEST)
    result = carried_out(plan, tmp_path / "run")
    assert result.chosen == 0.1
    accuracy = {}
    for rate in plan.rates:
        run_folder = RunFolder(tmp_path / f"run/sweep/lr-{rate!r}")
        record = read_run(run_folder)
        assert "test" not in record.counts
        session = _session_of(record.config, run_folder)
        accuracy[rate] = session.evaluate(open_data(tmp_path / "data", "test")).accuracy
    assert accuracy[0.0] > accuracy[0.1]


def _session_of(settings: RunConfig, folder: RunFolder) -> Session:
    from vitrail.training.start import resume

    assert settings == read_run(folder).config
    # Of a run that only chose a rate the checkpoints are gone, and its model is there.
    assert not folder.checkpoints.exists()
    session = resume(folder, torch.device("cpu"), quietly)
    session.model.load_state_dict(load_model(folder.model).state_dict())
    return session


@pytest.mark.parametrize(("name", "step"), [("sweep/lr-0.1", 2), ("seed-1", 3)])
def test_a_stop_anywhere_goes_on_to_the_same_result(
    unbroken: Path, source: Path, data: Path, tmp_path: Path, name: str, step: int
):
    folder = tmp_path / "stopped"
    with pytest.raises(Stopped) as stopped:
        carried_out(two_rates(source, data), folder, stopping_at(name, step))
    assert stopped.value.exit_code == 75
    assert str(stopped.value).endswith(f"To go on: vitrail finetune --resume {folder}.")
    assert "vitrail train" not in str(stopped.value)
    assert not (folder / "result.json").exists()
    begun: list[tuple[str, int]] = []

    def watch(planned, event: Event) -> None:
        if isinstance(event, Stepped):
            begun.append((planned.folder, event.step))

    carried_out(None, folder, watch)
    assert begun[0] == (name, step + 1)
    assert without_seconds(folder) == without_seconds(unbroken)
    for file in ("model", "seed-1/model"):
        left, right = (place / file / "model.safetensors" for place in (folder, unbroken))
        assert left.read_bytes() == right.read_bytes()


def test_a_stop_between_two_runs(unbroken: Path, source: Path, data: Path, tmp_path: Path):
    def train(session: Session, folder: RunFolder, _planned: object) -> Outcome:
        outcome = run(session, folder, lambda _event: None)
        os.kill(os.getpid(), signal.SIGTERM)
        return outcome

    folder = tmp_path / "run"
    with pytest.raises(Stopped, match=r"between two runs.*vitrail finetune --resume"):
        driven(two_rates(source, data), folder, train)
    assert [path.name for path in (folder / "sweep").iterdir()] == ["lr-0.01"]
    carried_out(None, folder)
    assert without_seconds(folder) == without_seconds(unbroken)


def test_a_finished_one_is_not_done_again(unbroken: Path):
    def never(*_anything: object) -> Outcome:
        raise AssertionError("everything is done")

    before = without_seconds(unbroken)
    driven(read_finetuning(FinetuneFolder(unbroken)).plan, unbroken, never)
    assert without_seconds(unbroken) == before


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(
    unbroken: Path, source: Path, data: Path, tmp_path: Path
):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        carried_out(two_rates(source, data), folder, stopping_at("sweep/lr-0.1", 1))
    for path in sorted((folder / "sweep/lr-0.1/checkpoints").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    carried_out(None, folder)
    assert without_seconds(folder) == without_seconds(unbroken)


def test_an_edited_plan_is_not_mixed_with_runs_of_the_old_one(source: Path, data: Path, tmp_path: Path):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        carried_out(two_rates(source, data), folder, stopping_at("sweep/lr-0.1", 1))
    values = json.loads((folder / "config.json").read_text())
    values["plan"]["config"]["train"]["steps"] = 6
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(UsageError, match=r"lr-0.01: this run is not what the plan says: train.steps: 5, now 6"):
        carried_out(None, folder)


def test_without_a_test_split_the_sweep_measures_and_the_final_runs_learn_everything(source: Path, tmp_path: Path):
    make_images(tmp_path / "data", per_class=10)
    sessions: list[Session] = []
    result = carried_out(two_rates(source, tmp_path / "data", NONE), tmp_path / "run", seen=sessions)
    assert [len(session.data.train) for session in sessions] == [32, 32, 40, 40]
    assert result.measured_on == "sweep"
    chosen = next(trial.measured for trial in result.rates if trial.lr == result.chosen)
    assert chosen is not None
    assert (result.mean, result.std, result.images) == (chosen.accuracy, None, 8)
    assert all(final.measured is None for final in result.seeds)


def test_a_val_split_is_watched_and_never_learnt_from(source: Path, tmp_path: Path):
    make_images(tmp_path / "data/train", per_class=10)
    make_images(tmp_path / "data/val", per_class=2)
    sessions: list[Session] = []
    settings = config(source, tmp_path / "data", held_out=None)
    plan = make_plan(settings, rates=(0.01, 0.1), seeds=1, splits=Splits(val=True, test=False))
    result = carried_out(plan, tmp_path / "run", seen=sessions)
    assert [len(session.data.train) for session in sessions] == [40, 40, 40]
    assert all(len(session.data.held_out or ()) == 8 for session in sessions)
    assert (result.measured_on, result.images) == ("val", 8)


def test_a_rate_that_diverges_is_a_finding(source: Path, data: Path, tmp_path: Path):
    plan = make_plan(config(source, data, log_every=1), rates=(0.1, 1e38), seeds=1, splits=TEST)
    result = carried_out(plan, tmp_path / "run")
    assert result.chosen == 0.1
    assert result.rates[1].measured is None
    assert (tmp_path / "run/sweep/lr-1e+38/diverged.json").exists()
    for file in ("result.json", "seed-0/log.jsonl"):
        (tmp_path / "run" / file).unlink()
    with pytest.warns(Notice, match="records are gone"):
        assert carried_out(None, tmp_path / "run").rates[1].measured is None


def test_when_all_rates_diverge_it_ends(source: Path, data: Path, tmp_path: Path):
    plan = make_plan(config(source, data, log_every=1), rates=(1e37, 1e38), seeds=1, splits=TEST)
    with pytest.raises(Diverged, match="any of the learning rates"):
        carried_out(plan, tmp_path / "run")


def test_the_head_is_zero_at_first_and_kept_for_the_same_classes(source: Path, data: Path, tmp_path: Path):
    def first_head(start: Path) -> torch.Tensor:
        heads: list[torch.Tensor] = []

        def train(session: Session, folder: RunFolder, _planned: object) -> Outcome:
            heads.append(session.model.state_dict()["head.weight"].clone())
            return run(session, folder, lambda _event: None)

        plan = make_plan(config(start, data, steps=1), rates=(0.1,), seeds=1, splits=TEST)
        driven(plan, tmp_path / f"run-{start.name}", train)
        return heads[0]

    four = replace(SMALL, num_classes=4)
    same = save_network(tmp_path / "same", four, CLASSES)
    assert torch.equal(first_head(same), vitrail.load_model(same).state_dict()["head.weight"])
    assert not first_head(save_network(tmp_path / "others", four, ("a", "b", "c", "d"))).any()
    assert not first_head(save_network(tmp_path / "unnamed", four)).any()
    assert first_head(source).shape == (4, 32)


def test_a_bit_resnet(data: Path, tmp_path: Path):
    bit = save_network(tmp_path / "bit", BitConfig(blocks=(1, 1, 1, 1), width=32, image_size=(8, 8), num_classes=3))
    settings = config(bit, data, steps=2)
    result = carried_out(make_plan(settings, rates=(0.01,), seeds=1, splits=TEST), tmp_path / "run")
    assert result.images == 12
    model = vitrail.load_model(tmp_path / "run")
    assert isinstance(model.config, BitConfig)
    assert model.labels == CLASSES


def changed(before: Path, after: Path) -> set[str]:
    old, new = vitrail.load_model(before).state_dict(), vitrail.load_model(after).state_dict()
    return {name for name, tensor in new.items() if name in old and not torch.equal(old[name], tensor)}


def test_freezing(source: Path, data: Path, tmp_path: Path):
    for freeze in (-1, 1):
        settings = config(source, data)
        settings = replace(settings, optim=replace(settings.optim, freeze=freeze))
        plan = make_plan(settings, rates=(0.1,), seeds=1, splits=TEST)
        carried_out(plan, tmp_path / f"run{freeze}")
    assert {name.split(".")[0] for name in changed(source, tmp_path / "run-1")} == {"head"}
    moved = changed(source, tmp_path / "run1")
    assert any(name.startswith("blocks.1.") for name in moved)
    assert not any(name.startswith(("blocks.0.", "embedding", "positions", "class_token")) for name in moved)


def test_a_mistake_before_the_first_run_leaves_nothing_behind(source: Path, data: Path, tmp_path: Path):
    settings = config(source, data)
    settings = replace(settings, optim=replace(settings.optim, freeze=99))
    plan = make_plan(settings, rates=(0.1,), seeds=1, splits=TEST)
    with pytest.raises(UsageError, match="freeze is 99"):
        carried_out(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_processes_do_not_work_on_one_folder(unbroken: Path):
    from vitrail.runtime.lock import only_one

    with only_one(unbroken / ".lock", busy="mine"), pytest.raises(UsageError, match="another process is working on"):
        carried_out(None, unbroken)


def test_what_is_no_fine_tuning_cannot_be_resumed(unbroken: Path, tmp_path: Path):
    with pytest.raises(UsageError, match=r"no config\.json"):
        carried_out(None, tmp_path)
    with pytest.raises(DataError, match=r"is not the record of a fine-tuning.*vitrail train --resume"):
        carried_out(None, unbroken / "seed-0")
