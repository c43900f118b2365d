"""The model that a run keeps: written when it is the best or the last, and at the end loaded and measured once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.config import RunConfig, to_json
from vitrail.data import Source
from vitrail.data.sources.taught import lineage_of
from vitrail.evaluation import Metrics, Predictions, measure
from vitrail.models import Classifier
from vitrail.models.masked import MaskedNetwork, Seen
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import finite
from vitrail.training.events import Done
from vitrail.training.folder import RunFolder
from vitrail.training.log import Log
from vitrail.training.session import Session
from vitrail.weights.checkpoint import Checkpoint, from_model
from vitrail.weights.load import load_model
from vitrail.weights.save import write_checkpoint


@dataclass(frozen=True)
class Outcome:
    """What a finished run is worth."""

    split: str
    """What it was measured on: test, or held_out where there is no test split."""
    metrics: Metrics | None
    predictions: Predictions | None
    source: Source | None


def finish(session: Session, folder: RunFolder, log: Log, advance: Callable[[int], None] | None = None) -> Outcome:
    """Measure, record it with the model, and close the log with "done"."""
    data, is_first = session.data, session.processes.is_first
    source = data.test if data.test is not None else data.held_out
    split = "test" if data.test is not None else "held_out"
    metrics = predictions = None
    if source is not None and session.config.masking is not None:
        metrics = session.evaluate(source, advance)
        log.sync()
        if is_first:
            _record(session, folder, load_model(folder.model), split, metrics)
            if session.spread.has_all:
                write_hidden(folder.path, session.see_hidden(source))
    elif source is not None:
        model = load_model(folder.model).to(session.device)
        predictions = session.classify(model, source, advance)
        metrics = measure(predictions)
        log.sync()
        if is_first:
            _record(session, folder, model, split, metrics)
            _write_predictions(folder, predictions, source)
    log.write(
        Done(
            step=session.progress.step,
            split=split if metrics else None,
            metrics=None if metrics is None else metrics.record(),
            best=None if session.progress.best is None else vars(session.progress.best),
            seconds=round(session.progress.seconds, 3),
        )
    )
    return Outcome(split, metrics, predictions, source)


def _record(session: Session, folder: RunFolder, model: Classifier, split: str, metrics: Metrics) -> None:
    """Numbers travel with the weights they belong to."""
    model.metrics = {**model.metrics, split: recorded(session.config, metrics)}
    write_checkpoint(from_model(model), folder.model, "vitrail")


def _write_predictions(folder: RunFolder, predictions: Predictions, source: Source) -> None:
    """`predictions.npz`: what the model said about each image, in the order of the split, and which images they are."""
    arrays = {**vars(predictions), "digest": np.array(source.digest())}
    if not source.labels.is_multi:
        arrays["labels"] = source.labels.values
    with atomic_file(folder.path / "predictions.npz") as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def keep_model(session: Session, folder: RunFolder, metrics: Metrics | None) -> None:
    """Write `model/`, in place of what was there; one process does, once all have given what they hold."""
    weights = session.weights()
    if session.processes.is_first:
        _write(session, folder, weights, metrics)
    session.processes.wait()


def recorded(config: RunConfig, metrics: Metrics) -> dict[str, Any]:
    """Numbers as they travel with a model: one that learnt without labels has no accuracy, but a share of its own."""
    if config.masking is None:
        return finite(metrics.record())
    return finite({"images": metrics.images, config.masking.guessed: metrics.accuracy, "loss": metrics.loss})


def _write(session: Session, folder: RunFolder, weights: dict[str, Tensor], metrics: Metrics | None) -> None:
    config, progress, model = session.config, session.progress, session.model
    if isinstance(model, MaskedNetwork):
        # What was only there to learn without labels has no use in what comes next.
        weights = {name: tensor for name, tensor in weights.items() if name in model.encoder_names}
    provenance: dict[str, Any] = {
        "recipe": config.recipe,
        "data": config.data.data,
        "split": config.data.split,
        "start": config.start,
        "step": progress.step,
        "steps": progress.steps,
        "seed": config.train.seed,
        "loss": None if config.masking else config.train.loss,
        "masking": to_json(config.masking),
        "taught": lineage_of(session.data.train),
        "averaged": session.average is not None,
    }
    measured = {} if metrics is None else {"held_out": recorded(config, metrics)}
    write_checkpoint(
        Checkpoint(
            config=config.model,
            state={name: tensor.detach().cpu() for name, tensor in weights.items()},
            labels=None if config.masking else session.data.train.classes,
            preprocessing=config.preprocessing,
            provenance=provenance,
            metrics=measured,
        ),
        folder.model,
        "vitrail",
    )


NAME = "hidden.npz"


def write_hidden(folder: Path, seen: Seen) -> None:
    """Write bytes (images, height, width, channels) under the names of `Seen`, whole or not at all."""
    original, corrupted, predicted = map(_bytes, (seen.original, seen.corrupted, seen.predicted))
    with atomic_file(folder / NAME) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, original=original, corrupted=corrupted, predicted=predicted)


def _bytes(images: Tensor) -> np.ndarray:
    return (images.float() * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
