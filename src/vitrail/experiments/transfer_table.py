"""The table of a transfer: what each fine-tuning found and cost under the paper's rows; with ReaL labels, as a page."""

import functools
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import numpy as np

from vitrail.config import ModelConfig, from_json, to_json
from vitrail.data import Source
from vitrail.data.check.words import counted, text
from vitrail.errors import DataError
from vitrail.evaluation.real import RealLabels, match_real, measure_real
from vitrail.experiments.finetune import FinetuneFolder, Measure, Plan, Result, mean_and_std, read_result
from vitrail.experiments.transfer import Pair, TransferFolder, TransferRecord, has_real
from vitrail.experiments.transfer_paper import HOW, REAL, PaperRow, network_name, paper_recipe, paper_rows, unlike_paper
from vitrail.models.cost import measure_cost
from vitrail.reports.document import Section, document, wide
from vitrail.reports.numbers import duration
from vitrail.reports.page import GENERATOR
from vitrail.reports.write import write_page
from vitrail.runtime.archives import open_npz
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text
from vitrail.training.folder import RunFolder
from vitrail.training.log import read_log

FORMAT = "vitrail-transfer-table/1"

State = Literal["done", "failed", "waiting"]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a finished fine-tuning found; accuracies are fractions."""

    mean: float | None
    std: float | None
    seeds: int
    images: int
    """How many each accuracy counted."""
    measured_on: Measure
    learning_rate: float
    real_mean: float | None
    real_std: float | None
    real_images: int
    """How many of them have ReaL labels."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What all runs of a fine-tuning cost."""

    runs: int
    seconds: float
    """Of all runs together; evaluations on the way are part of it."""
    images: int
    """Seen in training, every time counted."""
    flops: int
    """Of training: six for each multiply-add of the forward pass, as the paper counts (4.4)."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A model on a data set."""

    model: str
    data: str
    folder: str
    state: State
    found: Found | None = None
    spent: Spent | None = None
    failure: str = ""
    unlike_paper: tuple[str, ...] = ()
    """Settings that are not the paper's, a phrase each."""
    is_in_paper: bool = False


@dataclass(frozen=True, kw_only=True)
class OwnRow:
    """A model of the user's."""

    model: str
    network: str | None
    """Its name in the paper, if it has one."""
    pretraining: str


@dataclass(frozen=True, kw_only=True)
class Column:
    """A data set, by its own labels or by ReaL labels."""

    data: str
    is_real: bool = False

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.data} ReaL" if self.is_real else self.data

    @property
    def in_paper(self) -> str:
        """What the paper's rows call it, if they have it."""
        return REAL if self.is_real else self.data


@dataclass(frozen=True, kw_only=True)
class Table:
    """`table.json`."""

    format: str = FORMAT
    columns: tuple[Column, ...]
    paper: tuple[PaperRow, ...]
    rows: tuple[OwnRow, ...]
    cells: tuple[Cell, ...]
    command: str
    versions: dict[str, Any]

    def cell(self, model: str, data: str) -> Cell | None:
        """The one of a model on a data set, if it was asked for."""
        return next((cell for cell in self.cells if (cell.model, cell.data) == (model, data)), None)


def make_table(folder: TransferFolder, record: TransferRecord, failures: Mapping[str, str]) -> Table:
    """Read what the fine-tunings found; `failures` says by title which could not."""
    cells = [_cell(folder, pair, failures.get(pair.title, pair.problem)) for pair in record.pairs]
    known = {cell.data for cell in cells if cell.is_in_paper}
    counted = {pair.data for pair in record.pairs if record.real_labels is not None and has_real(pair)}
    columns = []
    for data in dict.fromkeys(pair.data for pair in record.pairs):
        columns += [Column(data=data), *([Column(data=data, is_real=True)] if data in counted else [])]
    models = {pair.model: _own_row(pair) for pair in record.pairs if pair.plan is not None}
    rows = [
        models.get(pair.model, OwnRow(model=pair.model, network=None, pretraining=pair.pretraining))
        for pair in {pair.model: pair for pair in record.pairs}.values()
    ]
    # A folder of the user's may be called cifar10, too; it has no number of the paper.
    comparable = {column.in_paper for column in columns if column.data in known}
    return Table(
        columns=tuple(columns),
        paper=tuple(paper_rows([row.network for row in rows], comparable)),
        rows=tuple(rows),
        cells=tuple(cells),
        command=record.command,
        versions=record.versions,
    )


