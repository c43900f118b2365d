"""The end of a run: the model that was kept, measured once, and what is written of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.training.tiny_run import CPU, PLAIN, config, events, make_images, quietly, started, trained

import vitrail
from vitrail.config import DataConfig
from vitrail.evaluation import classify, measure
from vitrail.training.events import Event, Measuring, to_record
from vitrail.training.finish import finish
from vitrail.training.folder import RunFolder
from vitrail.training.log import Log, read_log
from vitrail.training.run import run
from vitrail.training.sources import open_run_data
from vitrail.training.start import begin


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with a test split, its outcome and its records."""
    folder = tmp_path_factory.mktemp("finished")
    for split, count in (("train", 12), ("test", 5)):
        make_images(folder / "data" / split, count)
    settings = config(folder / "data", epochs=3, average=0.9)
    data = open_run_data(settings.data, CPU, quietly)
    session = begin(settings, data, RunFolder(folder / "run"), CPU)
    told: list[Event] = []
    outcome = run(session, RunFolder(folder / "run"), told.append)
    return folder / "run", session, outcome, told


def test_the_kept_model_is_measured_on_the_test_split(finished) -> None:
    folder, session, outcome, _ = finished
    model = vitrail.load_model(folder / "model")
    again = classify(model, session.data.test, session.preparation, batch_size=7)
    assert outcome.split == "test"
    assert outcome.metrics == measure(outcome.predictions)
    assert outcome.metrics.images == 20
    np.testing.assert_array_equal(again.guesses, outcome.predictions.guesses)
    np.testing.assert_allclose(again.losses, outcome.predictions.losses, atol=1e-5)


def test_the_last_line_says_done_with_the_metrics(finished) -> None:
    folder, session, outcome, told = finished
    last = list(read_log(folder / "log.jsonl"))[-1]
    assert last == to_record(told[-1])
    assert (last["event"], last["split"], last["step"]) == ("done", "test", session.progress.steps)
    assert last["metrics"] == vars(outcome.metrics)
    assert last["best"] == vars(session.progress.best)
    assert sum(event.images for event in told if isinstance(event, Measuring)) == 20


def test_the_model_folder_says_where_it_comes_from_and_how_good_it_is(finished) -> None:
    folder, session, outcome, _ = finished
    model = vitrail.load_model(folder / "model")
    assert model.labels == session.data.train.classes
    assert model.preprocessing == session.config.preprocessing
    assert model.metrics["test"] == vars(outcome.metrics)
    assert model.metrics["held_out"]["accuracy"] == session.progress.best.accuracy
    assert model.provenance["recipe"] == "tiny"
    assert model.provenance["averaged"] is True
    assert model.provenance["step"] == session.progress.best.step
    json.dumps(model.provenance)


def test_predictions_are_on_disk_without_pickles(finished) -> None:
    folder, _, outcome, _ = finished
    with np.load(folder / "predictions.npz", allow_pickle=False) as file:
        for name in ("guesses", "confidence", "right", "losses"):
            np.testing.assert_array_equal(file[name], getattr(outcome.predictions, name))


def test_the_best_is_kept_and_not_the_last(images, tmp_path) -> None:
    for keep in ("best", "last"):
        session = started(config(images, epochs=3, keep=keep, optim={"lr": 0.02}), tmp_path / keep)
        trained(session, tmp_path / keep)
        evaluated = events(tmp_path / keep, "evaluated")
        best = max(evaluated, key=lambda record: (record["accuracy"], -record["loss"]))
        wanted = best if keep == "best" else evaluated[-1]
        model = vitrail.load_model(tmp_path / keep / "model")
        assert model.provenance["step"] == wanted["step"]
        assert model.metrics["held_out"]["loss"] == wanted["loss"]


def test_without_a_test_split_the_held_out_images_are_measured(images, tmp_path) -> None:
    session = started(config(images, steps=2), tmp_path / "run")
    outcome = run(session, RunFolder(tmp_path / "run"), lambda _event: None)
    assert (outcome.split, outcome.metrics.images) == ("held_out", len(session.data.held_out))


def test_with_nothing_to_measure_on_the_last_model_is_kept(images, tmp_path) -> None:
    settings = config(images, steps=2)
    settings = replace(settings, data=replace(settings.data, held_out=0.0))
    session = started(settings, tmp_path / "run")
    outcome = run(session, RunFolder(tmp_path / "run"), lambda _event: None)
    assert (outcome.metrics, outcome.predictions, outcome.source) == (None, None, None)
    last = list(read_log(tmp_path / "run" / "log.jsonl"))[-1]
    assert (last["event"], last["split"], last["metrics"], last["best"]) == ("done", None, None, None)
    model = vitrail.load_model(tmp_path / "run" / "model")
    assert torch.equal(model.head.weight, session.model.head.weight)
    assert not (tmp_path / "run" / "predictions.npz").exists()


def test_finishing_twice_measures_the_same(finished, tmp_path) -> None:
    folder, session, outcome, _ = finished
    before = (folder / "model" / "model.safetensors").read_bytes()
    log = Log(tmp_path / "log.jsonl", lambda _event: None)
    again = finish(session, RunFolder(folder), log)
    log.close()
    assert again.metrics == outcome.metrics
    assert (folder / "model" / "model.safetensors").read_bytes() == before


def test_a_held_out_loss_that_is_no_number_is_no_traceback(tmp_path) -> None:
    settings = replace(
        config(tmp_path, model=replace(PLAIN, channels=1, num_classes=10), steps=1, optim={"lr": 1e30, "clip": None}),
        data=DataConfig(data="digits", split="train[:100]", test=False),
        preprocessing=vitrail.config.Preprocessing(mean=(0.5,), std=(0.5,), interpolation="bilinear"),
        schedule=vitrail.config.ScheduleConfig(decay="constant"),
    )
    trained(started(settings, tmp_path / "run"), tmp_path / "run")
    assert list(read_log(tmp_path / "run" / "log.jsonl"))[-1]["event"] == "done"
