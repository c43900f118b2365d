"""What `vitrail vtab` says: the tasks and the files they want, each task as it begins, and the table."""

from pathlib import Path
from typing import TYPE_CHECKING

from vitrail.cli.terminal import console, is_narrow, printable, table

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from vitrail.experiments.vtab_folder import VtabFolder
    from vitrail.experiments.vtab_table import Block, Table


def say_tasks(missing: dict[str, list[str]], root: Path) -> None:
    """All 19, and below them what is not here."""
    from vitrail.data.vtab.tasks import TASKS

    narrow = is_narrow()
    numbers = ("classes", "images") if narrow else ("classes", "train", "val", "test")
    shown = table("task", "group", *numbers, "data", *(() if narrow else ("label", "from")), numbers=numbers)
    for task in TASKS.values():
        counts = (sum(task.images),) if narrow else task.images
        shown.add_row(
            f"[bold]{task.name}[/]",
            task.group,
            *(f"{count:,}" for count in (task.classes, *counts)),
            "wanted" if missing[task.name] else "here",
            *(() if narrow else (task.rule, task.origin)),
        )
    out = console()
    out.print(shown)
    out.print(
        "Of the images to learn from 800 are used, of those to choose on 200, and all to test on. "
        "`--data vtab:TASK` opens a task in any command.",
        soft_wrap=True,
    )
    _say_files(missing, root)


def say_absent(absent: dict[str, list[str]], asked: int) -> None:
    """What cannot be measured, before anything is trained."""
    if not absent:
        return
    out = console()
    out.print(f"[bold]{len(absent)} of {asked} tasks have no data here.[/] Wanted:", soft_wrap=True)
    for name, files in absent.items():
        _say_wanted(name, files)


def _say_files(missing: dict[str, list[str]], root: Path) -> None:
    absent = {name: files for name, files in missing.items() if files}
    out = console()
    if not absent:
        out.print(f"All {len(missing)} are here, below {printable(str(root))}.", markup=False, soft_wrap=True)
        return
    out.print(f"\n{len(absent)} are not here. Wanted, a star for many files:", markup=False, soft_wrap=True)
    for name, files in absent.items():
        _say_wanted(name, files)
    out.print(
        f"Or, for any of them, class folders in train/, val/ and test/ as {root / 'vtab'}/TASK, or TASK.csv beside it; "
        "--data-root says where to look.",
        markup=False,
        soft_wrap=True,
    )


def _say_wanted(name: str, files: list[str]) -> None:
    from vitrail.data.vtab.tasks import TASKS

    out = console()
    fetched = " (--download fetches it)" if TASKS[name].can_download else ""
    out.print(f"{name}, from {TASKS[name].origin}{fetched}:", markup=False, soft_wrap=True)
    for file in files:
        out.print(f"  {file}", markup=False, soft_wrap=True)


def say_task(text: str, number: int, tasks: int, *, is_absent: bool) -> None:
    """Which task begins."""
    if not is_absent:
        console().print(f"\ntask {number} of {tasks}: {printable(text)}", markup=False, soft_wrap=True)


def say_table(found: "Table", folder: "VtabFolder") -> None:
    """The table in the blocks of its groups, the lines of each task, and what to know of them."""
    from vitrail.experiments.vtab_table import DETAILS, blocks, details, remarks

    out = console()
    out.print("\n[bold]VTAB-1k[/], top-1 accuracy in percent (Table 9 of the paper, and this model)")
    for block in blocks(found):
        out.print(_upright(block) if is_narrow() else _wide(block))
    if found.scores:
        shown = table(*DETAILS, numbers=DETAILS[1:6])
        for row in details(found):
            shown.add_row(*row)
        out.print(shown)
    for line in remarks(found):
        out.print(line, markup=False, soft_wrap=True)
    out.print(f"{folder.table}  this table; table.json beside it for programs", markup=False, soft_wrap=True)
    out.print(f"{folder.report}  the page of this VTAB: open it", markup=False, soft_wrap=True)


def _wide(block: "Block") -> "RichTable":
    """A row for each model, as the paper has it."""
    shown = table(block.title, *block.columns, numbers=block.columns)
    for row in block.rows:
        shown.add_row(*(printable(cell) for cell in row))
    return shown


def _upright(block: "Block") -> "RichTable":
    """A column for each model, where there is no room for all tasks beside each other."""
    models = tuple(printable(row[0]).replace("ViT-", "") for row in block.rows)
    shown = table(block.title, *models, numbers=models)
    for place, column in enumerate(block.columns, start=1):
        shown.add_row(column, *(row[place] for row in block.rows))
    return shown