def _own_row(pair: Pair) -> OwnRow:
    assert pair.plan is not None
    return OwnRow(model=pair.model, network=network_name(pair.plan.config.model), pretraining=pair.pretraining)


def _cell(folder: TransferFolder, pair: Pair, failure: str) -> Cell:
    place = folder.pair(pair)
    facts: dict[str, Any] = {
        "model": pair.model,
        "data": pair.data,
        "folder": str(place.path.relative_to(folder.path)),
        "unlike_paper": unlike_paper(pair.plan) if pair.plan else (),
        "is_in_paper": paper_recipe(pair.plan.config.data.data if pair.plan else pair.data) is not None,
    }
    if failure or pair.plan is None:
        return Cell(state="failed", failure=failure, **facts)
    if not place.result.is_file():
        return Cell(state="waiting", **facts)
    result = read_result(place.result)
    return Cell(state="done", found=_found(place, result), spent=_spent(place, pair.plan, result), **facts)


def _found(folder: FinetuneFolder, result: Result) -> Found:
    real = read_seeds(folder)
    return Found(
        mean=result.mean,
        std=result.std,
        seeds=len(result.seeds),
        images=result.images,
        measured_on=result.measured_on,
        learning_rate=result.chosen,
        real_mean=real.mean if real else None,
        real_std=real.std if real else None,
        real_images=real.images if real else 0,
    )


def _spent(folder: FinetuneFolder, plan: Plan, result: Result) -> Spent:
    runs = [run.folder for run in (*result.rates, *result.seeds)]
    images = sum(_steps(folder.run(run)) for run in runs) * plan.config.train.batch_size
    return Spent(
        runs=len(runs), seconds=result.seconds, images=images, flops=6 * _multiply_adds(plan.config.model) * images
    )


def _steps(run: RunFolder) -> int:
    return max((record.get("step", 0) for record in read_log(run.log)), default=0)


@functools.lru_cache
def _multiply_adds(model: ModelConfig) -> int:
    return measure_cost(model).macs


def write_table(folder: TransferFolder, table: Table) -> None:
    """Write `table.json` and `table.md`, each whole or not at all."""
    with atomic_file(folder.numbers) as temporary:
        temporary.write_text(json_text(to_json(table), indent=2) + "\n", encoding="utf-8")
    with atomic_file(folder.page) as temporary:
        temporary.write_text(_page(table), encoding="utf-8")


def paper_text(row: PaperRow, column: Column) -> str:
    """A number of the paper, or nothing."""
    score = row.score(column.in_paper)
    return "" if score is None else _percent(score.mean, score.std)


def cell_text(table: Table, model: str, column: Column) -> str:
    """What stands under a data set in the row of a model."""
    cell = table.cell(model, column.data)
    if cell is None:
        return ""
    if cell.found is None:
        return "failed" if cell.state == "failed" else "..."
    found = cell.found
    mean, std = (found.real_mean, found.real_std) if column.is_real else (found.mean, found.std)
    if mean is None:
        return "not measured"
    mark = "*" if is_held_out(cell) else ""
    return _percent(100 * mean, None if std is None else 100 * std) + mark


def is_held_out(cell: Cell) -> bool:
    """Whether its number comes from training images, because there is no test split."""
    return cell.found is not None and cell.found.measured_on in ("sweep", "held_out")


