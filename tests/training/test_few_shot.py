"""The few-shot score of a run: that of `vitrail fewshot` on the same weights, and no part of the run itself."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.several import train_in
from tests.training.tiny_run import (
    CPU,
    RANDOM,
    STRONG,
    assert_same_run,
    config,
    events,
    fingerprint,
    losses,
    make_images,
    quietly,
    resumed,
    started,
    trained,
)

from vitrail.cli.live_state import sentence
from vitrail.config import BitConfig, Preprocessing, RunConfig
from vitrail.data import Preparation, open_data
from vitrail.errors import DataError, UsageError
from vitrail.evaluation.closed_form import L2, decompose
from vitrail.evaluation.feature_sets import FeatureSets
from vitrail.evaluation.features import extract_features
from vitrail.evaluation.protocol import measure_shots
from vitrail.evaluation.subject import Subject, open_subject
from vitrail.experiments.trackers import scalars
from vitrail.models import build
from vitrail.reports.curves import charts
from vitrail.reports.story import gather
from vitrail.runtime.processes import ALONE
from vitrail.training.events import from_record
from vitrail.training.few_shot import open_few_shot, score
from vitrail.training.folder import RunFolder
from vitrail.training.stopping import Stopped

OTHER = ("oak", "pine", "elm")


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Images of other classes than those that are trained on."""
    make_images(tmp_path / "others" / "train", per_class=6, classes=OTHER)
    make_images(tmp_path / "others" / "test", per_class=9, classes=OTHER)
    return tmp_path / "others"


def scored(settings: RunConfig, data: Path, shots: int = 4) -> RunConfig:
    return replace(settings, data=replace(settings.data, few_shot=str(data), few_shot_shots=shots))


def test_the_score_is_that_of_the_command_on_the_weights_that_are_kept(images, others, tmp_path) -> None:
    settings = scored(config(images, average=0.9, keep="last"), others)
    trained(started(settings, tmp_path / "run"), tmp_path / "run")
    told = events(tmp_path / "run", "few_shot")
    assert [record["step"] for record in told] == [record["step"] for record in events(tmp_path / "run", "evaluated")]
    subject = open_subject(tmp_path / "run", device=CPU)
    train, test = (open_data(str(others), split) for split in ("train", "test"))
    features = [extract_features(subject, source, batch_size=7) for source in (train, test)]
    sets = FeatureSets.of(features[0], train.labels.values, features[1], test.labels.values)
    (wanted,) = measure_shots(sets, train.classes, shots=(4,))
    assert told[-1]["right"] == [row[0] for row in wanted.right]
    assert told[-1]["accuracy"] == pytest.approx(np.mean(wanted.accuracies(wanted.l2[0])))
    assert (told[-1]["images"], told[-1]["shots"], told[-1]["data"]) == (27, 4, str(others))


def test_the_run_is_the_same_with_and_without(images, others, tmp_path) -> None:
    settings = config(images, RANDOM, STRONG, average=0.9)
    for name, wanted in (("with", scored(settings, others)), ("without", settings)):
        trained(started(wanted, tmp_path / name), tmp_path / name)
    assert fingerprint(tmp_path / "with") == fingerprint(tmp_path / "without")
    assert losses(tmp_path / "with") == losses(tmp_path / "without")
    assert events(tmp_path / "with", "evaluated") == events(tmp_path / "without", "evaluated")


@pytest.mark.slow
def test_two_processes_have_the_score_of_one(images, others, tmp_path) -> None:
    settings = scored(config(images, batch_size=32, steps=6), others)
    trained(started(settings, tmp_path / "one"), tmp_path / "one")
    train_in(2, tmp_path / "two", settings)
    assert [record["right"] for record in events(tmp_path / "two", "few_shot")] == [
        record["right"] for record in events(tmp_path / "one", "few_shot")
    ]


