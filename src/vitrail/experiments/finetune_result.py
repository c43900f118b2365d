"""What a fine-tuning found: the rates that were tried, the one that was taken, and mean ± std over seeds."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitrail.config import from_json, to_json
from vitrail.errors import DataError
from vitrail.experiments.finetune_plan import Measure, Plan
from vitrail.reports import SeedResult, Summary, TriedRate
from vitrail.runtime.atomic import atomic_file
from vitrail.training.divergence import Diverged

FORMAT = "vitrail-finetune-result/1"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How good the model of one run is, as its log says."""

    images: int
    """How many were counted."""
    accuracy: float
    top5: float
    loss: float


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A rate of the sweep and what came of it on held-out images."""

    lr: float
    folder: str
    measured: Measured | None
    """None when its loss was no number any more."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Final:
    """A run on all training images."""

    seed: int
    folder: str
    measured: Measured | None
    """None when there was nothing to measure on."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """`result.json`."""

    format: str = FORMAT
    rates: tuple[Trial, ...]
    chosen: float
    seeds: tuple[Final, ...]
    measured_on: Measure
    mean: float | None
    """Accuracy, over seeds, or that of the sweep where only it could measure."""
    std: float | None
    """Of a sample (n - 1), over seeds; none for fewer than two."""
    images: int
    """How many each accuracy counted."""
    seconds: float
    """Time spent in training, in all runs together."""


def choose_rate(trials: Sequence[Trial]) -> Trial:
    """The rate with the most held-out images right; of equals the one with less loss, then the smaller rate."""
    if all(trial.measured is None for trial in trials):
        raise Diverged(
            f"the loss is not finite at any of the learning rates {', '.join(f'{trial.lr:g}' for trial in trials)}",
            fix="Try a smaller one with --lr, and look at the images with `vitrail data check`.",
        )
    return max(trials, key=_worth)


def _worth(trial: Trial) -> tuple[float, float, float]:
    found = trial.measured
    return (-math.inf, 0.0, 0.0) if found is None else (found.accuracy, -found.loss, -trial.lr)


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and the standard deviation of a sample, which one value does not have."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def make_result(plan: Plan, trials: Sequence[Trial], chosen: float, finals: Sequence[Final]) -> Result:
    """Put together what the runs found."""
    if plan.measure == "sweep":
        counted = [trial.measured for trial in trials if trial.lr == chosen]
    else:
        counted = [final.measured for final in finals]
    found = [measured for measured in counted if measured is not None]
    mean, std = mean_and_std([measured.accuracy for measured in found]) if found else (None, None)
    return Result(
        rates=tuple(trials),
        chosen=chosen,
        seeds=tuple(finals),
        measured_on=plan.measure,
        mean=mean,
        std=std,
        images=found[0].images if found else 0,
        seconds=round(sum(run.seconds for run in (*trials, *finals)), 3),
    )


def summary(plan: Plan, result: Result, path: Path, command: str) -> Summary:
    """What the page of the whole tells; `path` is its folder, `command` what began it."""
    return Summary(
        path=path,
        command=command,
        rates=tuple(
            TriedRate(
                rate=trial.lr,
                accuracy=trial.measured and trial.measured.accuracy,
                loss=trial.measured and trial.measured.loss,
                images=trial.measured.images if trial.measured else 0,
                seconds=trial.seconds,
            )
            for trial in result.rates
        ),
        chosen=result.chosen,
        tried_on="val images" if plan.config.data.held_out is None else "held-out training images",
        seeds=tuple(
            SeedResult(seed=final.seed, accuracy=final.measured and final.measured.accuracy, seconds=final.seconds)
            for final in result.seeds
        ),
        measured_on=result.measured_on,
        is_choice_measured=plan.chooses_on_val,
        mean=result.mean,
        std=result.std,
        images=result.images,
        seconds=result.seconds,
    )


def write_result(path: Path, result: Result) -> None:
    """Write `result.json`, whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(to_json(result), indent=2) + "\n", encoding="utf-8")


def read_result(path: Path) -> Result:
    """Read `result.json`."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read ({error})", where=str(path)) from None
    return from_json(Result, values, where=str(path))
