"""`vitrail vtab`: the 19 tasks of VTAB-1k, each an ordinary fine-tuning, and the table of D.10."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vitrail.cli import transfer
from vitrail.cli.asking import ResumeAloneHelp, carry_out, is_help, is_resume, read_ask, show_help
from vitrail.cli.terminal import console, is_narrow, print_json, printable, table
from vitrail.config.spelling import as_typed
from vitrail.config.training import Parallel
from vitrail.experiments.vtab import Options, Vtab
from vitrail.training.folder import NamedFolder

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from vitrail.errors import VitrailError
    from vitrail.experiments.experiment import Experiment, Part, Run
    from vitrail.experiments.vtab_folder import VtabFolder
    from vitrail.experiments.vtab_table import Block, Table

_HELP = """Every option of `vitrail finetune` works as well, such as --preprocessing, --image-size, --steps,
--batch-size, --lr, --rates and --seeds. --data-root says where the data is; else $VITRAIL_DATA, else the cache.
`vitrail vtab --resume FOLDER` goes on with one."""


@dataclass(frozen=True, kw_only=True)
class Help(Options):
    __doc__ = Options.__doc__
    recipe: Annotated[str | None, tyro.conf.Suppress] = None
    processes: Annotated[int | None, tyro.conf.Suppress] = None
    parallel: Annotated[Parallel, tyro.conf.Suppress] = "auto"
    or_resume: Annotated[bool, tyro.conf.Suppress] = False


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Show the 19 tasks: what they are, whether their data is here, and which files are wanted where."""

    root: Path | None = None
    """Where the data is (--data-root); else $VITRAIL_DATA, else the cache."""
    json: bool = False
    """Print JSON for programs instead of a table."""


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail vtab list`, `vitrail vtab MODEL ...` or `vitrail vtab --resume FOLDER`."""
    if words and words[0] == "list":
        typed = [word.replace("--data-root", "--root") for word in words[1:]]
        _list(tyro.cli(Listing, args=typed, prog="vitrail vtab list"))
        return
    if is_help(words):
        kind, about = (ResumeAloneHelp, "") if is_resume(words) else (Help, _HELP)
        show_help(kind, "vitrail vtab MODEL", about, short={})
    carry_out(read_ask("vtab", words), Teller)


def _list(options: Listing) -> None:
    from vitrail.config import to_json
    from vitrail.data.vtab.open import data_root, missing_files
    from vitrail.data.vtab.tasks import TASKS

    root = data_root(options.root)
    missing = {task.name: missing_files(task, root) for task in TASKS.values()}
    if options.json:
        print_json([{**to_json(task), "missing": missing[task.name]} for task in TASKS.values()])
    else:
        say_tasks(missing, root)


class Teller(transfer.Teller):
    """Tells of each task, and of the table in the end."""

    def __init__(self) -> None:
        super().__init__()
        self._absent: dict[str, list[str]] = {}

    def planned(self, experiment: "Experiment", folder: NamedFolder, **facts: Any) -> None:
        """What cannot be measured, before anything is trained."""
        if isinstance(experiment, Vtab):
            self._absent = facts["absent"]
            say_absent(self._absent, len(experiment.tasks))

    def part(self, experiment: "Experiment", part: "Part", *, is_done: bool) -> None:
        """Which task begins."""
        if part.place and part.title not in self._absent:
            console().print(f"\ntask {part.place}: {printable(part.title)}", markup=False, soft_wrap=True)

    def failed(self, experiment: "Experiment", part: "Part | Run", error: "VitrailError") -> None:
        """Why a task has no number; that data is absent was told before."""
        name = part.title.partition("=")[0]
        if isinstance(experiment, Vtab) and name not in self._absent:
            console().print(f"{name} failed: {as_typed(error)}", markup=False, soft_wrap=True)

    def tell(self, experiment: "Experiment", fact: Any, **about: Any) -> None:
        """The table."""
        say_table(fact, about["folder"])


AUDIENCE = Teller


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
