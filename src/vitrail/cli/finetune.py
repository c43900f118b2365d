"""`vitrail finetune`: any model to your images, by the paper's protocol or by a rule for folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from vitrail.cli.asking import (
    Model,
    ResumeHelp,
    Settable,
    carry_out,
    is_help,
    is_resume,
    read_ask,
    settable,
    show_help,
)
from vitrail.cli.terminal import console, short_count, table
from vitrail.cli.training import Terminal, say_next, tell_many_patches
from vitrail.config import times
from vitrail.data.sources.files import user_path
from vitrail.experiments.finetune import FinetuneFolder, Options, Plan, Result
from vitrail.experiments.kinds import known_data, started_from
from vitrail.recipes import folder_recipe
from vitrail.training.folder import NamedFolder, RunFolder
from vitrail.zoo import zoo_row

if TYPE_CHECKING:
    from vitrail.errors import VitrailError
    from vitrail.experiments.experiment import Experiment, Part, Run
    from vitrail.training.session import Session
    from vitrail.training.sources import RunData


@dataclass(frozen=True, kw_only=True)
class Help(Options, Settable[Model]):
    __doc__ = Options.__doc__


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail finetune SOURCE --data D ...`, or `vitrail finetune --resume FOLDER`."""
    if is_help(words):
        _help(words)
    carry_out(read_ask("finetune", words), Teller)


class Teller(Terminal):
    """Tells of the runs of a fine-tuning, one after the other."""

    def planned(self, experiment: "Experiment", folder: NamedFolder, **facts: Any) -> None:
        """What will happen, on what."""
        assert isinstance(experiment, Plan)
        say_recipe(experiment, facts["data"], folder)

    def begins(self, experiment: "Experiment", run: "Run", session: "Session", folder: RunFolder, number: int) -> None:
        """Which run begins."""
        assert isinstance(experiment, Plan)
        say_run(experiment, run, session, is_first=number == 1)

    def failed(self, experiment: "Experiment", part: "Part | Run", error: "VitrailError") -> None:
        """A rate that leads nowhere is in the table."""

    def result(self, experiment: "Experiment", result: Any, folder: NamedFolder) -> None:
        """What came of the whole, what was written, and what to type next."""
        assert isinstance(experiment, Plan)
        say_result(experiment, result)
        if isinstance(folder, FinetuneFolder) and not folder.whole:
            say_files(experiment, result, folder)


AUDIENCE = Teller


def _help(words: Sequence[str]) -> None:
    if is_resume(words):
        show_help(ResumeHelp, "vitrail finetune", "", short={})
    chosen, network = folder_recipe(1000, 10, 224), zoo_row("vit-b16").config
    kind: Any = Help
    default = kind(**settable(chosen, network, held_out=chosen.held_out), rates=chosen.learning_rates, seeds=1)
    about = "`vitrail finetune --resume FOLDER` goes on with one, and with --help behind it lists what may then differ."
    show_help(kind[type(network)], "vitrail finetune SOURCE", about, default)


def say_recipe(plan: Plan, data: Sequence["RunData"], folder: NamedFolder) -> None:
    """What will happen, on what; `data` is that of the sweep, if there is one, and that of the final runs."""
    config, final = plan.config, data[-1]
    optim, train = config.optim, config.train
    length = f"{train.steps:,} steps" if train.steps else f"{train.epochs:,} epochs"
    if train.time_limit is not None:
        length += f", but no more than {_time(60 * train.time_limit)},"
    lines = [
        f"[bold]{escape(config.recipe)}[/] on [bold]{escape(config.data.data)}[/]: "
        f"{len(final.train):,} images to learn from, {len(final.train.classes):,} classes",
        *map(escape, data[0].copies),
        f"from {escape(str(config.start))}, at {times(config.model.image_size)} px",
        f"{optim.optimizer}, batch {train.batch_size}, {length} in each of {plan.runs} runs",
    ]
    if plan.is_sweeping:
        held_out = data[0].held_out
        assert held_out is not None
        rates = ", ".join(f"{rate:g}" for rate in plan.rates)
        lines.append(f"{len(plan.rates)} runs try the learning rates {rates} on {len(held_out):,} held-out images")
    rate = "the best rate" if plan.is_sweeping else f"learning rate {plan.rates[0]:g}"
    final_runs = f"{len(plan.seeds)} final run{'s' if len(plan.seeds) > 1 else ''}"
    lines.append(f"{final_runs} with {rate}; {_measured_where(plan, final)}")
    console().print("\n".join([*lines, f"writes {escape(str(folder.path))}"]))


