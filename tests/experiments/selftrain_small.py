"""Self-trainings of a few seconds: a teacher that was never trained, and students of a few steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.training.tiny_run import CLASSES, CPU, config

from vitrail import create_model, save_model
from vitrail.config import Preprocessing
from vitrail.experiments.audience import Audience
from vitrail.experiments.driver import Driver, How
from vitrail.experiments.experiment import write_plan
from vitrail.experiments.selftrain import Plan, SelftrainFolder, Unlabelled, read_selftraining
from vitrail.experiments.selftrain_choosing import Choice
from vitrail.experiments.selftrain_result import Result
from vitrail.training.log import Watcher
from vitrail.weights.load import load_model

HALF = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bilinear")


def teacher_folder(
    path: Path, labels: tuple[str, ...] | None = CLASSES, seed: int = 1, never: int | None = None
) -> Path:
    """A network with answers that differ from image to image; it never guesses the class `never`."""
    model = create_model("vit-test", num_classes=4, image_size=8, patch_size=4, width=16, depth=1, num_heads=2)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
        model.head.bias.zero_()
        if never is not None:
            model.head.bias[never] = -100.0
    model.preprocessing, model.labels = HALF, labels
    save_model(model, path)
    return path


def plan(teacher: Path, labelled: Path, unlabelled: Path | str, *, rounds: int = 1, **choice: Any) -> Plan:
    """Batches of 8 and six steps a round; every guess of the teacher is sure enough unless said otherwise."""
    from vitrail.evaluation.subject import open_subject

    settings = config(labelled, steps=6, optim={"lr": 1e-3})
    return Plan(
        teacher=str(teacher),
        teacher_fingerprint=open_subject(teacher).fingerprint,
        unlabelled=Unlabelled(data=str(unlabelled)),
        choice=Choice(**{"threshold": 0.0, **choice}),
        rounds=rounds,
        config=replace(settings, model=replace(settings.model, dropout=0.1)),
    )


def planned(folder: Path, made: Plan) -> SelftrainFolder:
    """The folder of a plan that is written down, and of which nothing is done."""
    where = SelftrainFolder(folder)
    write_plan(where, made, "vitrail selftrain ...", model=made.config.model)
    return where


def carried_out(
    folder: Path, made: Plan | None = None, watcher: Watcher | None = None, audience: Audience | None = None
) -> Result:
    """A plan that begins, or the one in the folder that goes on."""
    where = SelftrainFolder(folder) if made is None else planned(folder, made)
    how = How(device=CPU, on_event=watcher, audience=audience or Audience())
    return Driver(how).drive(read_selftraining(where), where)


def said_by(teacher: Path, images: torch.Tensor) -> torch.Tensor:
    """Its probabilities, straight from the network."""
    with torch.inference_mode():
        return load_model(teacher)(images).softmax(dim=1)
