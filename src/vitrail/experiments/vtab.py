"""`vitrail.vtab`: the 19 tasks of VTAB-1k, each an ordinary fine-tuning, and the table of D.10.

A task has 800 images to learn from and 200 to choose on, then all 1,000, then the whole test. Several commands may work
in one folder at once, each on tasks of its own: the folder is locked for a write, and not for the whole.
"""

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vitrail.config import DataConfig, Settings, read_values
from vitrail.config.spelling import as_typed
from vitrail.data.vtab.open import data_root, missing_files, parse_task, task_split
from vitrail.data.vtab.split import LEARN, SELECT
from vitrail.data.vtab.tasks import TASKS, Task
from vitrail.errors import DataError, Notice, UsageError, VitrailError, command, marked, setting
from vitrail.experiments import finetune
from vitrail.experiments.ask import Ask, names_of
from vitrail.experiments.experiment import Experiment, Part, Step, Steps, Work
from vitrail.experiments.finetune import (
    FinetuneFolder,
    Plan,
    Result,
    plan_finetuning,
    read_finetuning,
    read_result,
    retrained_on,
)
from vitrail.experiments.resolve import located
from vitrail.recipes import recipe

if TYPE_CHECKING:
    from vitrail.experiments.calling import Finished
    from vitrail.experiments.driver import Driver
    from vitrail.experiments.start import Start
    from vitrail.experiments.vtab_folder import KeptSplit, VtabFolder
    from vitrail.experiments.vtab_table import Table, TaskScore
    from vitrail.training.events import OnEvent


@dataclass(frozen=True, kw_only=True)
class Options(finetune.Options):
    """Fine-tune MODEL on the tasks of VTAB-1k: 1,000 images each, and the whole test set.

    The same command goes on with what is there. `vitrail vtab list` shows the tasks.
    """

    tasks: tuple[str, ...] = ()
    """Some of them, by name; all if not said."""
    sources: tuple[str, ...] = ()
    """Data from elsewhere, as TASK=DATA: dtd=hf:owner/name, dmlab=/data/my-dmlab, ..."""
    setting: Literal["paper", "augreg"] = "paper"
    """One setting for all tasks (Table 4), or AugReg's: 4 rates and 2 lengths tried for each."""
    name: str = "vtab"
    """Of the folder."""


NOT_HERE = {
    "data.data": f"{setting('tasks')} says which; {setting('sources')} says where from",
    "data.split": "VTAB-1k says which images are learnt from",
    "data.held_out": "VTAB-1k says which images are chosen on",
    "recipe": f"{setting('setting')} says which",
    "data.test": "every task is measured on its test images",
    "or_resume": "the same command goes on anyway",
    "processes": f"a VTAB runs in one process; start several with other {setting('tasks')} and one {setting('name')}",
    "parallel": "a VTAB runs in one process",
}
"""What VTAB says itself, or what is said in another way here."""

_OF_FINETUNING = ("rates", "seeds", "image_size", "preprocessing")

SETTINGS = {"paper": ("finetune-vtab",), "augreg": ("augreg-finetune-vtab-500", "augreg-finetune-vtab-2500")}
"""One setting for all tasks (Table 4), or AugReg's sweep of rates and lengths for each."""

_PAPER = recipe(SETTINGS["paper"][0])


def task_plan(plan: Plan, task: Task) -> Plan:
    """A plan for a task: what must not be done to its images is left out, and none of a test image is cut off."""
    config = plan.config
    augment = config.augment
    if not task.crop:
        augment = replace(augment, crop="whole")
    if not task.flip:
        augment = replace(augment, flip=False)
    preprocessing = replace(config.preprocessing, crop=None)
    plan = replace(plan, config=replace(config, augment=augment, preprocessing=preprocessing))
    return retrained_on(plan, "train+val")


def choose_length(results: dict[str, Result]) -> str:
    """The fine-tuning that was best on the images to choose on; of equals the first, and never a look at the test."""
    if len(results) == 1:
        return next(iter(results))

    def worth(name: str) -> tuple[float, float]:
        found = next(trial.measured for trial in results[name].rates if trial.lr == results[name].chosen)
        return (found.accuracy, -found.loss) if found else (-1.0, 0.0)

    return max(results, key=worth)


