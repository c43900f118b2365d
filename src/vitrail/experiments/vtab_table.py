"""The table of VTAB-1k as D.10 has it: a row per model, a column per task, means of what is complete; and a page."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from vitrail.config import to_json
from vitrail.data.check.words import text
from vitrail.data.vtab.tasks import GROUPS, TASKS, Group
from vitrail.reports.document import Section, document, wide
from vitrail.reports.page import GENERATOR

FORMAT = "vitrail-vtab-table/1"

_ORDER = tuple(TASKS)


@dataclass(frozen=True)
class PaperRow:
    """A row of Table 9, top-1 accuracy in percent in the order of the tasks."""

    name: str
    values: tuple[float, ...]
    mean: float
    groups: tuple[float | None, ...] = (None, None, None)
    """Means of the groups, where they are printed."""


PAPER = (
    PaperRow(
        "ViT-H/14 (JFT)",
        (
            *(95.3, 85.5, 75.2, 99.7, 97.2, 65.0, 88.9, 83.3, 96.7, 91.4, 76.6),
            *(91.7, 63.8, 53.1, 79.4, 63.3, 84.5, 33.2, 51.2),
        ),
        77.6,
        (86.7, 87.0, 65.0),
    ),
    PaperRow(
        "ViT-L/16 (JFT)",
        (
            *(95.4, 81.9, 74.3, 99.7, 96.7, 63.5, 87.4, 83.6, 96.5, 89.7, 77.1),
            *(86.4, 63.1, 49.7, 74.5, 60.5, 82.2, 36.2, 51.1),
        ),
        76.3,
    ),
    PaperRow(
        "ViT-L/16 (I21k)",
        (
            *(90.8, 84.1, 74.1, 99.3, 92.7, 61.0, 80.9, 82.5, 95.6, 85.2, 75.3),
            *(70.3, 56.1, 41.9, 74.7, 64.9, 79.9, 30.5, 41.7),
        ),
        72.7,
    ),
)


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """What was found for one task."""

    task: str
    accuracy: float
    """A share: the mean over seeds."""
    std: float | None
    images: int
    """Test images that each accuracy counted."""
    whole: int
    """Test images that VTAB has."""
    train: int
    """Images to learn from, of 800."""
    val: int
    """Images to choose on, of 200."""
    seeds: int
    lr: float
    steps: int | None
    split: str
    """"own split", or the list that it is by."""
    sha256: str
    """Of the split."""
    folder: str
    seconds: float
    less: tuple[str, ...]
    """What was not as in the paper: settings, and images that were not there."""

    @property
    def is_whole(self) -> bool:
        """Whether all test images of VTAB were counted, and no others."""
        return self.images == self.whole


@dataclass(frozen=True, kw_only=True)
class Table:
    """Everything that is known so far."""

    model: str
    scores: dict[str, TaskScore]
    missing: dict[str, str]
    """Why a task has no number."""

    def group_mean(self, group: Group) -> float | None:
        """The mean of a group of which every task is there, with all of its test images."""
        return self._mean([task.name for task in TASKS.values() if task.group == group])

    @property
    def mean(self) -> float | None:
        """The mean of all 19, and of no fewer, each with all of its test images."""
        return self._mean(list(TASKS))

    @property
    def less(self) -> list[str]:
        """What was not as in the paper, of all tasks."""
        return list(dict.fromkeys(sentence for score in self.scores.values() for sentence in score.less))

    def _mean(self, names: Sequence[str]) -> float | None:
        if not all(name in self.scores and self.scores[name].is_whole for name in names):
            return None
        return statistics.fmean(self.scores[name].accuracy for name in names)


@dataclass(frozen=True)
class Block:
    """The columns of one group."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def blocks(table: Table) -> list[Block]:
    """The table in three blocks, one for each group; the last ends with the mean of all."""
    made = []
    for place, group in enumerate(GROUPS):
        names = [task.name for task in TASKS.values() if task.group == group]
        is_last = place == len(GROUPS) - 1
        rows = []
        for row in PAPER:
            values = [row.values[_ORDER.index(name)] for name in names]
            numbers = [*values, row.groups[place], *([row.mean] if is_last else [])]
            rows.append((row.name, *map(_percent, numbers)))
        ours = [table.scores[name].accuracy if name in table.scores else None for name in names]
        numbers = [*ours, table.group_mean(group), *([table.mean] if is_last else [])]
        rows.append((table.model, *(_percent(None if value is None else 100 * value) for value in numbers)))
        ends = ("mean of group", *(("mean of 19",) if is_last else ()))
        made.append(Block(group, (*(TASKS[name].column for name in names), *ends), tuple(rows)))
    return made


