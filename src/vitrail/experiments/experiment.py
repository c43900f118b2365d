"""What a person asks for, as a value: which steps it takes, in which order, and what comes of them.

An experiment is a generator over its steps. It yields a step and gets back the record of it, from which it decides on
the next; what it returns is the result. Nothing of that is stored: to go on after a stop the same generator is asked
again, and steps that have ended answer from their folders. So the order of an experiment reads as it is told:

    trials = []
    for run in sweep_runs(plan):
        trials.append(Trial.of(run, (yield run)))
    best = choose_rate(trials)
    for run in final_runs(plan, best.lr):
        ...
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from vitrail.config import RunConfig, to_json
from vitrail.errors import VitrailError, command
from vitrail.runtime.atomic import atomic_file, atomic_folder
from vitrail.runtime.json_text import json_text
from vitrail.training.folder import NamedFolder, PartFolder, RunFolder, processes_again, read_record, versions

if TYPE_CHECKING:
    from vitrail.experiments.driver import Driver

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A step that trains a network, in a folder of its own below that of the whole; without a name, in that itself."""

    folder: str = ""
    title: str
    config: RunConfig
    number: int = 1
    """Among the runs of the whole, from 1 on."""
    forgives: tuple[type[VitrailError], ...] = ()
    """What may become of it without ending the rest: a rate that leads nowhere is a finding."""
    is_kept: bool = True
    """Whether it can go on from its checkpoints once it has ended; one that was only to choose by need not."""
    page: Literal["whole", "brief", "later"] = "whole"
    """Its page looks into the network, or does not, or waits for the end of something else."""
    is_shown: bool = False
    """Whether the page of the whole shows what it was measured on."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A step that is an experiment of its own, in a folder below that of the whole."""

    folder: str
    title: str
    make: Callable[["Driver"], "Experiment"]
    """Decides it when it is its turn; a folder that is there already knows what it is."""
    forgives: tuple[type[VitrailError], ...] = ()
    after: "Callable[[Driver, Experiment, Any], None] | None" = None
    """What is still to be done with its result, and may fail with it."""
    problem: VitrailError | None = None
    """Why it cannot even be tried, where that is known."""
    place: str = ""
    """Among the parts of the whole, for people: 2 of 3."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A step that is neither: a piece of work that finds what is done of it, and gives back its record."""

    title: str
    do: Callable[["Driver"], Any]
    alike: Any = None
    """A record like those it gives, for a rehearsal."""


