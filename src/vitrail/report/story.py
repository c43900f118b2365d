"""Everything a page tells about a run, gathered from its folder."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitrail.config import from_json
from vitrail.data import Source
from vitrail.errors import VitrailError
from vitrail.evaluate import Metrics, Predictions, measure
from vitrail.report.reopen import reopen
from vitrail.report.summary import Summary
from vitrail.train.folder import RunFolder, RunRecord, read_run
from vitrail.train.length import total_steps
from vitrail.train.log import Record, read_log


@dataclass(frozen=True, kw_only=True)
class Story:
    """A run as it was asked for, as it went, and what its model said about the images it was measured on."""

    path: Path
    record: RunRecord
    training: list[Record]
    evaluations: list[Record]
    few_shots: list[Record]
    """Scores on another data set on the way."""
    events: list[Record]
    """Whatever else the log holds: what could not be computed ahead."""
    done: Record | None
    """The last line of a run that came to its end."""
    has_diverged: bool
    split: str | None
    """What was measured: test, or held_out where there is no test split."""
    metrics: Metrics | None
    predictions: Predictions | None
    source: Source | None
    """The images that were measured; none when they cannot be shown."""
    left_out: str
    """Why there is nothing about single classes and images, where something was measured."""
    summary: Summary | None
    """What the run was part of; none for one that stands alone."""

    @property
    def best(self) -> Record | None:
        """The best evaluation on held-out images."""
        return next((record for record in reversed(self.evaluations) if record.get("is_best")), None)

    @property
    def step(self) -> int:
        """Updates done, as far as the log tells."""
        records = [*self.training, *self.evaluations, *self.events, *([self.done] if self.done else [])]
        return max((record["step"] for record in records), default=0)

    @property
    def steps(self) -> int:
        """Updates in all; a time limit may have changed it on the way."""
        lengths = [record["steps"] for record in self.events if record["event"] == "length" and "steps" in record]
        return lengths[-1] if lengths else total_steps(self.record.config.train, self.record.counts["train"])

    def epoch(self, step: float) -> float:
        """Passes over the training images after so many updates."""
        return step * self.record.config.train.batch_size / max(self.record.counts["train"], 1)


def gather(
    folder: RunFolder, source: Source | None, predictions: Predictions | None, summary: Summary | None = None
) -> Story:
    """Read the folder; images and predictions that are not given are opened again, where they still are."""
    record = read_run(folder)
    log = list(read_log(folder.log, needs_numbers=True)) if folder.log.exists() else []
    done = next((line for line in reversed(log) if line["event"] == "done"), None)
    split = done.get("split") if done else None
    split = split or (None if predictions is None else "test" if "test" in record.counts else "held_out")
    left_out = ""
    try:
        # A run that goes on has dropped its "done", and predictions in its folder are of an earlier model.
        if predictions is None and split is not None:
            predictions = _read_predictions(folder.path / "predictions.npz", len(record.classes))
        if predictions is not None and split is not None:
            source = source if source is not None else reopen(record.config, split)
            _ensure_same(source, predictions, record.classes)
    except VitrailError as error:
        source, left_out = None, str(error)
    return Story(
        path=folder.path,
        record=record,
        training=[line for line in log if line["event"] == "train"],
        evaluations=[line for line in log if line["event"] == "evaluated"],
        few_shots=[line for line in log if line["event"] == "few_shot"],
        events=[line for line in log if line["event"] not in ("train", "evaluated", "few_shot", "done")],
        done=done,
        has_diverged=done is None and (folder.path / "diverged.json").exists(),
        split=split,
        metrics=_metrics(done, predictions, folder),
        predictions=predictions,
        source=source if predictions is not None else None,
        left_out=left_out,
        summary=summary,
    )


def _metrics(done: Record | None, predictions: Predictions | None, folder: RunFolder) -> Metrics | None:
    if predictions is not None:
        return measure(predictions)
    found = done.get("metrics") if done else None
    return None if found is None else from_json(Metrics, found, where=f"{folder.log}, metrics")


def _read_predictions(path: Path, classes: int) -> Predictions:
    """What `finish` of the training room wrote; damage is an error that names the file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = Predictions(*(file[name] for name in ("guesses", "confidence", "right", "losses")))
    except FileNotFoundError:
        raise VitrailError("is not there any more", where=str(path)) from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise VitrailError(f"cannot be read ({error})", where=str(path)) from None
    shape = found.guesses.shape
    fits = len(shape) == 2 and shape[1] and found.right.shape == found.confidence.shape == shape
    if not fits or found.losses.shape != shape[:1] or not shape[0] or found.guesses.max() >= classes:
        raise VitrailError("holds other arrays than those of a run", where=str(path))
    return found


def _ensure_same(source: Source, predictions: Predictions, classes: tuple[str, ...]) -> None:
    """Refuse images that are not those the predictions are about: numbers beside them would be wrong."""
    came = ""
    if len(source) != len(predictions):
        came = f"there are {len(source):,} images now, and {len(predictions):,} were measured"
    elif source.classes != classes:
        came = "the classes are not those of the run"
    elif not np.array_equal(_first_is_right(source, predictions), predictions.right[:, 0]):
        came = "the labels are not those that were measured"
    if came:
        raise VitrailError(f"the data has changed since: {came}", where=f"{source.name}, {source.split}")


def _first_is_right(source: Source, predictions: Predictions) -> np.ndarray:
    first = predictions.guesses[:, 0]
    if not source.labels.is_multi:
        return source.labels.values == first
    return np.array([int(guess) in source.labels.classes_of(index) for index, guess in enumerate(first)], dtype=bool)
