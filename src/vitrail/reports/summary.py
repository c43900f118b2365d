"""What a run was part of: the learning rates that were tried before it, and the same run with other seeds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vitrail.data.check.words import counted, number
from vitrail.evaluation import interval
from vitrail.reports.numbers import duration, percent

# Seeds differ by less than a tenth of a percent where there are many images.
_DIGITS = 2


@dataclass(frozen=True, kw_only=True)
class TriedRate:
    """A learning rate and what it gave on held-out images."""

    rate: float
    accuracy: float | None
    """None when its loss was no number any more."""
    loss: float | None
    images: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """A final run."""

    seed: int
    accuracy: float | None
    """None when there was nothing to measure on."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Several runs, of which the page shows the first seed in full."""

    path: Path
    """The folder of the whole, which gets the page."""
    command: str
    """What began it, also after it was resumed."""
    rates: tuple[TriedRate, ...]
    chosen: float
    tried_on: str
    """What the images that chose the rate are called."""
    seeds: tuple[SeedResult, ...]
    measured_on: Literal["test", "val", "held_out", "sweep", "nothing"]
    """As `transfer.plan.Measure` says."""
    is_choice_measured: bool
    """Whether the number is about the very images that chose the rate."""
    mean: float | None
    std: float | None
    images: int
    seconds: float

    @property
    def runs(self) -> int:
        """How many there were in all."""
        return len(self.rates) + len(self.seeds)


def score(summary: Summary, what: str) -> str:
    """The number of the whole with what it counts; nothing where nothing was measured."""
    if summary.mean is None or not summary.images:
        return ""
    whole, _ = percent(summary.mean, _DIGITS).split()
    if summary.std is not None:
        shown = f"{whole}<small>± {100 * summary.std:.{_DIGITS}f} %</small>"
        below = f"mean ± standard deviation of {counted(len(summary.seeds), 'seed')}"
    else:
        shown = f"{whole}<small>%</small>"
        right = round(summary.mean * summary.images)
        low, high = interval(right, summary.images)
        below = f"{number(right)} images; 95 % interval: {percent(low)} to {percent(high)}"
    images = {"test": "test", "val": "val"}.get(summary.measured_on, "held-out")
    return (
        f'<div class="score"><b>{shown}</b><p>of {number(summary.images)} {images} images {what}'
        f"<br><span>{below}</span></p></div>"
    )


def account(summary: Summary) -> str:
    """How the rate was chosen, what the final runs learnt from, and what that means for the number."""
    finals = counted(len(summary.seeds), "final run")
    rate = f"{summary.chosen:g}"
    # As it was typed, or as it was called.
    is_given = re.search(r"\s--(lr|optim\.lr|rates)\b|[( ](lr|rates)=|'optim\.lr'", summary.command) is not None
    chosen = f"The learning rate was given: {rate}." if is_given else f"The learning rate is the recipe's: {rate}."
    if summary.rates:
        images = max(tried.images for tried in summary.rates)
        chosen = (
            f"{counted(len(summary.rates), 'learning rate')} were tried on {number(images)} {summary.tried_on}, "
            f"and {rate} was the best."
        )
    on_all = f"With it followed {finals} on all training images"
    match summary.measured_on:
        case "test":
            seen = "the test split was looked at once, at the end" + " of each" * (len(summary.seeds) > 1)
            return f"{chosen} {on_all}; {seen}."
        case "val":
            caution = "; it also chose the rate, so the number is a little too good" * summary.is_choice_measured
            return f"{chosen} {on_all}, measured on the val split, because there is no test split{caution}."
        case "held_out":
            return (
                f"{chosen} There is no test split, so {number(summary.images)} training images were not learnt from: "
                "they only measure, and chose nothing."
            )
        case "sweep":
            return (
                f"{chosen} There is no test split, so the number is that of the best rate on the images that chose it, "
                f"which is a little too good. {on_all}, and of what they gave there is no number."
            )
    return f"{chosen} Nothing was held out and there is no test split, so nothing says how good the model is."


def tables(summary: Summary) -> str:
    """The rates that were tried, with the one that was taken, and the seeds."""
    rates = [
        (
            f"{tried.rate:g}" + (' <span class="chip s0">taken</span>' if tried.rate == summary.chosen else ""),
            *_measured(tried),
            duration(tried.seconds),
        )
        for tried in summary.rates
    ]
    seeds = [
        (
            str(final.seed) + (' <span class="chip s0">kept</span>' if place == 0 else ""),
            "not measured" if final.accuracy is None else percent(final.accuracy, _DIGITS),
            duration(final.seconds),
        )
        for place, final in enumerate(summary.seeds)
    ]
    tried_on = f"accuracy on {summary.tried_on}"
    tried = _table(("learning rate", tried_on, "loss", "time"), rates) if rates else ""
    return f'<div class="beside">{tried}{_table(("seed", "accuracy", "time"), seeds)}</div>'


def _measured(tried: TriedRate) -> tuple[str, str]:
    if tried.accuracy is None or tried.loss is None:
        return "diverged", ""
    return percent(tried.accuracy, _DIGITS), f"{tried.loss:.4f}"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    kinds = ["", *([' class="n"'] * (len(names) - 1))]
    head = "".join(f"<th{kind}>{name}" for kind, name in zip(kinds, names, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{value}</td>" for kind, value in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
