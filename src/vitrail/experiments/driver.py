"""Carries experiments out: one place for locks, signals, processes, memory between runs, and pages."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from vitrail.config import DataConfig, from_json, to_json
from vitrail.data import Source
from vitrail.errors import DiskError, UsageError, VitrailError, setting
from vitrail.experiments.audience import Audience
from vitrail.experiments.experiment import Ended, Experiment, ExperimentFolder, Part, Run, Step, Work
from vitrail.experiments.trackers import Tracker, several, tracking
from vitrail.reports import write_report
from vitrail.runtime.out_of_memory import release_memory
from vitrail.runtime.processes import ALONE, Elsewhere, LostProcess
from vitrail.training.divergence import Diverged
from vitrail.training.events import OnEvent, RunBegan, RunEnded, Told
from vitrail.training.finish import Outcome
from vitrail.training.folder import NamedFolder, RunFolder, beside, differences, read_run
from vitrail.training.log import last_record, read_log
from vitrail.training.run import run as train
from vitrail.training.session import Session
from vitrail.training.sources import RunData, open_run_data
from vitrail.training.spread import Placement
from vitrail.training.start import Allowed, begin, resume
from vitrail.training.stopping import Stopped, Stopping
from vitrail.training.whole import ensure_in_place, held, stoppable, watched_over

Decided = TypeVar("Decided", bound=Experiment)


@dataclass(frozen=True, kw_only=True)
class How:
    """With what an experiment is carried out; none of it decides what comes out."""

    device: torch.device
    placement: Placement = field(default_factory=lambda: Placement(processes=ALONE))
    audience: Audience = field(default_factory=Audience)
    on_event: OnEvent | None = None
    """Is told the events of all runs as well."""
    allowed: Allowed = field(default_factory=Allowed)
    track: Tracker | None = None
    command: str = ""
    """How to ask for it again."""
    asked: str = ""
    """By which a restart knows it again."""


class Driver:
    """Takes an experiment through its steps; what is done already is not done again."""

    def __init__(self, how: How) -> None:
        self.how, self.processes, self.audience = how, how.placement.processes, how.audience
        self.opened: dict[DataConfig, RunData] = {}
        """Images that were opened before their run; the first run that wants them takes them."""
        self.outcomes: dict[Path, Outcome] = {}
        """What runs whose page waits were measured on, until someone takes it."""
        self.kept: Any = None
        """What a kind has opened to decide what to do, and needs again to do it."""
        self.is_rehearsing = False
        """Whether nothing may be written, because it is only asked what would be done."""
        self._stopping = Stopping(is_alone=self.processes.ranks == 1)
        self._begun = 0

    def allowing(self, allowed: Allowed) -> "Driver":
        """One that lets these differ from what was begun."""
        driver = Driver(replace(self.how, allowed=allowed))
        driver.opened, driver.kept = self.opened, self.kept
        return driver

    def decided(self, make: Callable[[], Decided], kind: type[Decided]) -> Decided:
        """What the first of several processes decides, as all of them read it."""
        if self.processes.control is None:
            return make()
        return from_json(
            kind, self.processes.first_says(lambda: to_json(make())), where="the plan of the first process"
        )

    def sources(self, *data: DataConfig) -> list[Source]:
        """All that was opened of some data: nothing is written inside of it."""
        found: list[Source | None] = []
        for one in (self.opened[config] for config in data):
            scored = () if one.few_shot is None else (one.few_shot.learn, one.few_shot.test)
            found += [one.train, one.held_out, one.test, *scored]
        return [source for source in found if source is not None]

    def drive(self, experiment: Experiment, folder: Any) -> Any:
        """Do every step that is not done yet; raises `Stopped` when a signal came, with everything saved."""
        try:
            return self._driven(experiment, folder)
        except VitrailError as error:
            # The outermost says it last: who wants to go on wants to go on with the whole.
            error.folder = folder.path
            raise

    def _driven(self, experiment: Experiment, folder: Any) -> Any:
        with (
            self.locked(experiment, folder),
            self._nothing_left_of_nothing(experiment, folder),
            stoppable(self._stopping, folder.resume_command, between=experiment.between),
        ):
            steps, answer, before = experiment.steps(folder), None, self._begun
            while True:
                try:
                    step = steps.send(answer)
                except StopIteration as ended:
                    result = ended.value
                    break
                answer = self._do(experiment, step, folder)
            with self.processes.together():
                # What was done before, to its page, is not written again.
                is_old = self._begun == before and folder.report.is_file() and experiment.known(folder) == result
                if self.processes.is_first and not is_old:
                    ensure_in_place(folder)
                    experiment.finish(folder, result, self)
            self.audience.result(experiment, result, folder)
            return result

    @contextmanager
    def locked(self, experiment: Experiment, folder: NamedFolder) -> Iterator[None]:
        """The lock of the whole, unless the kind takes it for its run alone, or for each write."""
        match experiment.locked_for:
            case "whole":
                with held(folder, self.processes, doing=experiment.doing):
                    yield
            case "write":
                with watched_over(folder):
                    yield
            case "run":
                yield

    def _do(self, experiment: Experiment, step: Step, folder: Any) -> Any:
        match step:
            case Run():
                return self._run(experiment, step, folder)
            case Part():
                return self._part(experiment, step, folder)
            case Work():
                return step.do(self)

    @contextmanager
    def between(self, folder: NamedFolder) -> Iterator[None]:
        """A moment at which a signal stops everything, and in which one need not wait."""
        self._stopping.obey(self.processes)
        with self.processes.together():
            ensure_in_place(folder)
        with self._stopping.interruptible():
            yield

    # A part.

    def _part(self, experiment: Experiment, part: Part, folder: Any) -> Ended:
        ended = Ended(folder=part.folder, title=part.title)
        try:
            if part.problem is not None:
                raise part.problem
            with self.between(folder):
                pass
            return replace(ended, **self._carried_out(experiment, part, folder))
        except (Stopped, DiskError, Elsewhere, LostProcess):
            raise
        except part.forgives as error:
            self.audience.failed(experiment, part, error)
            is_apart = part.problem is None and self.processes.ranks > 1 and not error.is_shared
            return replace(ended, failure=error, is_apart=is_apart)

    def _carried_out(self, experiment: Experiment, part: Part, folder: Any) -> dict[str, Any]:
        there = ExperimentFolder(folder.path / part.folder)
        is_done = self.processes.first_says(lambda: there.result.is_file() and there.config.is_file())
        self.audience.part(experiment, part, is_done=is_done)
        inner = self.processes.in_turn(lambda: part.make(self))
        place = inner.at(there.path, folder.resume_command)
        with self.processes.together():
            result = inner.known(place) if is_done else None
        if result is None:
            result = self.drive(inner, place)
        if part.after is not None:
            part.after(self, inner, result)
        return {"result": result, "experiment": inner, "is_old": is_done}

    # A run.

    def _run(self, experiment: Experiment, run: Run, whole: Any) -> Ended:
        folder, first_says = whole.run(run.folder), self.processes.first_says
        ended = Ended(folder=run.folder, title=run.title)
        try:
            if Diverged in run.forgives and first_says((folder.path / "diverged.json").exists):
                raise Diverged("the loss was not finite")
            done = self._done(experiment, run, folder, whole)
            ended = replace(ended, done=done, seconds=done["seconds"])
        except run.forgives as error:
            ended = replace(ended, failure=error, seconds=first_says(lambda: _seconds_so_far(folder)))
        if self.processes.is_first and not run.is_kept:
            shutil.rmtree(folder.checkpoints, ignore_errors=True)
        return ended

    def _done(self, experiment: Experiment, run: Run, folder: RunFolder, whole: Any) -> dict[str, Any]:
        """The last record of a run, which is trained first where it has not ended yet."""
        run = replace(run, config=beside(run.config, folder.path))
        if (record := self.processes.first_says(lambda: last_record(folder))) is not None:
            self._refuse_changes(run, folder, whole)
            return record
        with self.between(whole):
            session = self._session(run, folder, whole)
        if self.processes.is_first and run.folder and not whole.config.exists():
            # Not before: what cannot even begin leaves no plan behind.
            experiment.begun(whole, self)
        self._begun += 1
        self.audience.begins(experiment, run, session, folder, self._begun)
        done = session.progress
        self._tell(RunBegan(folder=str(folder.path), title=run.title, start=done.step, steps=done.steps))
        # So far its folder was only read; from here on a tracker writes, too.
        with held(folder, self.processes, doing="training"):
            outcome = self.train(session, folder, run)
        self.audience.ended(experiment, run, outcome, folder)
        self._tell(RunEnded(folder=str(folder.path), title=run.title))
        del session
        release_memory()
        if run.config.train.compile:
            # Else the compiler takes the next network for this one in a new shape, and gives up after a few.
            torch.compiler.reset()
        record = self.processes.first_says(lambda: last_record(folder))
        assert record is not None
        return record

    def _tell(self, event: Told) -> None:
        if self.how.on_event is not None:
            self.how.on_event(event)

    def train(self, session: Session, folder: RunFolder, run: Run) -> Outcome:
        """Train to the end with whoever watches, and write the page."""
        how, is_first = self.how, self.processes.is_first
        step = session.progress.step
        with (
            tracking(how.track if is_first else None, folder.path, to_json(session.config), step=step) as tracker,
            self.audience.watching(session, folder) as view,
        ):
            outcome = train(session, folder, several(view, tracker, *filter(None, [how.on_event])))
        if is_first and run.page != "later":
            ensure_in_place(folder)
            write_report(folder, outcome.source, outcome.predictions, look_inside=run.page == "whole")
        if run.is_shown:
            self.outcomes[folder.path] = outcome
        return outcome

    def has_ended(self, folder: RunFolder) -> bool:
        """Whether a run needs no more training."""
        return last_record(folder) is not None

    def open(self, data: DataConfig) -> RunData:
        """The images of a run, opened before it so that no bad file is met hours later."""
        found = self.processes.in_turn(
            lambda: open_run_data(data, self.how.device, self.audience.reading, self.processes.local_ranks)
        )
        self.opened[data] = found
        return found

    def _session(self, run: Run, folder: RunFolder, whole: Any) -> Session:
        how, processes = self.how, self.processes
        if processes.first_says(folder.config.exists):
            with processes.together():
                self._refuse_changes(run, folder, whole)
            return resume(folder, how.device, self.audience.reading, how.allowed, placement=how.placement)
        data = self.opened.pop(run.config.data, None) or self.open(self._here(run.config.data))
        self.opened.pop(run.config.data, None)
        return begin(run.config, data, folder, how.device, placement=how.placement, command=how.command)

    def _here(self, data: DataConfig) -> DataConfig:
        """The same data read from another place, or by more processes, where that was asked for."""
        place = {"workers": self.how.allowed.workers, "root": self.how.allowed.root}
        return replace(data, **{name: value for name, value in place.items() if value is not None})

    def _refuse_changes(self, run: Run, folder: RunFolder, whole: Any) -> None:
        """A plan that was edited must not be mixed with runs of the old one."""
        if self.how.allowed.changed or not run.folder:
            return
        found, wanted = read_run(folder).config, run.config
        # A plan may leave open how many images go at a time; a run writes down what it found.
        pieces = wanted.train.micro_batch or found.train.micro_batch
        wanted = replace(wanted, train=replace(wanted.train, micro_batch=pieces))
        if changes := differences(to_json(found), to_json(wanted)):
            raise UsageError(
                f"this run is not what the plan says: {'; '.join(changes)}",
                where=str(folder.path),
                fix=f"Change {whole.config} back, or go on with {setting('allow_changed', True)}.",
            )

    @contextmanager
    def _nothing_left_of_nothing(self, experiment: Experiment, folder: Any) -> Iterator[None]:
        """A mistake that is found before the first run has begun leaves no folder."""
        try:
            yield
        except BaseException:
            if self.processes.is_first and not experiment.has_begun(folder):
                for file in experiment.written(folder):
                    file.unlink(missing_ok=True)
                with suppress(OSError):
                    for path in (*folder.path.glob("*/"), folder.path):
                        path.rmdir()
            raise


def _seconds_so_far(folder: RunFolder) -> float:
    return max((record.get("seconds", 0.0) for record in read_log(folder.log)), default=0.0)
