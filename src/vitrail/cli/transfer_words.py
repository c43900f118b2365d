"""What `vitrail transfer` says: the plan before, each pair as it begins, one table of all, and what it cost."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from vitrail.cli.terminal import console, table
from vitrail.config import times

if TYPE_CHECKING:
    from vitrail.experiments.transfer_pairs import Pair, TransferFolder
    from vitrail.experiments.transfer_table import Table

_GAP = 3
_UNITS = ((1e18, "exa"), (1e15, "peta"), (1e12, "tera"), (1e9, "giga"), (1e6, "mega"))


def say_pairs(pairs: Sequence["Pair"], folder: "TransferFolder") -> None:
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


def say_pair(pair: "Pair", place: str, *, is_done: bool) -> None:
    """Which fine-tuning begins, or was done before."""
    if is_done:
        console().print(f"{place}: {escape(pair.title)}: done before")
    else:
        console().print(f"\n[bold]{place}: {escape(pair.title)}[/]")


def say_failure(pair: "Pair", failure: str) -> None:
    """Why a pair has no number; the others go on."""
    print(f"failed: {pair.title}: {failure}", file=sys.stderr)


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