@pytest.mark.parametrize(
    "network",
    [replace(RANDOM, pool="token", pre_logits=8), BitConfig(blocks=(1,), width=32, image_size=(32, 32), num_classes=5)],
    ids=["vit", "bit"],
)
def test_features_are_what_the_head_is_given(network, others) -> None:
    few = open_few_shot(scored(config(others), others).data, quietly)
    assert few is not None
    torch.manual_seed(0)
    model = build(network).eval()
    plain = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bilinear")
    subject = Subject("model", model, Preparation(size=network.image_size, preprocessing=plain), CPU)
    found = score(few, subject, model.features, batch_size=5, workers=0, processes=ALONE)
    learnt, measured = (extract_features(subject, source, batch_size=5) for source in (few.learn, few.test))
    right = []
    for choice in few.choices:
        solved = decompose(learnt[choice], few.learn.labels.values[choice], 3)
        right.append(solved.count_right(solved.weights(L2), measured, few.test.labels.values))
    assert found["right"] == right


def test_only_images_that_are_needed_are_read(others) -> None:
    few = open_few_shot(scored(config(others), others, shots=1).data, quietly)
    assert few is not None
    assert 3 <= len(few.learn) <= 9
    for choice in few.choices:
        assert sorted(few.learn.labels.values[choice]) == [0, 1, 2]
    # A file that no choice learns from may be anything; one that is needed is read before the first step.
    needed = {few.learn.where(index) for index in range(len(few.learn))}
    spare = next(path for path in sorted((others / "train").rglob("*.png")) if str(path) not in needed)
    spare.write_bytes(b"no image")
    open_few_shot(scored(config(others), others, shots=1).data, quietly)
    Path(sorted(needed)[0]).write_bytes(b"no image")
    with pytest.raises(DataError, match=Path(sorted(needed)[0]).name):
        open_few_shot(scored(config(others), others, shots=1).data, quietly)


def test_val_is_measured_on_where_there_is_no_test(others) -> None:
    (others / "test").rename(others / "val")
    few = open_few_shot(scored(config(others), others).data, quietly)
    assert few is not None
    assert (few.test.split, len(few.test)) == ("val", 27)


def test_nothing_to_measure_on_is_told(images) -> None:
    with pytest.raises(DataError, match=r"neither a test nor a val part .* data\.few_shot"):
        open_few_shot(scored(config(images), images).data, quietly)


def test_too_few_images_are_told_before_the_first_step(images, others, tmp_path) -> None:
    with pytest.raises(DataError, match="wanted 7 of each for 7-shot"):
        started(scored(config(images), others, shots=7), tmp_path / "run")
    with pytest.raises(UsageError, match="few_shot_shots"):
        scored(config(images), others, shots=0)


def test_a_stop_in_the_middle_of_a_score_goes_on_to_the_same_end(images, others, tmp_path) -> None:
    settings = scored(config(images, steps=6), others)
    trained(started(settings, tmp_path / "whole"), tmp_path / "whole")
    session = started(settings, tmp_path / "run")
    score_it = session.few_shot

    def interrupted(few, advance):
        os.kill(os.getpid(), signal.SIGTERM)
        return score_it(few, advance)

    session.few_shot = interrupted  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        trained(session, tmp_path / "run")
    assert not events(tmp_path / "run", "few_shot")
    trained(resumed(tmp_path / "run"), tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert events(tmp_path / "run", "few_shot") == events(tmp_path / "whole", "few_shot")


def test_it_is_told_tracked_and_drawn(images, others, tmp_path) -> None:
    trained(started(scored(config(images), others), tmp_path / "run"), tmp_path / "run")
    record = events(tmp_path / "run", "few_shot")[-1]
    event = from_record(record)
    assert event is not None
    told = sentence(event)
    assert told is not None
    assert told.startswith(f"After step {record['step']} a 4-shot score of {100 * record['accuracy']:.2f} % on ")
    assert scalars(event) == {"few_shot/4_shot_accuracy": record["accuracy"]}
    lines = charts(gather(RunFolder(tmp_path / "run"), None, None))["accuracy"].lines
    assert [line.name for line in lines] == ["training", "held-out", "4-shot"]
    assert lines[-1].points[-1] == (record["step"], record["accuracy"])