def notes(table: Table) -> list[str]:
    """What has to be known to read the table: failures first, then what differs from the paper."""
    lines = [f"failed: {cell.model} on {cell.data}: {cell.failure}" for cell in table.cells if cell.state == "failed"]
    if any(is_held_out(cell) for cell in table.cells):
        lines.append("* measured on training images that were left out, because there is no test split.")
    counts = dict.fromkeys(f"{cell.data} {cell.found.images:,}" for cell in table.cells if cell.found)
    if counts:
        lines.append(f"Images that each number counts: {', '.join(counts)}.")
    lines += [f"Not as in the paper: {line}." for line in _unlike(table)]
    if table.paper:
        lines.append(HOW)
        lines += [
            f"Pre-training of {row.model} ({row.network or 'no named network'}): {row.pretraining}."
            for row in table.rows
        ]
        if absent := [row.model for row in table.rows if row.network not in {one.network for one in table.paper}]:
            lines.append(f"The paper has no row for the network of {', '.join(absent)}.")
    own = dict.fromkeys(cell.data for cell in table.cells if not cell.is_in_paper)
    if own:
        lines.append(f"The paper has no number for {', '.join(own)}.")
    return lines


def _unlike(table: Table) -> list[str]:
    """A line for each data set; the model is named only where models differ."""
    lines = []
    for data in dict.fromkeys(cell.data for cell in table.cells):
        by_model = {cell.model: "; ".join(cell.unlike_paper) for cell in table.cells if cell.data == data}
        texts = set(by_model.values())
        if len(texts) == 1:
            lines += [f"{data}: {text}" for text in texts if text]
        else:
            lines += [f"{model} on {data}: {text}" for model, text in by_model.items() if text]
    return lines


def _percent(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}")


def _page(table: Table) -> str:
    head = ("top-1 accuracy, %", *(column.title for column in table.columns))
    rows = [(row.title, *(paper_text(row, column) for column in table.columns)) for row in table.paper]
    rows += [
        (f"**{row.model}**", *(cell_text(table, row.model, column) for column in table.columns)) for row in table.rows
    ]
    spent = [
        (
            cell.model,
            cell.data,
            f"{cell.found.learning_rate:g}",
            f"{cell.spent.runs}",
            f"{cell.spent.seconds / cell.spent.runs:,.1f}",
            f"{cell.spent.seconds:,.1f}",
            f"{cell.spent.images:,}",
            f"{cell.spent.flops:.3g}",
        )
        for cell in table.cells
        if cell.spent and cell.found
    ]
    titles = ("model", "data", "rate", "runs", "seconds per run", "seconds", "images seen", "training FLOPs")
    parts = ["# Transfer", _markdown(head, rows), "\n".join(f"- {line}" for line in notes(table))]
    if spent:
        parts += ["## Spent", _markdown(titles, spent)]
    return "\n\n".join([*parts, f"Made by `{table.command}`."]) + "\n"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

    return "\n".join([line(head), line(["---", *["---:"] * (len(head) - 1)]), *map(line, rows)])


FILE = "real-result.json"


@dataclass(frozen=True, kw_only=True)
class RealSeeds:
    """`real-result.json` of a fine-tuning."""

    labels: str
    """The file of ReaL labels."""
    digest: str
    """Of that file."""
    accuracies: tuple[float, ...]
    """One per seed."""
    mean: float
    std: float | None
    images: int
    """Those with a label, which were counted."""
    skipped: int
    """Those without."""


def measure_seeds(folder: FinetuneFolder, result: Result, source: Source, real: RealLabels) -> RealSeeds:
    """Count the answers of each final model on `source`, which it was measured on, and write the file."""
    sets = match_real(real, source)
    found = [
        measure_real(_first_guesses(folder, final.folder, len(source)), sets, source.labels.values, real)
        for final in result.seeds
    ]
    accuracies = tuple(one.top1.share for one in found)
    mean, std = mean_and_std(accuracies)
    seeds = RealSeeds(
        labels=real.path,
        digest=real.digest,
        accuracies=accuracies,
        mean=mean,
        std=std,
        images=found[0].labelled,
        skipped=found[0].skipped,
    )
    with atomic_file(folder.path / FILE) as temporary:
        temporary.write_text(json_text(to_json(seeds), indent=2) + "\n", encoding="utf-8")
    return seeds