def less_than_the_paper(plan: Plan, task: Task) -> list[str]:
    """A phrase for each setting that is not the paper's (Table 4, and three runs); what VTAB itself says is none."""
    from vitrail.experiments.transfer_paper import unlike_paper

    config, augment = plan.config, plan.config.augment
    # What is held out are the 200 images, and what a label forbids (see `task_plan`) was nobody's choice.
    data = replace(config.data, data="vtab", held_out=_PAPER.held_out)
    if not task.crop:
        augment = replace(augment, crop=_PAPER.augment.crop)
    if not task.flip:
        augment = replace(augment, flip=_PAPER.augment.flip)
    return list(unlike_paper(replace(plan, config=replace(config, data=data, augment=augment))))


def less_than_vtab(task: Task, split: "KeptSplit", images: int) -> list[str]:
    """What of its images a task was without."""
    whole = task.images[2]
    pairs = [
        (
            (split.train, split.val) != (LEARN, SELECT),
            f"{split.train} + {split.val} images to learn from instead of {LEARN} + {SELECT}",
        ),
        (images != whole, f"{images:,} test images instead of {whole:,}"),
    ]
    return [f"{task.name}: {phrase}" for is_less, phrase in pairs if is_less]


def task_score(name: str, plan: Plan, result: Result, folder: str, split: "KeptSplit") -> "TaskScore":
    """What the table says of a task."""
    from vitrail.experiments.vtab_table import TaskScore

    if result.mean is None:
        raise DataError("nothing was measured", wanted="a number on the test images", where=folder)
    task = TASKS[name]
    return TaskScore(
        task=name,
        accuracy=result.mean,
        std=result.std,
        images=result.images,
        whole=task.images[2],
        train=split.train,
        val=split.val,
        seeds=len(result.seeds),
        lr=result.chosen,
        steps=plan.config.train.steps,
        split=split.origin,
        sha256=split.sha256,
        folder=folder,
        seconds=result.seconds,
        less=(*less_than_the_paper(plan, task), *less_than_vtab(task, split, result.images)),
    )


# Its steps.


