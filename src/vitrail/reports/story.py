"""Everything a page tells about a run, gathered from its folder."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from vitrail.config import RunConfig, from_json
from vitrail.config.spelling import OPTIONS
from vitrail.data import Source
from vitrail.errors import DataError, VitrailError, marked, notice, plain, spelled
from vitrail.evaluation import Metrics, Predictions, measure
from vitrail.reports.answers import Answers, read_answers
from vitrail.reports.numbers import is_number
from vitrail.reports.summary import Summary
from vitrail.runtime.lock import is_held
from vitrail.training.events import Record
from vitrail.training.folder import RunFolder, RunRecord, read_run
from vitrail.training.held_out import open_split, silently
from vitrail.training.log import read_log
from vitrail.training.schedule import total_steps
from vitrail.training.sources import open_run_data


@dataclass(frozen=True, kw_only=True)
class Story:
    """A run as it was asked for, as it went, and what its model said about the images it was measured on."""

    path: Path
    resume: str
    """What to type to go on with it, or with the whole that it is part of."""
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
    is_live: bool
    """Whether a process is at work on it now."""
    split: str | None
    """What was measured: test, or held_out where there is no test split."""
    metrics: Metrics | None
    predictions: Predictions | None
    labels: np.ndarray | None
    """The class of each measured image; none where there is not one for each, or it is not known any more."""
    digest: str | None
    """Of the measured images, where the folder holds it."""
    source: Source | None
    """The images that were measured; none when they cannot be shown."""
    left_out: str
    """Why there is nothing about single images, where something was measured."""
    summary: Summary | None
    """What the run was part of; none for one that stands alone."""

    @property
    def is_stopped(self) -> bool:
        """Whether it has begun, has not come to its end, and nobody is at work on it."""
        return self.done is None and self.step > 0 and not self.is_live and not self.has_diverged

    @property
    def best(self) -> Record | None:
        """The best evaluation on held-out images that has a number."""
        found = (one for one in reversed(self.evaluations) if one.get("is_best") and is_number(one.get("accuracy")))
        return next(found, None)

    @property
    def step(self) -> int:
        """Updates done, as far as the log tells."""
        records = [*self.training, *self.evaluations, *self.events, *([self.done] if self.done else [])]
        return max((record["step"] for record in records), default=0)

    @property
    def steps(self) -> int:
        """Updates in all; a time limit may have changed it on the way."""
        lengths = [
            record["steps"] for record in self.events if record["event"] == "length" and is_number(record.get("steps"))
        ]
        return lengths[-1] if lengths else total_steps(self.record.config.train, self.record.counts["train"])

    def epoch(self, step: float) -> float:
        """Passes over the training images after so many updates."""
        return step * self.record.config.train.batch_size / max(self.record.counts["train"], 1)


def gather(
    folder: RunFolder, source: Source | None, predictions: Predictions | None, summary: Summary | None = None
) -> Story:
    """Read the folder; images and predictions that are not given are opened again, where they still are."""
    record = read_run(folder)
    damaged: list[int] = []
    log = list(read_log(folder.log, needs_numbers=True, damaged=damaged)) if folder.log.exists() else []
    if damaged:
        notice(f"{folder.log}: {len(damaged):,} damaged lines are left out, the first is line {damaged[0]:,}.")
    done = next((line for line in reversed(log) if line["event"] == "done"), None)
    split = done.get("split") if done else None
    split = split or (None if predictions is None else "test" if "test" in record.counts else "held_out")
    # Made just now: their labels are those of the source.
    answers = None if predictions is None else Answers(predictions, labels=None, digest=None)
    left_out = ""
    try:
        # A run that goes on has dropped its "done", and predictions in its folder are of an earlier model.
        if answers is None and split is not None and record.config.masking is None:
            answers = read_answers(folder.path / "predictions.npz", len(record.classes))
        if answers is not None and split is not None:
            source = source if source is not None else _reopened(record.config, split)
            answers.ensure_about(source, record.classes)
    except VitrailError as error:
        source, left_out = None, spelled(marked(error), OPTIONS)
    predictions = predictions if answers is None else answers.predictions
    labels = None if answers is None else answers.labels
    if source is not None and answers is not None and not source.labels.is_multi:
        labels = source.labels.values
    return Story(
        path=folder.path,
        resume=plain(folder.resume_command),
        record=record,
        training=[line for line in log if line["event"] == "train"],
        evaluations=[line for line in log if line["event"] == "evaluated"],
        few_shots=[line for line in log if line["event"] == "few_shot"],
        events=[line for line in log if line["event"] not in ("train", "evaluated", "few_shot", "done")],
        done=done,
        has_diverged=done is None and (folder.path / "diverged.json").exists(),
        is_live=done is None and is_held(folder.lock),
        split=split,
        metrics=_metrics(done, predictions, folder),
        predictions=predictions,
        labels=labels,
        digest=None if answers is None else answers.digest,
        source=source if predictions is not None else None,
        left_out=left_out,
        summary=summary,
    )


def _metrics(done: Record | None, predictions: Predictions | None, folder: RunFolder) -> Metrics | None:
    if predictions is not None:
        return measure(predictions)
    found = done.get("metrics") if done else None
    if not isinstance(found, dict):
        return None
    # In the log null stands for a number that JSON cannot hold.
    numbers = {name: math.nan if value is None else value for name, value in found.items()}
    try:
        metrics = from_json(Metrics, numbers, where=f"{folder.log}, metrics")
    except VitrailError:
        return None
    return metrics if math.isfinite(metrics.accuracy) else None


def _reopened(config: RunConfig, split: str) -> Source:
    """The images that a run was measured on: the test split, or what was held out; nothing is downloaded for a page."""
    data = replace(config.data, download=False, test=False)
    if split == "test":
        return open_split(data, "test")
    held_out = open_run_data(data, torch.device("cpu"), silently).held_out
    if held_out is None:
        raise DataError("nothing is held out any more", where=data.data)
    return held_out
