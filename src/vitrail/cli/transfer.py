"""`vitrail transfer`: models fine-tuned on a list of data sets, and one table under the paper's (Tables 2 and 5)."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape

from vitrail.cli import finetune
from vitrail.cli.asking import Each, ResumeHelp, Texts, carry_out, is_help, is_resume, read_ask, show_help
from vitrail.cli.terminal import console, table
from vitrail.config import times
from vitrail.config.spelling import as_typed
from vitrail.errors import choose
from vitrail.experiments.finetune import Plan
from vitrail.experiments.transfer import EACH, Options, Transfer, short_names
from vitrail.training.folder import NamedFolder, RunFolder

if TYPE_CHECKING:
    from vitrail.errors import VitrailError
    from vitrail.experiments.experiment import Experiment, Part, Run
    from vitrail.experiments.transfer import Pair, TransferFolder
    from vitrail.experiments.transfer_table import Table
    from vitrail.training.session import Session

_HELP = """Any other option is one of `vitrail finetune` and holds for every fine-tuning: --data-root, --image-size,
--steps, --rates, --seeds, --preprocessing, --batch-size, --recipe ... NAME=VALUE holds for one data set alone:
--steps cifar10=1000 oxford-pets=500, --rates cifar10=0.003,0.01. What is not said is the recipe's (Table 4).

The same command again, or `vitrail transfer --resume FOLDER`, goes on where it stopped."""
# What is behind these may hold an equals sign of its own.
_PATHS = ("data.root", "data.few_shot", "data.few_shot_root", "preprocessing")


@dataclass(frozen=True, kw_only=True)
class Help(Options):
    __doc__ = Options.__doc__
    or_resume: Annotated[bool, tyro.conf.Suppress] = False


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail transfer MODEL [MODEL ...] --data D [D ...]`, or `vitrail transfer --resume FOLDER`."""
    if is_help(words):
        kind, about = (ResumeHelp, "") if is_resume(words) else (Help, _HELP)
        show_help(kind, "vitrail transfer MODEL [MODEL ...]", about, short={})
    carry_out(read_ask("transfer", words, EachData()), Teller)


class EachData(Each):
    """NAME=VALUE of a setting of fine-tuning is for one data set alone, and a plain value for those not named."""

    def takes(self, option: str) -> bool:
        """What a transfer has once, such as its folder, is for all."""
        return "." in option or option in EACH

    def separate(self, texts: Texts) -> tuple[Texts, Mapping[str, Texts]]:
        """What is for all, and what is for one, by its name in the table."""
        data = texts.get("data", [])
        known = short_names(data) if isinstance(data, list) else []
        plain: Texts = {}
        each: dict[str, Texts] = {}
        for option, values in texts.items():
            if isinstance(values, bool) or not self.takes(option):
                plain[option] = values
                continue
            rest = []
            for value in values:
                name, equals, own = value.partition("=")
                if not equals or (option in _PATHS and name not in known):
                    rest.append(value)
                    continue
                mine = each.setdefault(choose("data set", name, known), {}).setdefault(option, [])
                assert isinstance(mine, list)
                mine += own.split(",")
            if rest or not values:
                plain[option] = rest
        return plain, each


class Teller(finetune.Teller):
    """Tells of each fine-tuning, and of the table as it fills."""

    def planned(self, experiment: "Experiment", folder: NamedFolder, **facts: Any) -> None:
        """What will be done."""
        if isinstance(experiment, Transfer):
            say_pairs(experiment.pairs, folder)

    def begins(self, experiment: "Experiment", run: "Run", session: "Session", folder: RunFolder, number: int) -> None:
        """Which run begins; the time of a fine-tuning is told with its first."""
        assert isinstance(experiment, Plan)
        super().begins(experiment, run, session, folder, self._count(experiment))

    def __init__(self) -> None:
        self._seen: Plan | None = None
        self._runs = 0

    def _count(self, plan: Plan) -> int:
        self._runs = self._runs + 1 if plan is self._seen else 1
        self._seen = plan
        return self._runs

    def part(self, experiment: "Experiment", part: "Part", *, is_done: bool) -> None:
        """Which fine-tuning begins, or was done before."""
        if is_done:
            console().print(f"{part.place}: {escape(part.title)}: done before")
        else:
            console().print(f"\n[bold]{part.place}: {escape(part.title)}[/]")

    def failed(self, experiment: "Experiment", part: "Part | Run", error: "VitrailError") -> None:
        """Why a pair has no number; the others go on."""
        if isinstance(experiment, Transfer):
            print(f"failed: {part.title}: {as_typed(error)}", file=sys.stderr)

    def tell(self, experiment: "Experiment", fact: Any, **about: Any) -> None:
        """The table."""
        say_table(fact, is_last=about["is_last"])
        if about["is_last"]:
            say_table_files(about["folder"])

    def result(self, experiment: "Experiment", result: Any, folder: NamedFolder) -> None:
        """What came of a fine-tuning; the table was told."""
        if isinstance(experiment, Plan):
            super().result(experiment, result, folder)


