"""From what was asked for to what is run: paths, batches that fit, and what a recipe is laid under."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.training.tiny_run import CPU

from vitrail.config import DataConfig, Settings
from vitrail.data import Source, open_data
from vitrail.errors import UsageError
from vitrail.experiments.resolve import Resolved, data_config, finetuning_name, lay, located, resolve
from vitrail.recipes import masked, recipe, small

SOME = DataConfig(data="some")


@pytest.fixture(scope="module")
def digits() -> Source:
    return open_data("digits", "train")


def resolved(name: str, source: Source, fits: int | None = None, **given: object) -> Resolved:
    chosen = recipe(name)
    assert chosen.model is not None
    said = Settings({key.replace("__", "."): value for key, value in given.items()})
    return resolve(
        chosen, chosen.model, said, source, CPU, data=SOME, preprocessing=chosen.preprocessing, fits=fits, seen=10**6
    )


# Batches.


@pytest.mark.parametrize("name", [row.name for row in (*masked.MASKED, *small.SMALL)])
def test_no_recipe_has_a_batch_of_more_images_than_there_are(name, digits):
    config = resolved(name, digits).config
    for images in (1, 40, 200, 10**6):
        found = resolved(name, digits, fits=images)
        fits = found.config
        assert fits.train.batch_size <= max(images, 2)
        assert 2 * fits.train.batch_size > min(images, config.train.batch_size)
        assert (fits == config) == (config.train.batch_size <= images)
        # What is changed is told.
        assert any(f"it becomes {fits.train.batch_size:,}," in note for note in found.notes) == (fits != config)
        shrunk = fits.train.batch_size / config.train.batch_size
        assert fits.optim.lr == pytest.approx(config.optim.lr * shrunk**0.5, rel=0.005)


def test_a_batch_and_a_rate_that_were_asked_for_stay(digits):
    asked = resolved("vit-digits", digits, fits=10, train__batch_size=64)
    assert (asked.config.train.batch_size, asked.notes) == (64, ())
    rate = resolved("vit-digits", digits, fits=10, optim__lr=0.5)
    assert (rate.config.train.batch_size, rate.config.optim.lr) == (8, 0.5)
    assert len(rate.notes) == 1 and "learning rate" not in rate.notes[0]


# Lengths.


def test_epochs_and_steps_replace_each_other():
    chosen = recipe("vit-digits")
    assert chosen.model is not None
    by_steps = lay(chosen, chosen.model, Settings({"train.steps": 9})).train
    by_epochs = lay(chosen, chosen.model, Settings({"train.epochs": 9})).train
    assert (by_steps.steps, by_steps.epochs) == (9, None)
    assert (by_epochs.steps, by_epochs.epochs) == (None, 9)
    with pytest.raises(UsageError, match="exactly one of them"):
        lay(chosen, chosen.model, Settings({"train.steps": 9, "train.epochs": 9}))


# Data.


def test_paths_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "others").mkdir()
    data = replace(SOME, data="vtab:svhn=others", root="r", few_shot="others", few_shot_root="~/x")
    found = located(data)
    assert (found.data, found.root) == (f"vtab:svhn={tmp_path / 'others'}", str(tmp_path / "r"))
    assert (found.few_shot, found.few_shot_root) == (str(tmp_path / "others"), str(Path.home() / "x"))
    assert located(replace(data, data="cifar10", few_shot=None)).data == "cifar10"
    assert located(replace(data, data="wds:a/{0..3}.tar")).data == f"wds:{tmp_path}/a/{{0..3}}.tar"


def test_what_was_taught_is_measured_on_its_own_val_split():
    assert data_config(Settings({"data.data": "taught:somewhere"}), 0.1).held_out is None
    assert data_config(Settings({"data.data": "digits"}), 0.1).held_out == 0.1
    assert data_config(Settings({"data.data": "taught:somewhere", "data.held_out": 0.2}), 0.1).held_out == 0.2


def test_the_data_of_a_recipe_is_taken_where_nothing_is_said():
    assert data_config(Settings(), None, known="digits").data == "digits"
    assert data_config(Settings({"data.data": "mnist"}), None, known="digits").data == "mnist"


# Recipes for fine-tuning.


def test_a_known_data_set_takes_its_row_and_a_folder_of_that_name_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert finetuning_name(None, "cifar10") == "finetune-cifar10"
    assert finetuning_name(None, "digits") == "finetune-folder"
    assert finetuning_name(None, "cifar10", knows_classes=False) == "finetune-masked"
    (tmp_path / "cifar10").mkdir()
    assert finetuning_name(None, "cifar10") == "finetune-folder"
