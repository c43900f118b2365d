"""The page of a VTAB: the table of D.10 in its three groups, each task, and why some have no number."""

from collections.abc import Sequence
from urllib.parse import quote

from vitrail.data.check.words import text
from vitrail.data.vtab.tasks import TASKS
from vitrail.experiments.vtab_table import DETAILS, Table, blocks, details, remarks
from vitrail.reports.document import Section, document, wide
from vitrail.reports.page import GENERATOR


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