def details(table: Table) -> list[tuple[str, ...]]:
    """A line for each task that has a number: accuracy, what was counted, the setting, the split."""
    return [
        (
            name,
            f"{100 * score.accuracy:.2f}" + ("" if score.std is None else f" ± {100 * score.std:.2f}"),
            f"{score.images:,}" + ("" if score.is_whole else f" of {score.whole:,}"),
            str(score.seeds),
            f"{score.lr:g}",
            "" if score.steps is None else f"{score.steps:,}",
            f"{score.split}, {score.sha256[:12]}",
        )
        for name in TASKS
        if (score := table.scores.get(name)) is not None
    ]


DETAILS = ("task", "accuracy", "test images", "runs", "rate", "steps", "split")


def remarks(table: Table) -> list[str]:
    """What a reader of the numbers has to know."""
    found = len(table.scores)
    lines = []
    if table.less:
        lines.append(f"Not as in the paper: {'; '.join(table.less)}.")
    if any(score.split == "own split" for score in table.scores.values()):
        lines.append("Own splits: not the 1,000 images of VTAB's authors, so the paper's numbers are near, not equal.")
    if found < len(TASKS):
        lines.append(f"{found} of {len(TASKS)} tasks are there, so there is no mean of all.")
    if parts := [name for name, score in table.scores.items() if not score.is_whole]:
        lines.append(f"Not measured on all test images of VTAB, so that no mean counts them: {', '.join(parts)}.")
    return lines


def as_markdown(table: Table) -> str:
    """The table for people, as a file."""
    parts = ["# VTAB-1k, top-1 accuracy in percent\n"]
    parts += [f"## {block.title}\n\n{_markdown(('model', *block.columns), block.rows)}" for block in blocks(table)]
    if table.scores:
        parts.append(f"## Each task\n\n{_markdown(DETAILS, details(table))}")
    if lines := remarks(table):
        parts.append("\n\n".join(lines) + "\n")
    if table.missing:
        lines = [f"- {name}: {reason}" for name, reason in table.missing.items()]
        parts.append("## Without a number\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def as_json(table: Table) -> dict[str, Any]:
    """The table for programs; shares, not percent, but for the paper's."""
    return {
        "format": FORMAT,
        "model": table.model,
        "tasks": {name: to_json(score) for name, score in table.scores.items()},
        "groups": {group: table.group_mean(group) for group in GROUPS},
        "mean": table.mean,
        "missing": table.missing,
        "less_than_the_paper": table.less,
        "paper_percent": {
            row.name: {"tasks": dict(zip(_ORDER, row.values, strict=True)), "mean": row.mean} for row in PAPER
        },
    }


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (heads, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]]) + "\n"


def vtab_page(table: Table, command: str) -> str:
    """The whole document."""
    found, whole = len(table.scores), len(TASKS)
    look, words = ("fine", "finished") if found == whole else ("open", f"{found} of {whole} tasks")
    header = (
        f'<div><h1>{text(table.model)} <span class="on">on</span> VTAB-1k</h1>'
        f'<p><span class="verdict {look}">{words}</span> &nbsp;top-1 accuracy in percent</p></div>'
    )
    score = ""
    if table.mean is not None:
        score = (
            f'<section class="hero"><div class="score"><b>{100 * table.mean:.1f}<small>%</small></b>'
            "<p>mean accuracy of the 19 tasks</p></div></section>"
        )
    sections = [
        Section(
            f"group-{place}",
            text(block.title),
            "",
            wide(f"Table of {text(block.title)}", _table(("model", *block.columns), block.rows)),
        )
        for place, block in enumerate(blocks(table))
    ]
    if table.scores:
        rows = [
            (f'<a href="{quote(table.scores[row[0]].folder)}/report.html">{text(row[0])}</a>', *map(text, row[1:]))
            for row in details(table)
        ]
        sections.append(
            Section("tasks", "Each task", "", wide("Table of tasks", _table(DETAILS, rows, is_markup=True)))
        )
    if lines := remarks(table):
        sections.append(
            Section("notes", "To read it", "", f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>")
        )
    if table.missing:
        items = "".join(f"<li><b>{text(name)}</b>: {text(reason)}</li>" for name, reason in table.missing.items())
        sections.append(Section("missing", "Without a number", "", f"<ul>{items}</ul>"))
    sections.append(Section("again", "How to do it again", "", f'<pre class="command">{text(command)}</pre>'))
    return document(f"{text(table.model)} on VTAB-1k", header, score, sections, generator=GENERATOR)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, is_markup: bool = False) -> str:
    first, *others = heads
    head = f"<th>{text(first)}" + "".join(f'<th class="n">{text(name)}' for name in others)
    shown = [[cell if is_markup else text(cell) for cell in row] for row in rows]
    body = "".join(
        f"<tr><td>{row[0]}</td>{''.join(f'<td class=n>{cell}</td>' for cell in row[1:])}</tr>" for row in shown
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
