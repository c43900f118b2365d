"""Run folders made by hand, so that any run can be told about without training it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.config import (
    AugmentConfig,
    DataConfig,
    OptimConfig,
    Preprocessing,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
    VitConfig,
)
from vitrail.data import Arrays, Labels
from vitrail.evaluation import Predictions
from vitrail.training.folder import FORMAT, RunFolder, RunRecord, write_record

NAMES = ("고양이", "<script>alert(1)</script>", '"quo\'te" & co')


def source(classes: tuple[str, ...] = NAMES, images: int = 12, side: int = 8, split: str = "test") -> Arrays:
    """Images of each class in turn."""
    labels = np.arange(images) % len(classes)
    pixels = np.random.default_rng(0).integers(0, 256, (images, side, side, 3), dtype=np.uint8)
    return Arrays("pictures", split, classes, Labels.of(labels, len(classes)), pixels)


def predictions(labels: np.ndarray, classes: int, wrong: dict[int, int]) -> Predictions:
    """All right but those in `wrong`, which are taken for another class, the later ones with the higher loss."""
    first = labels.copy()
    losses = np.full(len(labels), 0.1, np.float32)
    for place, (index, guess) in enumerate(wrong.items()):
        first[index], losses[index] = guess, 1 + place
    guesses = np.stack([(first + shift) % classes for shift in range(min(classes, 5))], axis=1)
    confidence = np.tile(np.linspace(0.7, 0.05, guesses.shape[1], dtype=np.float32), (len(labels), 1))
    return Predictions(guesses, confidence, guesses == labels[:, None], losses)


def run_config(classes: int = 3, **train: Any) -> RunConfig:
    """A tiny network on data that is nowhere."""
    model = VitConfig(
        width=8, depth=1, num_heads=1, mlp_width=8, patch_size=(4, 4), image_size=(8, 8), num_classes=classes
    )
    return RunConfig(
        recipe="vit-<i>test</i>",
        model=model,
        preprocessing=Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bilinear"),
        data=DataConfig(data="/nowhere/pictures", held_out=0.1),
        augment=AugmentConfig(),
        optim=OptimConfig(optimizer="adam", lr=1e-3),
        schedule=ScheduleConfig(decay="cosine"),
        train=replace(TrainConfig(batch_size=10, loss="softmax", epochs=2), **train),
    )


def make_run(
    path: Path,
    lines: list[dict[str, Any]],
    *,
    config: RunConfig | None = None,
    classes: tuple[str, ...] = NAMES,
    counts: dict[str, int] | None = None,
) -> RunFolder:
    """A folder with a record and a log."""
    path.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(path)
    record = RunRecord(
        format=FORMAT,
        config=config or run_config(len(classes)),
        classes=classes,
        digest="ab" * 32,
        counts={"train": 100, "held-out": 10, "test": 12} if counts is None else counts,
        command="vitrail train '<b>x</b>' --data pictures",
        versions={"vitrail": "0", "torch": "2", "cuda": ""},
        device="cpu, 2 threads",
    )
    write_record(folder, record)
    folder.log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def trained(step: int, loss: float = 1.0, **more: Any) -> dict[str, Any]:
    return {
        "event": "train",
        "step": step,
        "epoch": step / 10,
        "loss": loss,
        "accuracy": 0.5,
        "learning_rate": 1e-3,
        "gradient_norm": 1.0,
        "images_per_second": 1000.0,
        "data_wait": 0.01,
        "seconds": step / 10,
        **more,
    }


def evaluated(step: int, accuracy: float = 0.9, is_best: bool = True) -> dict[str, Any]:
    return {
        "event": "evaluated",
        "step": step,
        "images": 10,
        "accuracy": accuracy,
        "top5": 1.0,
        "loss": 0.5,
        "is_best": is_best,
    }


def done(step: int = 20, split: str | None = "test", images: int = 12, accuracy: float = 0.75) -> dict[str, Any]:
    metrics = None if split is None else {"images": images, "accuracy": accuracy, "top5": 1.0, "loss": 0.4}
    return {"event": "done", "step": step, "split": split, "metrics": metrics, "best": None, "seconds": 83.4}


FULL = [trained(5), trained(10), evaluated(10), trained(15), trained(20), evaluated(20, 0.8, False), done()]
