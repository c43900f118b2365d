"""One mistake, made at the command line and in Python: one sentence, with settings as they are written there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.experiments.conftest import save_network
from tests.training.tiny_run import make_images

import vitrail
from vitrail.cli import main
from vitrail.errors import VitrailError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place of its own with a model, images and a file that is none of ours."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    make_images(tmp_path / "images", per_class=6)
    save_network(tmp_path / "model")


Call = dict[str, Any]
DIGITS: Call = {"recipe": "vit-digits", "device": "cpu"}
TUNE: Call = {"source": "model", "data": "images", "device": "cpu", "steps": 2}

CASES: list[tuple[str, str, str, Call, str]] = [
    # What is typed, what the command line says, the verb and the call of the same, what Python says.
    ("train vit-digits --epoch 3", "--epochs?", "train", {"recipe": "vit-digits", "epoch": 3}, "mean epochs?"),
    (
        "train vit-digits --model.widht 3",
        "--model.width?",
        "train",
        {"recipe": "vit-digits", "settings": {"model.widht": 3}},
        'settings["model.width"]?',
    ),
    ("train vit-digits --epochs two", "--epochs is 'two'", "train", {**DIGITS, "epochs": "two"}, "epochs is 'two'"),
    (
        "train vit-digits --lr high",
        "--lr is 'high'",
        "train",
        {**DIGITS, "lr": "high"},
        "lr is 'high'; wanted a number",
    ),
    (
        "train vit-digits --augment.crop centre",
        "--augment.crop is 'centre'",
        "train",
        {**DIGITS, "settings": {"augment.crop": "centre"}},
        "settings[\"augment.crop\"] is 'centre'",
    ),
    (
        "train vit-digits --schedule.lr 5",
        "--schedule.lr cannot be set: --lr",
        "train",
        {**DIGITS, "settings": {"schedule.lr": 5}},
        'settings["schedule.lr"] cannot be set: lr',
    ),
    (
        "train mae-digits --train.loss sigmoid",
        "--train.loss cannot be set",
        "train",
        {"recipe": "mae-digits", "settings": {"train.loss": "sigmoid"}},
        'settings["train.loss"] cannot be set',
    ),
    (
        "train vit-digits --masking.share 0.3",
        "--masking.share is given for a run that learns from labels",
        "train",
        {**DIGITS, "settings": {"masking.share": 0.3}},
        'settings["masking.share"] is given',
    ),
    ("train", "wanted vitrail train RECIPE --data DATA", "train", {}, "vitrail.train('RECIPE', data='DATA')"),
    ("train vit-digits --name ../x", "--name is '../x'", "train", {**DIGITS, "name": "../x"}, "name is '../x'"),
    ("train vit-digits --or-resume", "wanted --name NAME", "train", {**DIGITS, "or_resume": True}, "name='NAME'"),
    ("train vit-digits --device cuda", "Use --device cpu", "train", {**DIGITS, "device": "cuda"}, "Use device='cpu'"),
    (
        "train vit-digits --processes 0",
        "--processes is 0",
        "train",
        {**DIGITS, "processes": 0},
        "processes is 0; wanted a number from 1",
    ),
    (
        "train finetune-cifar10 --data images",
        "`vitrail finetune SOURCE --recipe finetune-cifar10`",
        "train",
        {"recipe": "finetune-cifar10", "data": "images"},
        "`vitrail.finetune('SOURCE', recipe='finetune-cifar10')`",
    ),
    ("train images", "vitrail train --data images", "train", {"recipe": "images"}, "vitrail.train(data='images')"),
    (
        "train --resume images --lr 3",
        "--lr cannot change a run that goes on",
        "train",
        {"resume": "images", "lr": 3.0},
        "lr cannot change a run that goes on",
    ),
    (
        "finetune --data images",
        "wanted vitrail finetune SOURCE --data DATA",
        "finetune",
        {"data": "images"},
        "wanted vitrail.finetune('SOURCE', data='DATA')",
    ),
    (
        "finetune model --data images --lr 0.1 --rates 0.1 0.2 --device cpu",
        "both --lr and --rates are given",
        "finetune",
        {**TUNE, "lr": 0.1, "rates": (0.1, 0.2)},
        "both lr and rates are given",
    ),
    (
        "finetune model --data images --rates 0.1 0.2 --held-out 0 --device cpu",
        "Leave --held-out away, or name one rate with --lr",
        "finetune",
        {**TUNE, "rates": (0.1, 0.2), "held_out": 0},
        "Leave held_out away, or name one rate with lr",
    ),
    (
        "finetune model --data images --model.blocks 1 1 1 1 --device cpu",
        "--model.blocks is no setting of this network",
        "finetune",
        {**TUNE, "settings": {"model.blocks": (1, 1, 1, 1)}},
        'settings["model.blocks"] is no setting of this network',
    ),
    (
        "transfer model",
        "wanted vitrail transfer MODEL --data DATA",
        "transfer",
        {"*": ("model",)},
        "wanted vitrail.transfer('MODEL', data='DATA')",
    ),
    (
        "transfer model --data images nowhere --steps 2 --device cpu",
        "add --skip-missing to do the others",
        "transfer",
        {"*": ("model",), "data": ["images", "nowhere"], "steps": 2, "device": "cpu"},
        "add skip_missing=True to do the others",
    ),
    (
        "vtab model --held-out 0.1",
        "--held-out cannot be set for vtab",
        "vtab",
        {"model": "model", "held_out": 0.1},
        "held_out cannot be set for vtab",
    ),
    (
        "selftrain model --data images",
        "--unlabelled IMAGES",
        "selftrain",
        {"teacher": "model", "data": "images"},
        "unlabelled='IMAGES'",
    ),
]


@pytest.mark.parametrize(("typed", "told", "verb", "call", "raised"), CASES, ids=[case[0][:50] for case in CASES])
def test_a_mistake_is_told_where_it_is_made_as_it_is_written_there(
    typed: str, told: str, verb: str, call: Call, raised: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(typed.split())
    error = capsys.readouterr().err
    assert told in error, error
    assert "Traceback" not in error and "\U0010fff0" not in error
    call = dict(call)
    with pytest.raises(VitrailError) as caught:
        getattr(vitrail, verb)(*call.pop("*", ()), **call)
    said = str(caught.value)
    assert raised in said, said
    assert " --" not in said and "\U0010fff0" not in said
    assert caught.value.exit_code == code
    assert not Path("runs").exists()