@dataclass(frozen=True, kw_only=True)
class Vtab(Experiment["Table"]):
    """One task after the other; what fails is told, and the others go on."""

    verb: ClassVar[str] = "vtab"
    between: ClassVar[str] = "tasks"
    locked_for: ClassVar[Literal["whole", "run", "write"]] = "write"
    source: str
    setting: str
    tasks: tuple[str, ...]
    """As they are opened: a name, or name=data."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of all fine-tunings, by dotted name."""
    root: str | None = None
    download: bool = False

    def at(self, path: Path, whole: str = "") -> "VtabFolder":
        """The folder of it."""
        from vitrail.experiments.vtab_folder import VtabFolder

        return VtabFolder(path)

    def has_begun(self, folder: "VtabFolder") -> bool:
        """It is written down before its first task: others may work there."""
        return True

    @property
    def rows(self) -> tuple[str, ...]:
        """The recipes that are tried: one where one length is asked for, so that there is none to choose."""
        is_one = "train.steps" in self.settings or "train.epochs" in self.settings
        return SETTINGS[self.setting][: 1 if is_one else None]

    def absent(self) -> dict[str, list[str]]:
        """Tasks whose data is not here, with the files that they want."""
        root = data_root(None if self.root is None else Path(self.root))
        found = {}
        for text in self.tasks:
            task, given = parse_task(text)
            fetched = self.download and task.can_download
            if not given and not fetched and (files := missing_files(task, root)):
                found[task.name] = files
        return found

    def places(self, folder: "VtabFolder", text: str) -> dict[str, FinetuneFolder]:
        """The fine-tunings of a task, by recipe: one for each length that is tried."""
        name, rows = parse_task(text)[0].name, self.rows
        return {row: folder.task(name, row if len(rows) > 1 else None) for row in rows}

    def steps(self, folder: "VtabFolder") -> "Steps[Table]":
        """Every task, the table after each, and in the end what has no number."""
        from vitrail.experiments.start import read_start
        from vitrail.experiments.vtab_table import Table

        table = Table(model=Path(self.source).name, scores={}, missing={})
        problems: dict[str, VitrailError] = {}
        start = cache(lambda: read_start(self.source))
        for number, text in enumerate(self.tasks, start=1):
            failure = yield from self._task(folder, text, f"{number} of {len(self.tasks)}", start)
            if failure is not None:
                name = parse_task(text)[0].name
                table.missing[name], problems[name] = as_typed(failure), failure
            yield Work(title="the table", do=self._writing(folder, text, table, problems))
        yield Work(title="show the table", do=lambda driver: driver.audience.tell(self, table, folder=folder))
        if problems:
            raise _together(list(problems.values()), list(problems), folder)
        return table

    def _task(
        self, folder: "VtabFolder", text: str, place: str, start: "Callable[[], Start]"
    ) -> "Generator[Step, Any, VitrailError | None]":
        """The fine-tunings of a task; the first that fails is the last."""
        for row, target in self.places(folder, text).items():

            def make(driver: "Driver", row: str = row, target: FinetuneFolder = target) -> Plan:
                return self._finetuning(folder, text, row, target, start, driver)

            ended = yield Part(
                folder=str(target.path.relative_to(folder.path)),
                title=text,
                place=place,
                make=make,
                forgives=(VitrailError,),
            )
            if ended.failure is not None:
                return ended.failure
            # Only the first of several lengths is announced.
            place = ""
        return None

    def _finetuning(
        self,
        folder: "VtabFolder",
        text: str,
        row: str,
        target: FinetuneFolder,
        start: "Callable[[], Start]",
        driver: "Driver",
    ) -> Plan:
        """What `vitrail finetune` would do, with the protocol of VTAB; the split of the task is kept."""
        from vitrail.data.outside import ensure_outside
        from vitrail.experiments.vtab_folder import alone, keep_split

        if not all(place.result.is_file() for place in self.places(folder, text).values()):
            split, _ = task_split(text, root=None if self.root is None else Path(self.root), download=self.download)
            ensure_outside([split.learn.source, split.measured.source], folder.path)
            if not driver.is_rehearsing:
                with alone(folder):
                    keep_split(folder, split)
        if target.config.is_file():
            found = read_finetuning(target).plan
        else:
            about = {"data.data": f"vtab:{text}", "data.download": self.download}
            about |= {} if self.root is None else {"data.root": self.root}
            found = self.planned(start(), row, str(driver.how.device), about)
            found = task_plan(found, parse_task(text)[0])
        wanted, data = located(DataConfig(data=f"vtab:{text}")).data, found.config.data.data
        if data != wanted:
            raise UsageError(
                f"it was begun with {data}",
                wanted=wanted,
                where=str(target.path),
                fix=f"Choose another {setting('name')}.",
            )
        return found

    def planned(self, start: "Start", row: str, device: str, about: Mapping[str, Any]) -> Plan:
        """A fine-tuning by one recipe."""
        given = read_values(self.settings, names_of("vtab"))
        options = replace(given.filled(finetune.Options), recipe=row, device=device)
        return plan_finetuning(start, Settings({**given.of_runs(), **about}), options)

    def _count(self, folder: "VtabFolder", text: str) -> "TaskScore":
        """The number of a task whose fine-tunings are done."""
        from vitrail.experiments.vtab_folder import read_split

        name, places = parse_task(text)[0].name, self.places(folder, text)
        results = {row: read_result(place.result) for row, place in places.items()}
        best = choose_length(results)
        chosen = read_finetuning(places[best]).plan
        where = str(places[best].path.relative_to(folder.path))
        return task_score(name, chosen, results[best], where, read_split(folder, name))

    def _writing(
        self, folder: "VtabFolder", now: str, table: "Table", problems: dict[str, VitrailError]
    ) -> "Callable[[Driver], None]":
        """Take the number of a task into the table, with what other commands of the same name have found meanwhile."""
        from vitrail.experiments.vtab_folder import alone, read_vtab, write_table
        from vitrail.training.whole import ensure_in_place

        def write(driver: "Driver") -> None:
            ensure_in_place(folder)
            # Together, else of two commands the one that writes last may not know what the other has found.
            with alone(folder):
                for text in (now, *(text for text in read_vtab(folder).tasks if text not in self.tasks)):
                    name = parse_task(text)[0].name
                    is_done = all(place.result.is_file() for place in self.places(folder, text).values())
                    if not is_done or name in table.scores or name in problems:
                        continue
                    try:
                        table.scores[name] = self._count(folder, text)
                    except VitrailError as error:
                        table.missing[name], problems[name] = as_typed(error), error
                        driver.audience.failed(self, Part(folder=name, title=text, make=lambda _driver: self), error)
                write_table(folder, table)

        return write


