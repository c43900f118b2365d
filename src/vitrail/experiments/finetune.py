"""`vitrail.finetune`: rates tried on held-out training images, the best on all of them, mean ± std over seeds.

That is the paper's protocol (4.1 and B.1.1), or a rule for folders. A fine-tuning is the plan of it, a value; its steps
are the runs of the sweep, the choice, and the final runs.
"""

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vitrail.config import DataConfig, ModelConfig, RunConfig, Settings, from_json, to_json
from vitrail.errors import DataError, UsageError, command, notice, setting
from vitrail.experiments.ask import Ask, Place
from vitrail.experiments.experiment import (
    Ended,
    Experiment,
    ExperimentFolder,
    ExperimentRecord,
    Run,
    Steps,
    keep_model,
    read_plan,
)
from vitrail.experiments.resolve import (
    FOLDER,
    MASKED,
    data_config,
    finetuning_name,
    finetuning_recipe,
    lay,
    resolve,
    with_its_depth,
    with_kept_warmup,
)
from vitrail.recipes import Recipe, folder_recipe
from vitrail.runtime.atomic import atomic_file
from vitrail.training.divergence import Diverged

if TYPE_CHECKING:
    from vitrail.data import Source
    from vitrail.experiments.calling import Finished
    from vitrail.experiments.driver import Driver
    from vitrail.experiments.start import Start
    from vitrail.reports import Summary
    from vitrail.training.events import OnEvent
    from vitrail.training.finish import Outcome

FORMAT = "vitrail-finetune/1"
RESULT_FORMAT = "vitrail-finetune-result/1"
_SEEDS_OF_THE_PAPER = 3
# Where nobody said otherwise and there is no val split.
_HELD_OUT = 0.1

Measure = Literal["test", "val", "held_out", "sweep", "nothing"]
"""Where the final number comes from.

test, val: that split, seen by the final models alone; held_out: training images that the final runs leave out;
sweep: the same, of the run that chose the rate, because the final runs learn from all images.
"""


@dataclass(frozen=True, kw_only=True)
class Options(Place):
    """Fine-tune SOURCE: learning rates tried on held-out training images, the best on all of them, once per seed.

    SOURCE is a run, a model folder, a checkpoint file, hf-hub:owner/name, a name with published weights, or a network
    of another package with its weights: timm:NAME, torchvision:NAME.
    """

    recipe: str | None = None
    """A row of Table 4 or a rule; if not said, the row of a known data set, else finetune-folder; finetune-masked for a
    network that learnt without labels."""
    rates: tuple[float, ...] | None = None
    """Learning rates to try, if not the recipe's; lr takes one without trying."""
    seeds: int | None = None
    """Final runs, which give mean and standard deviation; 3 with a row of the paper, else 1."""
    image_size: int | None = None
    """Side of the input in pixels; if not said the recipe's, for finetune-folder the source's."""
    preprocessing: str | None = None
    """google, augreg or imagenet, where the source does not say or says it wrong."""