AUDIENCE = Teller

_GAP = 3
_UNITS = ((1e18, "exa"), (1e15, "peta"), (1e12, "tera"), (1e9, "giga"), (1e6, "mega"))


def say_pairs(pairs: Sequence["Pair"], folder: NamedFolder) -> None:
    """What will be done."""
    shown = table("model", "data", "recipe", "px", "steps", "rates", "seeds", numbers=("px", "steps", "rates", "seeds"))
    for pair in pairs:
        if pair.plan is None:
            shown.add_row(escape(pair.model), escape(pair.data), "left out")
            continue
        config = pair.plan.config
        shown.add_row(
            escape(pair.model),
            escape(pair.data),
            escape(config.recipe),
            times(config.model.image_size),
            f"{config.train.steps:,}" if config.train.steps else f"{config.train.epochs:,} epochs",
            str(len(pair.plan.rates)),
            str(len(pair.plan.seeds)),
        )
    console().print(shown)
    console().print(f"writes {escape(str(folder.path))}")


def say_table(found: "Table", *, is_last: bool) -> None:
    """The paper's rows, our rows; at the end also what they have to be read with, and what they cost."""
    from vitrail.experiments.transfer_table import cell_text, notes, paper_text

    paper = [(row.title, [paper_text(row, column) for column in found.columns]) for row in found.paper]
    ours = [(row.model, [cell_text(found, row.model, column) for column in found.columns]) for row in found.rows]
    first = max(len(name) for name, _ in (*paper, *ours))
    widths = [
        max(len(found.columns[place].title), *(len(values[place]) for _, values in (*paper, *ours))) + _GAP
        for place in range(len(found.columns))
    ]
    for places in _fitting(widths, console().width - first):
        names = [escape(found.columns[place].title) for place in places]
        shown = table("top-1, %", *names, numbers=tuple(names))
        for name, values in paper:
            shown.add_row(escape(name), *(values[place] for place in places))
        if paper:
            shown.add_section()
        for name, values in ours:
            shown.add_row(f"[bold]{escape(name)}[/]", *(values[place] for place in places))
        console().print(shown)
    if is_last:
        for line in notes(found):
            out = console()
            # A file or a pipe gets one line for each.
            out.print(escape(line), soft_wrap=not out.is_terminal)
        _say_spent(found)


def _fitting(widths: Sequence[int], room: int) -> list[list[int]]:
    """The columns, in as many tables as it takes for none to be cut."""
    groups: list[list[int]] = []
    left = 0
    for place, width in enumerate(widths):
        if not groups or width > left:
            groups.append([])
            left = room
        groups[-1].append(place)
        left -= width
    return groups


def _say_spent(found: "Table") -> None:
    numbers = ("rate", "runs", "s/run", "seconds", "images seen", "FLOPs")
    shown = table("spent on", *numbers, numbers=numbers)
    for cell in found.cells:
        if cell.spent is None or cell.found is None:
            continue
        shown.add_row(
            escape(f"{cell.model} on {cell.data}"),
            f"{cell.found.learning_rate:g}",
            str(cell.spent.runs),
            f"{cell.spent.seconds / cell.spent.runs:,.1f}",
            f"{cell.spent.seconds:,.1f}",
            f"{cell.spent.images:,}",
            _flops(cell.spent.flops),
        )
    spent = [cell.spent for cell in found.cells if cell.spent is not None]
    if len(spent) > 1:
        seconds, images = sum(one.seconds for one in spent), sum(one.images for one in spent)
        flops, runs = sum(one.flops for one in spent), sum(one.runs for one in spent)
        shown.add_section()
        shown.add_row("all", "", str(runs), "", f"{seconds:,.1f}", f"{images:,}", _flops(flops))
    if spent:
        console().print(shown)


def _flops(count: int) -> str:
    scale, unit = next((pair for pair in _UNITS if count >= pair[0]), _UNITS[-1])
    return f"{count / scale:,.3g} {unit}"


def say_table_files(folder: "TransferFolder") -> None:
    """What was written."""
    console().print(
        f"{escape(str(folder.report))}  the page of this transfer: open it\n"
        f"{escape(str(folder.page))}  this table\n"
        f"{escape(str(folder.numbers))}  every number\n"
        f"{escape(str(folder.path))}/MODEL/DATA  each fine-tuning, with its model and its page"
    )
