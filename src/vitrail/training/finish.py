"""The end of a run: the model that was kept is loaded from its folder and measured once on the test split."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vitrail.data import Source
from vitrail.evaluation import Metrics, Predictions, measure
from vitrail.models import Classifier
from vitrail.runtime.atomic import atomic_file
from vitrail.training.events import Done
from vitrail.training.folder import RunFolder
from vitrail.training.hidden_pictures import write_hidden
from vitrail.training.keep import recorded
from vitrail.training.log import Log
from vitrail.training.session import Session
from vitrail.weights.checkpoint import from_model
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