# The plan.


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Which splits the data has beside the one that is learnt from."""

    val: bool
    test: bool


@dataclass(frozen=True, kw_only=True)
class Plan(Experiment["Result"]):
    """Try the rates on held-out training images, then train with the best on all of them, once per seed."""

    verb: ClassVar[str] = "finetune"

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

    def at(self, path: Path, whole: str = "") -> "FinetuneFolder":
        """The folder of it."""
        return FinetuneFolder(path, whole=whole)

    def steps(self, folder: ExperimentFolder) -> "Steps[Result]":
        """Sweep, choose, and train on everything."""
        trials, finals = [], []
        for run in sweep_runs(self):
            trials.append(_trial(run, (yield run)))
        chosen = choose_rate(trials).lr if trials else self.rates[0]
        for run in final_runs(self, chosen):
            finals.append(_final(run, (yield run)))
        return make_result(self, trials, chosen, finals)

    def known(self, folder: ExperimentFolder) -> "Result | None":
        """The result, where all was done before."""
        return read_result(folder.result) if folder.result.is_file() and folder.config.is_file() else None

    def finish(self, folder: ExperimentFolder, result: "Result", driver: "Driver") -> None:
        """Keep the model of the first seed, and write the result and the page of the whole."""
        first = folder.run(result.seeds[0].folder)
        keep_model(folder, first)
        write_result(folder.result, result)
        write_page(folder, result, driver.outcomes.pop(first.path, None))


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
            fix=f"Leave {setting('data.held_out')} away, or name one rate with {setting('optim.lr')}.",
        )
    if not rates:
        raise UsageError(
            "there is no learning rate", fix=f"Name one with {setting('optim.lr')}, or several with {setting('rates')}."
        )
    if config.data.held_out is None and not splits.val:
        config = replace(config, data=replace(config.data, held_out=_HELD_OUT))
    final_held_out, measure = _final_images(config.data.held_out, splits, is_sweeping=is_sweeping)
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


def _final_images(held_out: float | None, splits: Splits, *, is_sweeping: bool) -> tuple[float | None, Measure]:
    if held_out == 0:
        return 0.0, "test" if splits.test else "nothing"
    if splits.val:
        return None, "test" if splits.test else "val"
    if splits.test:
        return 0.0, "test"
    # With nothing else to measure on and no sweep that did, a model without a number is worth less than a tenth more.
    return (0.0, "sweep") if is_sweeping else (held_out, "held_out")


def sweep_runs(plan: Plan) -> list[Run]:
    """One run per rate, on held-out training images; the test split is not even opened."""
    if not plan.is_sweeping:
        return []
    data = replace(plan.config.data, test=False)
    return [
        Run(
            # repr keeps two rates apart that look alike when rounded.
            folder=f"sweep/lr-{rate!r}",
            title=f"learning rate {rate:g}",
            number=number,
            config=replace(plan.config, data=data, optim=replace(plan.config.optim, lr=rate)),
            # A rate that leads nowhere is a finding, not the end.
            forgives=(Diverged,),
            is_kept=False,
            page="brief",
        )
        for number, rate in enumerate(plan.rates, start=1)
    ]


def final_runs(plan: Plan, rate: float) -> list[Run]:
    """One run per seed with the chosen rate, on all training images."""
    config = plan.config
    data = replace(config.data, held_out=plan.final_held_out, split=plan.final_split or config.data.split)
    before = plan.runs - len(plan.seeds)
    return [
        Run(
            folder=f"seed-{seed}",
            title=f"learning rate {rate:g}, seed {seed}",
            number=number,
            config=replace(
                config,
                data=data,
                optim=replace(config.optim, lr=rate),
                train=replace(config.train, seed=seed),
            ),
            # The page of the whole looks into the network that is kept; that of each run need not.
            page="brief",
            is_shown=seed == plan.seeds[0],
        )
        for number, seed in enumerate(plan.seeds, start=before + 1)
    ]


def first_runs(plan: Plan) -> list[Run]:
    """One run of the sweep, if there is one, and one of the final ones: together they read every image there is."""
    return [*sweep_runs(plan)[:1], *final_runs(plan, plan.rates[0])[:1]]


# What it found.


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

    format: str = RESULT_FORMAT
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

    @property
    def accuracy(self) -> float | None:
        """The mean over seeds."""
        return self.mean


def choose_rate(trials: Sequence[Trial]) -> Trial:
    """The rate with the most held-out images right; of equals the one with less loss, then the smaller rate."""
    if all(trial.measured is None for trial in trials):
        raise Diverged(
            f"the loss is not finite at any of the learning rates {', '.join(f'{trial.lr:g}' for trial in trials)}",
            fix=f"Try a smaller one with {setting('optim.lr')}, and look at the images with `vitrail data check`.",
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


def _trial(run: Run, ended: Ended) -> Trial:
    return Trial(lr=run.config.optim.lr, folder=run.folder, measured=_measured(ended), seconds=ended.seconds)


def _final(run: Run, ended: Ended) -> Final:
    return Final(seed=run.config.train.seed, folder=run.folder, measured=_measured(ended), seconds=ended.seconds)


def _measured(ended: Ended) -> Measured | None:
    metrics = ended.metrics
    if metrics is not None and metrics["loss"] is None:
        # JSON has no infinity; a network whose answers are not finite is as bad as can be, and was measured.
        metrics = {**metrics, "loss": sys.float_info.max}
    return None if metrics is None else from_json(Measured, metrics, where="the log of a run")


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


# Its folder.


@dataclass(frozen=True)
class FinetuneFolder(ExperimentFolder):
    """The folder of a fine-tuning: its plan, its runs, and the model of the first seed."""

    verb: str = "finetune"


def read_finetuning(folder: FinetuneFolder) -> ExperimentRecord:
    """What was planned, and how it was asked for."""
    return read_plan(folder, Plan, "a fine-tuning")


def write_page(folder: ExperimentFolder, result: Result, outcome: "Outcome | None" = None) -> None:
    """Write the page of the whole, where the first seed has one; `outcome` is what that was measured on, if known."""
    from vitrail.reports import write_report

    first = folder.run(result.seeds[0].folder)
    if not first.report.is_file():
        return
    source, predictions = (outcome.source, outcome.predictions) if outcome else (None, None)
    write_report(first, source, predictions, summary=summary_of(folder, result))


def summary_of(folder: ExperimentFolder, result: Result) -> "Summary":
    """What the page of its first seed says of the whole."""
    from vitrail.reports import SeedResult, Summary, TriedRate

    record = read_finetuning(FinetuneFolder(folder.path))
    plan = record.plan
    return Summary(
        path=folder.path,
        command=record.command,
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


# From what was asked for to a plan, and through it.


@dataclass(frozen=True)
class Look:
    """The training images, and which splits there are beside them."""

    train: "Source"
    splits: Splits


def look_at(config: DataConfig) -> Look:
    """Open the training split, and see which others there are; no image is read."""
    from vitrail.data import OpenOptions, open_data
    from vitrail.data.sources.classes import ensure_trainable
    from vitrail.data.sources.parts import splits_of
    from vitrail.data.sources.splits import MissingSplit

    options = OpenOptions(
        root=Path(config.root) if config.root else None,
        download=config.download,
        allow_empty=config.allow_empty,
        copies=config.copies,
    )

    def is_there(split: str) -> bool:
        try:
            open_data(config.data, split, options=options)
        except MissingSplit:
            return False
        return True

    train = open_data(config.data, config.split, options=options)
    ensure_trainable(train)
    # Of "train+val" nothing is left to choose on, and what was learnt measures nothing.
    learnt = splits_of(config.split)
    return Look(
        train,
        Splits(
            val="val" not in learnt and is_there("val"),
            test=config.test and "test" not in learnt and is_there("test"),
        ),
    )


def plan_finetuning(start: "Start", given: Settings, options: Options) -> Plan:
    """Look at the data, choose the recipe, lay what was given over it, and tell what was changed."""
    from vitrail.models import tell_dropped_pixels
    from vitrail.runtime.device import find_device

    if "data.data" not in given:
        raise UsageError("there is no data", wanted=command("finetune", "SOURCE", data="DATA"))
    if "optim.lr" in given and options.rates is not None:
        raise UsageError(f"both {setting('optim.lr')} and {setting('rates')} are given", wanted="one of them")
    # With any recipe, for what does not depend on it: a typing error should not wait for the data.
    lay(folder_recipe(1000, 10, max(start.image_size)), start.checkpoint.config, given)
    preprocessing = start.preprocessing(options.preprocessing)
    name = finetuning_name(options.recipe, given["data.data"], knows_classes=start.knows_classes)
    device = find_device(options.device)
    look = look_at(data_config(given, None))
    size = options.image_size or max(start.image_size)
    chosen = with_kept_warmup(finetuning_recipe(name, look.train, size, on_cpu=device.type == "cpu"), given)
    found = resolve(
        chosen,
        _network(start, look, chosen, options.image_size),
        given,
        look.train,
        device,
        data=data_config(given, chosen.held_out),
        preprocessing=preprocessing,
        image_size=options.image_size,
        start=(start.source, start.fingerprint),
    )
    tell_dropped_pixels(found.config.model)
    for note in found.notes:
        notice(note)
    rates = options.rates if options.rates is not None else chosen.learning_rates
    seeds = options.seeds if options.seeds is not None else _SEEDS_OF_THE_PAPER if chosen.source == "Table 4" else 1
    rates = (found.config.optim.lr,) if "optim.lr" in given else rates
    return make_plan(found.config, rates=rates, seeds=seeds, splits=look.splits)


def _network(start: "Start", look: Look, chosen: Recipe, image_size: int | None) -> ModelConfig:
    sides = (image_size, image_size) if image_size else (chosen.image_size, chosen.image_size)
    own = image_size is None and chosen.name in (FOLDER, MASKED)
    return with_its_depth(start.network(look.train.classes, start.image_size if own else sides), chosen)


def refuse_other(folder: ExperimentFolder, plan: Plan, *, copies_given: bool) -> None:
    """Refuse to go on with a fine-tuning that is there when it is another one than this plan."""
    from vitrail.training.folder import differences
    from vitrail.training.start import as_begun
    from vitrail.weights.folder import sidecar

    found = read_finetuning(FinetuneFolder(folder.path)).plan
    before, kept = found.config.data, sidecar(folder.path)["plan"]["config"]["data"]
    # Where images are read from, by how many workers and how many at a time, makes no other run.
    data = replace(plan.config.data, workers=before.workers, root=before.root)
    data = as_begun(data, before, kept, copies_given=copies_given)
    train = replace(plan.config.train, micro_batch=found.config.train.micro_batch)
    known = found.config.start_fingerprint and plan.config.start_fingerprint
    wanted = replace(plan, config=replace(plan.config, data=data, train=train, start_fingerprint=known))
    if changes := differences(to_json(found), to_json(wanted)):
        raise UsageError(
            f"the fine-tuning of this name is another one: {'; '.join(changes)}",
            where=str(folder.path),
            fix=f"Give the command that began it, or choose another {setting('name')}.",
        )


def plan(ask: Ask, driver: "Driver") -> Plan:
    """Decide all runs of a fine-tuning."""
    from vitrail.experiments.start import read_start

    if not ask.subjects:
        raise UsageError(
            "there is no model to start from",
            wanted=command("finetune", "SOURCE", data="DATA"),
            fix="`vitrail list models` shows names with published weights; a file, a folder or a run works as well.",
        )
    (source,) = ask.subjects
    options = ask.options(Options)
    return driver.decided(lambda: plan_finetuning(read_start(source), ask.settings, options), Plan)


def found(path: Path) -> Result:
    """What is known in a folder; nothing is done."""
    return read_result(FinetuneFolder(path).result)


def begin(ask: Ask, driver: "Driver") -> tuple[FinetuneFolder, Result]:
    """Fine-tune, or go on with it where that was begun before."""
    from vitrail.experiments.folders import Destination, begun_by_this_launch, claimed, mark_launch
    from vitrail.training.start import Allowed

    options, processes = ask.options(Options), driver.processes
    if (before := processes.first_says(lambda: begun_by_this_launch(options.out, driver.how.asked))) is not None:
        return go_on(Path(before), driver)
    found, out = plan(ask, driver), Path(options.out).expanduser()
    there = found.at(out / str(options.name))
    if options.or_resume and processes.first_says(there.config.is_file):
        with processes.together():
            refuse_other(there, found, copies_given="data.copies" in ask.given)
        train, data = found.config.train, found.config.data
        return go_on(there.path, driver.allowing(Allowed(workers=data.workers, micro_batch=train.micro_batch)))
    # Every image of every split is read before the first step, so that no bad file is met hours later.
    wanted = [run.config.data for run in first_runs(found)]
    data = [driver.open(config) for config in wanted]
    destination = Destination(out, options.name or found.config.recipe, is_exact=bool(options.name))
    with claimed(destination, driver.sources(wanted[-1]), processes) as target:
        if processes.is_first:
            mark_launch(target.path, driver.how.asked)
        folder = found.at(target.path)
        driver.audience.planned(found, folder, data=data)
        return folder, driver.drive(found, folder)


def go_on(path: Path, driver: "Driver") -> tuple[FinetuneFolder, Result]:
    """Go on with a fine-tuning where it stopped."""
    folder = FinetuneFolder(path)
    with driver.processes.together():
        found: Plan = read_finetuning(folder).plan
    return folder, driver.drive(found, folder)


def finetune(
    source: Any = None,
    *,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    on_event: "OnEvent | None" = None,
    **options: Any,
) -> "Finished":
    """Fine-tune a model on images: rates tried on held-out images, the best on all of them, once per seed.

    `source` is whatever `load_model` takes, or a network in memory. `data` is a folder of class folders, a known name,
    a table, or arrays `(images, labels)`. The short options of the command line are keywords (rates, seeds, steps, lr,
    recipe, name, device, processes ...), any other setting goes into `settings`. `resume="runs/x"` goes on with one.

        run = vitrail.finetune("vit-ti16", data="photos", rates=(0.003, 0.01, 0.03))
        run.accuracy, run.result.std, run.model
    """
    from vitrail.experiments.calling import call

    return call("finetune", () if source is None else (source,), {"data": data, **options}, settings, on_event)