def _measured_where(plan: Plan, final: "RunData") -> str:
    match plan.measure:
        case "test" if final.test is not None:
            return f"measured once on {len(final.test):,} test images"
        case "val" | "held_out" if final.held_out is not None:
            return f"measured on {len(final.held_out):,} images ({escape(final.held_out.split)})"
        case "sweep":
            return "there is no test split, so the number will be that of the sweep"
    return "nothing is held out and there is no test split, so nothing will be measured"


def say_run(plan: Plan, run: "Run", session: "Session", *, is_first: bool) -> None:
    """Which run begins; with the first of this process, about how long all that are left will take."""
    from vitrail.training.estimate import seconds_left
    from vitrail.training.start import device_name

    out, progress = console(), session.progress
    if is_first:
        tell_many_patches(session.config.model)
        left = seconds_left(session)
        whole = (left or 0) * progress.steps / max(progress.steps - progress.step, 1)
        together = (
            "" if left is None else f"; about {_time(left + (plan.runs - run.number) * whole)} for all runs together"
        )
        parameters = sum(parameter.numel() for parameter in session.model.parameters())
        train = session.config.train
        out.print(
            f"{short_count(parameters)} parameters on {device_name(session.device, session.model)}, {train.precision}"
            f"{', compiled' if train.compile else ''}{together}"
        )
    going_on = f", going on after step {progress.step:,}" if progress.step else ""
    out.print(f"\n[bold]run {run.number} of {plan.runs}[/]: {run.title}{going_on}")


def say_result(plan: Plan, result: Result) -> None:
    """The rates that were tried, and how good it is, with what was counted."""
    out = console()
    if result.rates:
        shown = table("learning rate", "held-out accuracy", "loss", "images", numbers=("held-out accuracy", "loss"))
        for trial in result.rates:
            taken = "  taken" if trial.lr == result.chosen else ""
            found = trial.measured
            values = (f"{found.accuracy:.2%}", f"{found.loss:.4f}", f"{found.images:,}") if found else ("diverged",)
            shown.add_row(f"{trial.lr:g}{taken}", *values)
        out.print(shown)
    out.print(_verdict(plan, result))


def say_files(plan: Plan, result: Result, folder: FinetuneFolder) -> None:
    """What was written, and what to type next."""
    console().print(
        f"{escape(str(folder.model))}  the model of seed {result.seeds[0].seed}\n"
        f"{escape(str(folder.report))}  the page of all runs: open it\n"
        f"{escape(str(folder.result))}  every number"
    )
    is_measured = result.measured_on in ("test", "val", "held_out")
    say_next(RunFolder(folder.path), plan.config.model, data=plan.config.data if is_measured else None)


def _verdict(plan: Plan, result: Result) -> str:
    if result.mean is None:
        return "Nothing was held out and there is no test split, so nothing was measured."
    spread = "" if result.std is None else f" ± {100 * result.std:.2f}"
    seeds = f", mean of {len(result.seeds)} seeds" if result.std is not None else ""
    number = f"accuracy {100 * result.mean:.2f}{spread} %[/] ({result.images:,} images{seeds})"
    match result.measured_on:
        case "test":
            return f"[bold]test {number}"
        case "val":
            caution = "; the rate was chosen on the same images, so it is a little too good" * plan.chooses_on_val
            return f"[bold]val {number}{caution}"
        case "held_out":
            start = plan.config.start
            if start is not None and plan.config.data.data in _learnt_from(user_path(start)):
                return (
                    f"[bold]held-out {number}; this fine-tuning did not learn from these images, but what it started "
                    "from learnt from this data, maybe from some of them"
                )
            return f"[bold]held-out {number}; these images were not learnt from"
    return (
        f"[bold]held-out {number}: there is no test split, so this is what the sweep measured on training images it "
        "left out. The model itself has learnt from all of them."
    )


def _learnt_from(start: Path) -> set[str]:
    """The data of a network to start from, and of all that it started from itself."""
    return {name for folder in (start, *started_from(start)) for name, _ in known_data(folder)}


def _time(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}" if seconds < 10 * size else f"{seconds / size:,.0f} {unit}"
    return f"{max(round(seconds), 1)} seconds"
