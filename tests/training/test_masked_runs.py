"""Runs that learn without labels go through the same loop, data, resume and reports."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.several import train_in
from tests.training.test_resume import Crash, crash_at
from tests.training.tiny_run import (
    PLAIN,
    STRONG,
    assert_same_run,
    config,
    events,
    make_images,
    resumed,
    started,
    trained,
)

from vitrail import load_model
from vitrail.config import MaskingConfig, OptimConfig, RunConfig, preset
from vitrail.errors import UsageError
from vitrail.evaluation import Metrics
from vitrail.models.masked import build_masked
from vitrail.reports.hidden import read_hidden
from vitrail.reports.story import gather
from vitrail.training.events import Evaluating, Stepped
from vitrail.training.folder import RunFolder
from vitrail.training.optimizer import learning
from vitrail.training.start import adapted
from vitrail.weights.load import read_checkpoint

GOOGLE = preset("google")
NETWORK = replace(PLAIN, num_classes=0, image_size=(16, 16))
KINDS = {
    "colour": MaskingConfig(),
    "small_patch": MaskingConfig(target="small_patch"),
    "pixels": MaskingConfig(target="pixels"),
    "autoencoder": MaskingConfig(
        method="autoencoder", target="pixels", share=0.75, decoder_width=16, decoder_depth=1, decoder_heads=2
    ),
}


def masked(images: Path, kind: str, **train) -> RunConfig:
    settings = config(
        images, model=NETWORK, augment=replace(STRONG, mixup=0.0), average=0.9, **{"keep": "last", **train}
    )
    return replace(settings, masking=KINDS[kind], data=replace(settings.data, labelled=False))


@pytest.mark.parametrize("kind", KINDS)
def test_going_on_is_exact(kind, images, tmp_path) -> None:
    settings = masked(images, kind, batch_size=8, micro_batch=4, steps=12)
    unbroken = tmp_path / "unbroken"
    trained(started(settings, unbroken), unbroken)
    folder = tmp_path / "run"
    session = started(settings, folder)
    for moment in ((Stepped, 4), (Evaluating, 6), (Stepped, 10)):
        with pytest.raises(Crash):
            trained(session, folder, crash_at(*moment))
        session = resumed(folder)
    trained(session, folder)
    assert_same_run(folder, unbroken)


@pytest.mark.parametrize(
    "kind",
    ["colour", "autoencoder", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("small_patch", "pixels"))],
)
def test_it_learns_and_keeps_an_encoder_without_labels(kind, images, tmp_path) -> None:
    config = masked(images, kind, steps=60, optim={"lr": 1e-2})
    session = trained(started(config, tmp_path / "run"), tmp_path / "run")
    found = events(tmp_path / "run", "evaluated")
    assert found[-1]["loss"] < 0.9 * found[0]["loss"]
    kept = load_model(tmp_path / "run")
    assert kept.labels is None and kept.config == NETWORK
    average = session.average
    assert average is not None
    assert torch.equal(kept.norm.weight, average.state["norm.weight"])
    record = json.loads((tmp_path / "run/model/config.json").read_text())
    assert record["provenance"]["masking"]["target"] == KINDS[kind].target
    # It is right about no class, and is not said to be.
    assert set(record["metrics"]["held_out"]) == {"images", KINDS[kind].guessed, "loss"}


def test_the_best_model_cannot_be_asked_for(images, tmp_path) -> None:
    with pytest.raises(UsageError, match=r"train\.keep=last"):
        started(masked(images, "colour", steps=2, keep="best"), tmp_path / "run")


@pytest.mark.parametrize("kind", ["colour", "autoencoder"])
def test_what_predicts_learns_as_a_head_does_and_is_not_frozen_with_the_first_blocks(kind) -> None:
    network = build_masked(NETWORK, KINDS[kind], GOOGLE)
    places = {place.name: place for place in learning(network, OptimConfig(optimizer="adam", lr=1.0, freeze=1))}
    predicting = [name for name in dict(network.named_parameters()) if name.startswith(("prediction.", "decoder."))]
    assert predicting and all(places[name].below == 0 for name in predicting)
    assert "embedding.projection.weight" not in places


def test_held_out_images_are_measured_with_the_same_patches_hidden_every_time(images, tmp_path) -> None:
    session = started(masked(images, "colour", steps=2), tmp_path / "run")
    assert session.data.held_out is not None
    assert session.evaluate(session.data.held_out) == session.evaluate(session.data.held_out)


def test_hidden_patches_have_one_guess_and_no_five(images, tmp_path) -> None:
    folder = tmp_path / "run"
    trained(started(masked(images, "colour", steps=6), folder), folder)
    (done,) = events(folder, "done")
    assert set(done["metrics"]) == {"images", "accuracy", "loss"}
    assert all("top5" not in record for record in events(folder, "evaluated"))
    assert gather(RunFolder(folder), None, None).metrics == Metrics(**done["metrics"])
    # As it was written before: the share of the one guess, twice.
    log = folder / "log.jsonl"
    log.write_text(log.read_text().replace('"metrics": {', '"metrics": {"top5": 0.5, '))
    assert gather(RunFolder(folder), None, None).metrics == Metrics(**done["metrics"], top5=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("count", [1, 127, 129])
def test_several_processes_measure_any_number_of_held_out_images(count, parallel, tmp_path) -> None:
    """Of 129 images the first of two processes has a batch more than the second, of one image all."""
    images = make_images(tmp_path / "images", per_class=count + 4, classes=("ant",))
    settings = masked(images, "colour", batch_size=4, steps=4)
    settings = replace(settings, data=replace(settings.data, held_out=count / (count + 4)))
    train_in(2, tmp_path / "run", settings, parallel=parallel)
    assert {event["images"] for event in events(tmp_path / "run", "evaluated")} == {count}


def test_a_folder_without_class_folders_will_do(images, tmp_path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, file in enumerate(sorted(images.rglob("*.png"))):
        shutil.copy(file, flat / f"{number}.png")
    session = started(masked(flat, "colour", steps=2), tmp_path / "run")
    assert len(session.data.train) + len(session.data.held_out or ()) == 48


def test_what_comes_next_takes_the_encoder_and_a_zero_head(images, tmp_path) -> None:
    trained(started(masked(images, "colour", steps=2), tmp_path / "run"), tmp_path / "run")
    stored = read_checkpoint(str(tmp_path / "run"))
    found = adapted(stored, ("a", "b"), (16, 16))
    assert found.config.num_classes == 2
    assert not found.state["head.weight"].any()
    assert torch.equal(found.state["norm.weight"], stored.state["norm.weight"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_images_are_kept_to_be_shown(kind, images, tmp_path) -> None:
    settings = masked(images, kind, steps=2)
    session = started(replace(settings, data=replace(settings.data, test=False)), tmp_path / "run")
    trained(session, tmp_path / "run")
    shown = read_hidden(tmp_path / "run/hidden.npz")
    assert shown is not None
    assert shown["original"].shape == (5, 16, 16, 3)
    visible = shown["original"] == shown["corrupted"]
    # Of 16 patches 8 are hidden, of which some stay as they are; of an autoencoder's 12.
    assert 0.2 < visible.mean() < 0.7
    assert (shown["predicted"] == shown["original"])[visible].mean() > 0.7
    before = session.see_hidden(session.data.held_out)
    session._best_weights()["norm.weight"].zero_()
    assert not torch.equal(session.see_hidden(session.data.held_out).predicted, before.predicted)
    assert torch.equal(session.see_hidden(session.data.held_out).corrupted, before.corrupted)


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return make_images(tmp_path_factory.mktemp("data") / "images")
