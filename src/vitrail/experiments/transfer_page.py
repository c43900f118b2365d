"""The page of a transfer: its table under the paper's, what it cost, and a way to each fine-tuning."""

from collections.abc import Sequence
from urllib.parse import quote

from vitrail.data.check.words import counted, text
from vitrail.experiments.transfer_table import Cell, Column, Table, cell_text, notes, paper_text
from vitrail.reports.document import Section, document, wide
from vitrail.reports.numbers import duration
from vitrail.reports.page import GENERATOR


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
        *([Section("spent", "What it cost", "", wide("Table of costs", spent))] if (spent := _spent(table)) else []),
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


def _spent(table: Table) -> str:
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