def _together(problems: list[VitrailError], names: list[str], folder: "VtabFolder") -> VitrailError:
    """One error for all: its kind is that of the first."""
    count = f"{len(names)} task{'s have' if len(names) > 1 else ' has'} no number"
    kind = DataError if isinstance(problems[0], DataError) else type(problems[0])
    return kind(
        f"{count}: {', '.join(names)}", fix=f"{names[0]}: {marked(problems[0])} Then go on: {folder.resume_command}"
    )


# From what was asked for, and through it.


def plan(ask: Ask, driver: "Driver") -> Vtab:
    """Decide which tasks; a mistake is told before anything is written."""
    from vitrail.experiments.start import read_start

    if not ask.subjects:
        raise UsageError(
            "there is no model to start from",
            wanted=command("vtab", "MODEL", data_root="DATA"),
            fix="`vitrail vtab list` shows the tasks and which files they want.",
        )
    (source,) = ask.subjects
    options, given = ask.options(Options), ask.given
    tasks = _tasks(options)
    start = read_start(source)
    kept = Settings({name: given[name] for name in given if "." in name or name in _OF_FINETUNING})
    root = given.get("data.root")
    vtab = Vtab(
        source=start.source,
        setting=options.setting,
        tasks=tasks,
        settings=kept.without("data.root", "data.download").json(),
        root=None if root is None else str(Path(root).expanduser().absolute()),
        download=given.get("data.download", False),
    )
    _rehearse(start, vtab)
    return vtab


def _tasks(options: Options) -> tuple[str, ...]:
    """What was asked for as it is opened, a name or name=data, each task once."""
    texts = tuple(dict.fromkeys(options.tasks)) or tuple(TASKS)
    sources = [_source(text) for text in (*options.sources, *(text for text in texts if "=" in text))]
    tasks = [text.partition("=")[0] for text in texts]
    given = [name for name, _ in sources]
    for name in (*tasks, *given):
        parse_task(name)
    if unused := [name for name in given if name not in tasks]:
        raise UsageError(f"there is a source for {unused[0]}, which is not among the {setting('tasks')}")
    if twice := [name for name in tasks if tasks.count(name) > 1 or given.count(name) > 1]:
        raise UsageError(f"{twice[0]} is named twice", wanted="one place for its images")
    where = dict(sources)
    return tuple(f"{name}={where[name]}" if name in where else name for name in tasks)


def _source(text: str) -> tuple[str, str]:
    """A task and its data, with an absolute path, so that it is found from whatever folder it is resumed in."""
    name, equals, data = text.partition("=")
    if not equals or not data:
        raise UsageError(f"a source is {text!r}", wanted="TASK=DATA, such as dtd=hf:owner/name")
    return name, located(DataConfig(data=data)).data


