"""`vitrail vtab`: the 19 tasks of VTAB-1k, each an ordinary fine-tuning, and the table of D.10."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from vitrail.cli.finetuning import carry_out, plan_finetuning, told_once
from vitrail.cli.terminal import console, print_json
from vitrail.cli.trackers import ensure_tracker
from vitrail.cli.training import Track, located
from vitrail.cli.vtab_words import say_absent, say_table, say_task, say_tasks
from vitrail.cli.words import ensure_plain_name, is_given, is_resume, positional, with_short_names
from vitrail.errors import DataError, DiskError, Notice, UsageError, VitrailError

if TYPE_CHECKING:
    import torch

    from vitrail.experiments.finetune_folder import FinetuneFolder
    from vitrail.experiments.finetune_plan import Plan
    from vitrail.experiments.finetune_result import Result
    from vitrail.experiments.finetune_start import Start
    from vitrail.experiments.vtab_folder import VtabFolder, VtabRecord
    from vitrail.experiments.vtab_table import TaskScore
    from vitrail.training.spreading import Placement

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]

# What VTAB says itself, or what is said in another way here.
_NOT_HERE = {
    "--data": "--tasks says which; --sources says where from",
    "--split": "VTAB-1k says which images are learnt from",
    "--held-out": "VTAB-1k says which images are chosen on",
    "--recipe": "--setting says which",
    "--test": "every task is measured on its test images",
    "--no-test": "every task is measured on its test images",
    "--or-resume": "the same command goes on anyway",
    "--processes": "a VTAB runs in one process; start several with other --tasks and the same --name",
    "--parallel": "a VTAB runs in one process",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Fine-tune MODEL on the tasks of VTAB-1k: 1,000 images each, and the whole test set.

    Every option of `vitrail finetune` works as well, such as --preprocessing, --image-size, --steps, --batch-size,
    --lr, --rates and --seeds. The same command goes on with what is there. `vitrail vtab list` shows the tasks.
    """

    tasks: tuple[str, ...] = ()
    """Some of them, by name; all if not said."""
    sources: tuple[str, ...] = ()
    """Data from elsewhere, as TASK=DATA: dtd=hf:owner/name, dmlab=/data/my-dmlab, ..."""
    setting: Literal["paper", "augreg"] = "paper"
    """One setting for all tasks (Table 4), or AugReg's: 4 rates and 2 lengths tried for each."""
    root: Path | None = None
    """Where the data is (--data-root); else $VITRAIL_DATA, else the cache."""
    download: Flag = False
    """Fetch what torchvision can fetch."""
    name: str = "vtab"
    """Of the folder."""
    out: Path = Path("runs")
    """The folder that holds the folders of runs."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    track: Track = None
    """Also tell TensorBoard or Weights & Biases, run by run."""


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on with a VTAB: what is done is not done again."""

    resume: Path
    """Its folder."""
    root: Path | None = None
    """Where the data is now, if it was moved."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps."""
    track: Track = None
    """Also tell TensorBoard or Weights & Biases."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Show the 19 tasks: what they are, whether their data is here, and which files are wanted where."""

    root: Path | None = None
    """Where the data is (--data-root); else $VITRAIL_DATA, else the cache."""
    json: Flag = False
    """Print JSON for programs instead of a table."""


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail vtab list`, `vitrail vtab MODEL ...` or `vitrail vtab --resume FOLDER`."""
    model, rest = positional(Options, words)
    rest = with_short_names(rest)
    if model == "list":
        _list(tyro.cli(Listing, args=rest, prog="vitrail vtab list"))
        return
    if is_resume(rest):
        with told_once():
            _resume(tyro.cli(Resume, args=rest, prog="vitrail vtab"))
        return
    for word, reason in _NOT_HERE.items():
        if word in rest:
            raise UsageError(f"{word} cannot be set for VTAB: {reason}")
    options, others = tyro.cli(Options, args=rest, prog="vitrail vtab MODEL", return_unknown_args=True)
    if model is None:
        raise UsageError(
            "there is no model to start from",
            wanted="vitrail vtab MODEL --data-root DATA",
            fix="`vitrail vtab list` shows the tasks and which files they want.",
        )
    with told_once():
        _start(model, options, list(others))


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


def _start(model: str, options: Options, words: list[str]) -> None:
    from vitrail.experiments.finetune_start import read_start
    from vitrail.experiments.vtab_folder import VtabFolder, begin_vtab, new_record

    ensure_plain_name(options.name)
    ensure_tracker(options.track)
    tasks = _tasks(options)
    start = read_start(model)
    record = new_record(
        source=start.source,
        setting=options.setting,
        tasks=tasks,
        words=tuple(words),
        root=None if options.root is None else str(options.root.expanduser().absolute()),
        download=options.download,
    )
    folder = VtabFolder(options.out.expanduser() / options.name)
    # A mistake should be told before anything is written.
    _rehearse(start, record)
    _ensure_outside(folder.path, record)
    begin_vtab(folder, record)
    _carry_out(start, record, folder, options.device, options.track)


def _tasks(options: Options) -> tuple[str, ...]:
    """What was asked for as it is opened, a name or name=data, each task once."""
    from vitrail.data.vtab.open import parse_task
    from vitrail.data.vtab.tasks import TASKS

    texts = tuple(dict.fromkeys(options.tasks)) or tuple(TASKS)
    sources = [_source(text) for text in (*options.sources, *(text for text in texts if "=" in text))]
    tasks = [text.partition("=")[0] for text in texts]
    given = [name for name, _ in sources]
    for name in (*tasks, *given):
        parse_task(name)
    if unused := [name for name in given if name not in tasks]:
        raise UsageError(f"there is a source for {unused[0]}, which is not among the --tasks")
    if twice := [name for name in tasks if tasks.count(name) > 1 or given.count(name) > 1]:
        raise UsageError(f"{twice[0]} is named twice", wanted="one place for its images")
    where = dict(sources)
    return tuple(f"{name}={where[name]}" if name in where else name for name in tasks)


def _source(text: str) -> tuple[str, str]:
    """A task and its data, with an absolute path, so that it is found from whatever folder it is resumed in."""
    from vitrail.config import DataConfig

    name, equals, data = text.partition("=")
    if not equals or not data:
        raise UsageError(f"a source is {text!r}", wanted="TASK=DATA, such as dtd=hf:owner/name")
    return name, located(DataConfig(data=data)).data


def _rehearse(start: "Start", record: "VtabRecord") -> None:
    """Make the plans with the embedded digits in place of the tasks: what is wrong with the words is so for all."""
    for row in (rows := _rows(record)):
        with warnings.catch_warnings():
            # What is odd about the digits is true of them alone.
            warnings.simplefilter("ignore", Notice)
            _, plan = plan_finetuning(start, [*record.words, "--data", "digits", "--recipe", row, "--device", "cpu"])
        if len(rows) > 1 and not plan.is_sweeping:
            raise UsageError(
                f"there is one learning rate and {len(rows)} lengths, so that nothing is held out to choose by",
                fix="Name the length with --steps, or several --rates.",
            )


def _ensure_outside(path: Path, record: "VtabRecord") -> None:
    """Nothing is written into the folder of a data set, nor where one is looked for."""
    from vitrail.data.outside import ensure_outside
    from vitrail.data.vtab.open import data_root, parse_task, task_split
    from vitrail.data.vtab.tasks import TASKS

    asked = None if record.root is None else Path(record.root)
    root = data_root(asked)
    homes = {root / pattern.split("/")[0] for task in TASKS.values() for pattern in task.files} | {root / "vtab"}
    given = {text: data for text in record.tasks if (data := parse_task(text)[1])}
    homes |= {Path(data) for data in given.values() if Path(data).is_dir()}
    for home in sorted(homes):
        if path.resolve().is_relative_to(home.resolve()):
            raise UsageError(f"it would lie inside the data, {home}", where=str(path), fix="Choose another --out.")
    for text in given:
        try:
            split, _ = task_split(text, root=asked, download=record.download)
        except VitrailError:
            # Told when it is the turn of this task; the others go on.
            continue
        ensure_outside([split.learn.source, split.measured.source], path)


def _resume(options: Resume) -> None:
    from vitrail.experiments.finetune_start import read_start
    from vitrail.experiments.vtab_folder import VtabFolder, read_vtab

    ensure_tracker(options.track)
    folder = VtabFolder(options.resume)
    record = read_vtab(folder)
    if options.root is not None:
        record = replace(record, root=str(options.root.expanduser().absolute()))
    _carry_out(read_start(record.source), record, folder, options.device, options.track)


def _carry_out(start: "Start", record: "VtabRecord", folder: "VtabFolder", device_name: str, track: Track) -> None:
    """One task after the other; what fails is told, and the others go on."""
    from vitrail.data.vtab.open import data_root, missing_files, parse_task
    from vitrail.experiments.vtab_folder import alone, write_table
    from vitrail.experiments.vtab_table import Table
    from vitrail.runtime.device import find_device
    from vitrail.runtime.lock import watched
    from vitrail.runtime.processes import joined, own_device
    from vitrail.training.spreading import Placement
    from vitrail.training.stopping import Stopped

    root = data_root(None if record.root is None else Path(record.root))
    absent = {}
    for text in record.tasks:
        task, given = parse_task(text)
        fetched = record.download and task.can_download
        if not given and not fetched and (files := missing_files(task, root)):
            absent[task.name] = files
    say_absent(absent, len(record.tasks))
    device = own_device(find_device(device_name))
    table = Table(model=Path(record.source).name, scores={}, missing={})
    problems: dict[str, VitrailError] = {}

    def measure(text: str, how: "tuple[torch.device, Track, Placement]") -> None:
        name = parse_task(text)[0].name
        if name in table.scores or name in problems:
            return
        try:
            table.scores[name] = _task(start, record, folder, text, how)
        except (Stopped, DiskError):
            raise
        except VitrailError as error:
            table.missing[name], problems[name] = str(error), error
            if name not in absent:
                console().print(f"{name} failed: {error}", markup=False, soft_wrap=True)

    with joined(device) as processes, watched(folder.path) as hold:
        how = device, track, Placement(processes=processes)
        for number, text in enumerate(record.tasks, start=1):
            hold.ensure_in_place()
            say_task(text, number, len(record.tasks), is_absent=parse_task(text)[0].name in absent)
            measure(text, how)
            # Together, else of two commands the one that writes last may not know what the other has found.
            hold.ensure_in_place()
            with alone(folder):
                for other in _finished(folder, record):
                    measure(other, how)
                write_table(folder, table)
    say_table(table, folder)
    if problems:
        raise _together(list(problems.values()), list(problems), folder)


def _finished(folder: "VtabFolder", record: "VtabRecord") -> list[str]:
    """Tasks that other commands of the same name were asked for, and have done."""
    from vitrail.experiments.vtab_folder import read_vtab

    others = [text for text in read_vtab(folder).tasks if text not in record.tasks]
    return [text for text in others if all(place.result.is_file() for place in _places(folder, record, text).values())]


def _places(folder: "VtabFolder", record: "VtabRecord", text: str) -> "dict[str, FinetuneFolder]":
    """The fine-tunings of a task, by recipe: one for each length that is tried."""
    from vitrail.data.vtab.open import parse_task

    name, rows = parse_task(text)[0].name, _rows(record)
    return {row: folder.task(name, row if len(rows) > 1 else None) for row in rows}


def _rows(record: "VtabRecord") -> tuple[str, ...]:
    """The recipes that are tried: one where one length is asked for, so that there is none to choose."""
    from vitrail.experiments.vtab_tasks import SETTINGS

    is_one = is_given("--train.steps", record.words) or is_given("--train.epochs", record.words)
    return SETTINGS[record.setting][: 1 if is_one else None]


def _together(problems: list[VitrailError], names: list[str], folder: "VtabFolder") -> VitrailError:
    """One error for all: its kind is that of the first."""
    count = f"{len(names)} task{'s have' if len(names) > 1 else ' has'} no number"
    kind = DataError if isinstance(problems[0], DataError) else type(problems[0])
    return kind(f"{count}: {', '.join(names)}", fix=f"Each is told above; then go on: {folder.resume_command}")


def _task(
    start: "Start",
    record: "VtabRecord",
    folder: "VtabFolder",
    text: str,
    how: "tuple[torch.device, Track, Placement]",
) -> "TaskScore":
    """The score of a task, which is worked out first where it is not there yet."""
    from vitrail.data.outside import ensure_outside
    from vitrail.data.vtab.open import parse_task, task_split
    from vitrail.experiments.finetune_folder import read_plan
    from vitrail.experiments.finetune_result import read_result
    from vitrail.experiments.vtab_folder import alone, keep_split, read_split
    from vitrail.experiments.vtab_tasks import choose_length, task_score
    from vitrail.training.start import Allowed

    name = parse_task(text)[0].name
    device, track, placement = how
    places = _places(folder, record, text)
    if not all(place.result.is_file() for place in places.values()):
        root = None if record.root is None else Path(record.root)
        split, _ = task_split(text, root=root, download=record.download)
        ensure_outside([split.learn.source, split.measured.source], folder.path)
        with alone(folder):
            keep_split(folder, split)
    plans: dict[str, Plan] = {}
    results: dict[str, Result] = {}
    for row, place in places.items():
        is_begun = place.config.is_file()
        plans[row] = read_plan(place) if is_begun else _plan(start, record, text, row, str(device))
        _refuse_other_data(plans[row], text, place)
        results[row] = (
            read_result(place.result)
            if place.result.is_file()
            else carry_out(plans[row], place, device, track, Allowed(root=record.root), placement=placement)
        )
    best = choose_length(results)
    where = str(places[best].path.relative_to(folder.path))
    return task_score(name, plans[best], results[best], where, read_split(folder, name))


def _refuse_other_data(plan: "Plan", text: str, place: "FinetuneFolder") -> None:
    """A fine-tuning that was begun with other images is not the one of this task."""
    from vitrail.config import DataConfig

    wanted, found = located(DataConfig(data=f"vtab:{text}")).data, plan.config.data.data
    if found != wanted:
        raise UsageError(
            f"it was begun with {found}", wanted=wanted, where=str(place.path), fix="Choose another --name."
        )


def _plan(start: "Start", record: "VtabRecord", text: str, row: str, device: str) -> "Plan":
    """What `vitrail finetune` would do, with the protocol of VTAB."""
    from vitrail.data.vtab.open import parse_task
    from vitrail.experiments.vtab_tasks import task_plan

    words = [*record.words, "--data", f"vtab:{text}", "--recipe", row, "--device", device]
    words += [] if record.root is None else ["--root", record.root]
    words += ["--download"] if record.download else []
    _, plan = plan_finetuning(start, words)
    return task_plan(plan, parse_task(text)[0])
