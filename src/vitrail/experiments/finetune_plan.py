"""Which runs a fine-tuning is made of, in which order: values only (4.1 and B.1.1 of the paper)."""

from dataclasses import dataclass, replace
from typing import Literal

from vitrail.config import RunConfig
from vitrail.errors import UsageError

# Where nobody said otherwise and there is no val split.
_HELD_OUT = 0.1

Measure = Literal["test", "val", "held_out", "sweep", "nothing"]
"""Where the final number comes from.

test, val: that split, seen by the final models alone; held_out: training images that the final runs leave out;
sweep: the same, of the run that chose the rate, because the final runs learn from all images.
"""


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Which splits the data has beside the one that is learnt from."""

    val: bool
    test: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Try the rates on held-out training images, then train with the best on all of them, once per seed."""

    config: RunConfig
    """What all runs share; its rate is the first that is tried, its time limit that of one run."""
    rates: tuple[float, ...]
    """A single one is taken as it is."""
    seeds: tuple[int, ...]
    final_held_out: float | None
    """What the final runs leave out: 0 for nothing, none for the val split, which they only watch."""
    measure: Measure
    final_split: str | None = None
    """What the final runs learn from, where it is more than what the rate is chosen with."""

    @property
    def is_sweeping(self) -> bool:
        """Whether there is a choice to make."""
        return len(self.rates) > 1

    @property
    def runs(self) -> int:
        """How many there are in all."""
        return len(self.seeds) + (len(self.rates) if self.is_sweeping else 0)

    @property
    def chooses_on_val(self) -> bool:
        """Whether the rate is chosen on the very images that the final number is measured on."""
        return self.is_sweeping and self.measure == "val" and self.config.data.held_out is None


@dataclass(frozen=True)
class PlannedRun:
    """One run: an ordinary run folder below that of the whole."""

    folder: str
    title: str
    number: int
    """From 1 to the number of all runs."""
    config: RunConfig


def make_plan(config: RunConfig, *, rates: tuple[float, ...], seeds: int, splits: Splits) -> Plan:
    """The plan for a config; seeds count from the config's, and a time limit is shared out evenly."""
    if seeds < 1:
        raise UsageError(f"seeds is {seeds}", wanted="a number of final runs, 1 or more")
    if config.train.keep != "last":
        raise UsageError(
            "keep is 'best'", wanted="'last': the final runs learn from all images, so none are left to select on"
        )
    rates = tuple(dict.fromkeys(rates))
    is_sweeping = len(rates) > 1
    if is_sweeping and config.data.held_out == 0:
        raise UsageError(
            "nothing is held out, so there is nothing to choose a learning rate on",
            fix="Leave --held-out away, or name one rate with --lr.",
        )
    if not rates:
        raise UsageError("there is no learning rate", fix="Name one with --lr, or several with --rates.")
    if config.data.held_out is None and not splits.val:
        config = replace(config, data=replace(config.data, held_out=_HELD_OUT))
    final_held_out, measure = _final(config.data.held_out, splits, is_sweeping=is_sweeping)
    first = config.train.seed
    plan = Plan(
        config=replace(config, optim=replace(config.optim, lr=rates[0])),
        rates=rates,
        seeds=tuple(range(first, first + seeds)),
        final_held_out=final_held_out,
        measure=measure,
    )
    if config.train.time_limit is None:
        return plan
    each = replace(config.train, time_limit=config.train.time_limit / plan.runs)
    return replace(plan, config=replace(plan.config, train=each))


def retrained_on(plan: Plan, split: str) -> Plan:
    """The same plan with the rate chosen on the val split, and final runs that learn from `split`, which has it too."""
    data = replace(plan.config.data, held_out=None)
    return replace(plan, config=replace(plan.config, data=data), final_held_out=0.0, final_split=split)


def _final(held_out: float | None, splits: Splits, *, is_sweeping: bool) -> tuple[float | None, Measure]:
    if held_out == 0:
        return 0.0, "test" if splits.test else "nothing"
    if splits.val:
        return None, "test" if splits.test else "val"
    if splits.test:
        return 0.0, "test"
    # With nothing else to measure on and no sweep that did, a model without a number is worth less than a tenth more.
    return (0.0, "sweep") if is_sweeping else (held_out, "held_out")


def sweep_runs(plan: Plan) -> list[PlannedRun]:
    """One run per rate, on held-out training images; the test split is not even opened."""
    if not plan.is_sweeping:
        return []
    data = replace(plan.config.data, test=False)
    return [
        PlannedRun(
            # repr keeps two rates apart that look alike when rounded.
            folder=f"sweep/lr-{rate!r}",
            title=f"learning rate {rate:g}",
            number=number,
            config=replace(plan.config, data=data, optim=replace(plan.config.optim, lr=rate)),
        )
        for number, rate in enumerate(plan.rates, start=1)
    ]


def final_runs(plan: Plan, rate: float) -> list[PlannedRun]:
    """One run per seed with the chosen rate, on all training images."""
    config = plan.config
    data = replace(config.data, held_out=plan.final_held_out, split=plan.final_split or config.data.split)
    before = plan.runs - len(plan.seeds)
    return [
        PlannedRun(
            folder=f"seed-{seed}",
            title=f"learning rate {rate:g}, seed {seed}",
            number=number,
            config=replace(
                config,
                data=data,
                optim=replace(config.optim, lr=rate),
                train=replace(config.train, seed=seed),
            ),
        )
        for number, seed in enumerate(plan.seeds, start=before + 1)
    ]