Step = Run | Part | Work


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What is known of a run or a part that has ended."""

    folder: str
    title: str
    done: dict[str, Any] | None = None
    """The last record of a run."""
    result: Any = None
    """Of a part."""
    experiment: "Experiment | None" = None
    """The part as it was decided."""
    failure: VitrailError | None = None
    is_old: bool = False
    """Whether a part was done before."""
    is_apart: bool = False
    """Whether a failure has torn the processes of the experiment apart, so that they must end."""
    seconds: float = 0.0
    """Of training."""

    @property
    def metrics(self) -> dict[str, Any] | None:
        """What a run was measured to be; none where it failed, or there was nothing to measure on."""
        return None if self.done is None else self.done["metrics"]


Steps = Generator[Step, Any, Result]


@dataclass(frozen=True)
class ExperimentFolder(NamedFolder):
    """`runs/<name>/` of an experiment; of one that is part of another, `whole` says how to go on with that."""

    verb: str = "train"
    whole: str = ""

    @property
    def result(self) -> Path:
        """What was found, once all steps are done."""
        return self.path / "result.json"

    @property
    def resume_command(self) -> str:
        """What to type to go on."""
        return self.whole or command(self.verb, resume=str(self.path), **processes_again())

    def run(self, folder: str) -> RunFolder:
        """The folder of one of its runs."""
        return PartFolder(self.path / folder, self.resume_command) if folder else RunFolder(self.path)


@dataclass(frozen=True, kw_only=True)
class ExperimentRecord:
    """`config.json`: the plan, and how to do it again."""

    format: str
    plan: Any
    command: str
    """What a person asked."""
    versions: dict[str, Any] = field(default_factory=dict)


class Experiment(ABC, Generic[Result]):
    """Base of all kinds: a frozen dataclass of plain values, which is written down as the plan of its folder.

    A new kind says its `verb`, its `steps`, and what becomes of their result.
    """

    verb: ClassVar[str]
    between: ClassVar[str] = "runs"
    """What a signal may come between."""
    doing: ClassVar[str] = "working on"
    """What another process is told that this one does with the folder."""
    locked_for: ClassVar[Literal["whole", "run", "write"]] = "whole"
    """How long the folder is locked: for the whole; for its one run, before which it is only read; or for each write,
    where several commands share it."""

    @abstractmethod
    def steps(self, folder: Any) -> Steps[Result]:
        """Yield steps, take their records, return the result."""

    def at(self, path: Path, whole: str = "") -> Any:
        """The folder of it."""
        return ExperimentFolder(path, self.verb, whole)

    def known(self, folder: Any) -> Result | None:
        """The result, where all was done before."""
        return None

    def begun(self, folder: Any, driver: "Driver") -> None:
        """Write the plan down; called once the first run has begun, so that what cannot begin leaves no plan."""
        write_plan(folder, self, driver.how.command)

    def has_begun(self, folder: Any) -> bool:
        """Whether there is something that must not be lost."""
        return folder.config.exists()

    def written(self, folder: Any) -> list[Path]:
        """The files that it may have written before it had begun."""
        return [folder.lock]

    def finish(self, folder: Any, result: Result, driver: "Driver") -> None:
        """Write down what came of it; the first of several processes does."""


def write_found(experiment: Experiment, folder: "ExperimentFolder", result: Any) -> None:
    """Write `result.json`, and a page of the runs beside each other: enough for a kind without a page of its own."""
    from vitrail.reports.story import gather
    from vitrail.reports.versus import MOST_RUNS, versus_page
    from vitrail.reports.write import write_page

    with atomic_file(folder.result) as temporary:
        temporary.write_text(json_text(to_json(result), indent=2) + "\n", encoding="utf-8")
    runs = sorted(log.parent for log in folder.path.rglob("log.jsonl"))[:MOST_RUNS]
    stories = [gather(RunFolder(run), None, None) for run in runs]
    if len(stories) > 1:
        write_page(folder.report, versus_page(stories, title=folder.path.resolve().name, lead=f"{experiment.verb}."))


def keep_model(folder: NamedFolder, run: RunFolder) -> None:
    """Copy the model of one run to where people look for that of the whole."""
    with atomic_folder(folder.model) as temporary:
        for file in run.model.iterdir():
            if file.is_file():
                shutil.copyfile(file, temporary / file.name)


def write_plan(folder: NamedFolder, experiment: Experiment, asked: str, **about: Any) -> None:
    """Write `config.json`, whole or not at all."""
    record = ExperimentRecord(
        format=f"vitrail-{experiment.verb}/1", plan=experiment, command=asked, versions=versions(**about)
    )
    with atomic_file(folder.config) as temporary:
        temporary.write_text(json_text(to_json(record), indent=2) + "\n", encoding="utf-8")


def read_plan(folder: NamedFolder, kind: type[Experiment], what: str) -> Any:
    """The record of an experiment of this kind, with its plan read back."""
    return read_record(folder, _record_of(kind), f"vitrail-{kind.verb}/1", what)


def _record_of(kind: type[Experiment]) -> type[ExperimentRecord]:
    """The record with the plan of one kind."""

    @dataclass(frozen=True, kw_only=True)
    class Record(ExperimentRecord):
        plan: kind  # type: ignore[valid-type]

    Record.__annotations__["plan"] = kind
    return Record


def rehearsed(experiment: Experiment, folder: Any, driver: "Driver") -> tuple[list[tuple[str, RunConfig]], Any]:
    """The runs that an experiment will make, as if all of them came out alike, and its result then; nothing is done."""
    steps, answer, runs = experiment.steps(folder), None, []
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as ended:
            return runs, ended.value
        match step:
            case Run():
                runs.append((step.folder, step.config))
                answer = Ended(folder=step.folder, title=step.title, done=_ALIKE)
            case Part():
                part = step.make(driver)
                inner, result = rehearsed(part, part.at(folder.path / step.folder), driver)
                runs += [(f"{step.folder}/{name}", config) for name, config in inner]
                answer = Ended(folder=step.folder, title=step.title, result=result, experiment=part)
            case Work():
                answer = step.alike


_ALIKE: dict[str, Any] = {
    "event": "done",
    "split": "test",
    "step": 0,
    "metrics": {"images": 1, "accuracy": 0.0, "top5": 0.0, "loss": 0.0},
    "best": {"accuracy": 0.0, "loss": 0.0, "step": 0},
    "seconds": 0.0,
}