def _rehearse(start: "Start", vtab: Vtab) -> None:
    """Make the plans with the embedded digits in place of the tasks: what is wrong with settings is so for all."""
    for row in vtab.rows:
        with warnings.catch_warnings():
            # What is odd about the digits is true of them alone.
            warnings.simplefilter("ignore", Notice)
            found = vtab.planned(start, row, "cpu", {"data.data": "digits"})
        if len(vtab.rows) > 1 and not found.is_sweeping:
            raise UsageError(
                f"there is one learning rate and {len(vtab.rows)} lengths, so that nothing is held out to choose by",
                fix=f"Name the length with {setting('train.steps')}, or several {setting('rates')}.",
            )


def _ensure_outside(path: Path, vtab: Vtab) -> None:
    """Nothing is written into the folder of a data set, nor where one is looked for."""
    from vitrail.data.outside import ensure_outside

    asked = None if vtab.root is None else Path(vtab.root)
    root = data_root(asked)
    homes = {root / pattern.split("/")[0] for task in TASKS.values() for pattern in task.files} | {root / "vtab"}
    given = {text: data for text in vtab.tasks if (data := parse_task(text)[1])}
    homes |= {Path(data) for data in given.values() if Path(data).is_dir()}
    for home in sorted(homes):
        if path.resolve().is_relative_to(home.resolve()):
            raise UsageError(
                f"it would lie inside the data, {home}", where=str(path), fix=f"Choose another {setting('out')}."
            )
    for text in given:
        try:
            split, _ = task_split(text, root=asked, download=vtab.download)
        except VitrailError:
            # Told when it is the turn of this task; the others go on.
            continue
        ensure_outside([split.learn.source, split.measured.source], path)


GROWS = True
"""The same name again, with other tasks, goes on in the same folder."""


def found(path: Path) -> "Table":
    """What is known in a folder; nothing is done."""
    from vitrail.experiments.vtab_folder import VtabFolder, read_table

    return read_table(VtabFolder(path))


def begin(ask: Ask, driver: "Driver") -> "tuple[VtabFolder, Table]":
    """Fine-tune on the tasks; what is there already is not done again."""
    from vitrail.experiments.vtab_folder import VtabRecord, begin_vtab
    from vitrail.training.folder import versions

    options, vtab = ask.options(Options), plan(ask, driver)
    folder = vtab.at(Path(options.out).expanduser() / options.name)
    _ensure_outside(folder.path, vtab)
    begin_vtab(folder, VtabRecord(**vars(vtab), command=ask.command, versions=versions()))
    return _through(vtab, folder, driver)


def go_on(path: Path, driver: "Driver") -> "tuple[VtabFolder, Table]":
    """Go on with a VTAB: what is done is not done again."""
    from vitrail.experiments.vtab_folder import VtabFolder, read_vtab

    folder = VtabFolder(path)
    record = read_vtab(folder)
    asked = driver.how.allowed.root
    vtab = Vtab(
        source=record.source,
        setting=record.setting,
        tasks=record.tasks,
        settings=record.settings,
        root=record.root if asked is None else str(Path(asked).expanduser().absolute()),
        download=record.download,
    )
    return _through(vtab, folder, driver)


def _through(vtab: Vtab, folder: "VtabFolder", driver: "Driver") -> "tuple[VtabFolder, Table]":
    driver = driver.allowing(replace(driver.how.allowed, root=vtab.root))
    driver.audience.planned(vtab, folder, absent=vtab.absent())
    return folder, driver.drive(vtab, folder)


def vtab(
    model: Any = None,
    *,
    tasks: Sequence[str] | str = (),
    settings: Mapping[str, Any] | None = None,
    on_event: "OnEvent | None" = None,
    **options: Any,
) -> "Finished":
    """Fine-tune a model on the tasks of VTAB-1k; the result is the table of D.10.

    `tasks` are some of the 19, all if not said; `data_root` says where their files are. Other keywords are those of
    `finetune`. The same call again goes on where it stopped.

        table = vitrail.vtab("vit-b16", data_root="data").result
    """
    from vitrail.experiments.calling import call

    several = (tasks,) if isinstance(tasks, str) else tuple(tasks)
    given = {"tasks": several or None, **options}
    return call("vtab", () if model is None else (model,), given, settings, on_event)