def read_seeds(folder: FinetuneFolder) -> RealSeeds | None:
    """What was counted before; none where nothing was."""
    path = folder.path / FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read ({error})", where=str(path), fix="Delete it; it will be made again.") from None
    return from_json(RealSeeds, values, where=str(path))


def _first_guesses(folder: FinetuneFolder, run: str, images: int) -> np.ndarray:
    path = folder.run(run).path / "predictions.npz"
    try:
        with open_npz(path) as arrays:
            guesses = arrays["guesses"][:, 0]
    except (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"cannot be read ({error})", wanted="the answers of a final model", where=str(path)) from None
    if len(guesses) != images:
        raise DataError(f"there are answers for {len(guesses):,} images", wanted=f"{images:,}", where=str(path))
    return guesses


def write_all(folder: TransferFolder, table: Table) -> None:
    """Write the table and its page."""
    write_table(folder, table)
    write_page(folder.report, transfer_page(table, folder.path.resolve().name))


def transfer_page(table: Table, name: str) -> str:
    """The whole document."""
    done = sum(cell.state == "done" for cell in table.cells)
    whole = len(table.cells)
    look, words = ("fine", "finished") if done == whole else ("open", f"{done} of {whole} fine-tunings done")
    header = (
        f'<div><h1>{text(name)}</h1><p><span class="verdict {look}">{words}</span> &nbsp;'
        f"{counted(len(table.rows), 'model')} on "
        f"{counted(len({cell.data for cell in table.cells}), 'data set')}</p></div>"
    )
    remarks = "".join(f"<li>{text(line)}</li>" for line in notes(table))
    versions = ", ".join(f"{text(key)} {text(str(value))}" for key, value in table.versions.items() if value)
    sections = [
        Section("table", "Top-1 accuracy, %", "", wide("Table of accuracies", _scores(table))),
        *([Section("notes", "To read it", "", f"<ul>{remarks}</ul>")] if remarks else []),
        *([Section("spent", "What it cost", "", wide("Table of costs", spent))] if (spent := _costs(table)) else []),
        Section("again", "How to do it again", versions, f'<pre class="command">{text(table.command)}</pre>'),
    ]
    return document(text(name), header, "", sections, generator=GENERATOR)


def _scores(table: Table) -> str:
    heads = "".join(f'<th class="n">{text(column.title)}' for column in table.columns)
    paper = [
        _row(f"<i>{text(row.title)}</i>", [text(paper_text(row, column)) for column in table.columns])
        for row in table.paper
    ]
    own = [
        _row(f"<b>{text(row.model)}</b>", [_linked(table, row.model, column) for column in table.columns])
        for row in table.rows
    ]
    return f"<table><thead><tr><th>model{heads}</tr></thead><tbody>{''.join([*paper, *own])}</tbody></table>"


def _linked(table: Table, model: str, column: Column) -> str:
    """A number that leads to the page of its fine-tuning, which lies beside this one."""
    cell, shown = table.cell(model, column.data), text(cell_text(table, model, column))
    return f'<a href="{_address(cell)}">{shown}</a>' if cell is not None and cell.state == "done" else shown


def _address(cell: Cell) -> str:
    return quote(f"{cell.folder}/report.html")


def _costs(table: Table) -> str:
    rows = [
        _row(
            text(cell.model),
            [
                text(cell.data),
                f"{cell.found.learning_rate:g}",
                f"{cell.spent.runs}",
                duration(cell.spent.seconds),
                f"{cell.spent.images:,}",
                f"{cell.spent.flops:.3g}",
            ],
        )
        for cell in table.cells
        if cell.spent and cell.found
    ]
    if not rows:
        return ""
    names = ("data", "rate taken", "runs", "time", "images seen", "training FLOPs")
    heads = "".join(f'<th class="n">{name}' for name in names)
    return f"<table><thead><tr><th>model{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(name: str, cells: Sequence[str]) -> str:
    return f"<tr><td>{name}</td>{''.join(f'<td class=n>{cell}</td>' for cell in cells)}</tr>"
