"""Carry out a plan: every run resumes by itself, and so does the whole."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch

from vitrail.config import DataConfig, from_json, to_json
from vitrail.errors import UsageError
from vitrail.experiments.finetune_folder import FinetuneFolder, keep_first, write_plan
from vitrail.experiments.finetune_plan import Plan, PlannedRun, final_runs, sweep_runs
from vitrail.experiments.finetune_result import Final, Measured, Result, Trial, choose_rate, make_result, write_result
from vitrail.runtime.out_of_memory import release_memory
from vitrail.runtime.processes import ALONE
from vitrail.training.divergence import Diverged
from vitrail.training.finish import Outcome
from vitrail.training.folder import RunFolder, differences, read_run
from vitrail.training.log import read_log
from vitrail.training.session import Session
from vitrail.training.sources import Checking, open_run_data
from vitrail.training.spreading import Placement
from vitrail.training.start import Allowed, begin, resume
from vitrail.training.stopping import Stopping
from vitrail.training.whole import ensure_in_place, held, stoppable

Train = Callable[[Session, RunFolder, PlannedRun], Outcome]
"""Trains a session to its end, and may show it: `vitrail.training.run.run` with a view around it."""


class Finetuning:
    """The runs of a plan, one after the other; what is done already is not done again."""

    def __init__(
        self,
        plan: Plan,
        folder: FinetuneFolder,
        device: torch.device,
        checking: Checking,
        train: Train,
        allowed: Allowed | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.plan, self.folder, self.device = plan, folder, device
        self._checking, self._train, self._allowed = checking, train, allowed or Allowed()
        self._placement = placement
        self._processes = ALONE if placement is None else placement.processes
        self._stopping = Stopping(is_alone=self._processes.ranks == 1)

    def run(self) -> Result:
        """Sweep, choose, train on everything, and write the result; raises `Stopped` when a signal came."""
        with (
            held(self.folder, self._processes),
            self._nothing_left_of_nothing(),
            stoppable(self._stopping, self.folder.resume_command, between="runs"),
        ):
            trials = [self._trial(run) for run in sweep_runs(self.plan)]
            chosen = choose_rate(trials).lr if trials else self.plan.rates[0]
            planned = final_runs(self.plan, chosen)
            finals = [self._final(run) for run in planned]
            result = make_result(self.plan, trials, chosen, finals)
            with self._processes.together():
                if self._processes.is_first:
                    ensure_in_place(self.folder)
                    keep_first(self.folder, self.folder.run(planned[0].folder))
                    write_result(self.folder.result, result)
            return result

    def _trial(self, run: PlannedRun) -> Trial:
        """A rate that leads nowhere is a finding, not the end."""
        folder = self.folder.run(run.folder)
        first_says = self._processes.first_says
        try:
            done = None if first_says((folder.path / "diverged.json").exists) else self._done(run)
        except Diverged:
            done = None
        if self._processes.is_first:
            # A run that has ended and was only to choose a rate need not be able to go on.
            shutil.rmtree(folder.checkpoints, ignore_errors=True)
        measured, seconds = (
            (_measured(done), done["seconds"]) if done else (None, first_says(lambda: _seconds_so_far(folder)))
        )
        return Trial(lr=run.config.optim.lr, folder=run.folder, measured=measured, seconds=seconds)

    def _final(self, run: PlannedRun) -> Final:
        done = self._done(run)
        return Final(seed=run.config.train.seed, folder=run.folder, measured=_measured(done), seconds=done["seconds"])

    def _done(self, run: PlannedRun) -> dict[str, Any]:
        """The last record of a run, which is trained first where it has not ended yet."""
        folder = self.folder.run(run.folder)
        if (record := self._processes.first_says(lambda: _last_record(folder))) is None:
            self._stopping.obey(self._processes)
            with self._processes.together():
                ensure_in_place(self.folder)
            with self._stopping.interruptible():
                session = self._session(run, folder)
            # Not before: what cannot even begin leaves no plan behind.
            if self._processes.is_first and not self.folder.config.exists():
                write_plan(self.folder, self.plan)
            self._train(session, folder, run)
            del session
            release_memory()
            if run.config.train.compile:
                # Else the compiler takes the next network for this one in a new shape, and gives up after a few.
                torch.compiler.reset()
            record = self._processes.first_says(lambda: _last_record(folder))
            assert record is not None
        else:
            self._refuse_changes(run, folder)
        return record

    def _session(self, run: PlannedRun, folder: RunFolder) -> Session:
        processes = self._processes
        if processes.first_says(folder.config.exists):
            with processes.together():
                self._refuse_changes(run, folder)
            return resume(folder, self.device, self._checking, self._allowed, placement=self._placement)
        where = self._here(run.config.data)
        data = processes.in_turn(lambda: open_run_data(where, self.device, self._checking, processes.local_ranks))
        return begin(run.config, data, folder, self.device, placement=self._placement)

    def _here(self, data: DataConfig) -> DataConfig:
        """The same data read from another place, or by more processes, where that was asked for."""
        place = {"workers": self._allowed.workers, "root": self._allowed.root}
        return replace(data, **{name: value for name, value in place.items() if value is not None})

    def _refuse_changes(self, run: PlannedRun, folder: RunFolder) -> None:
        """A plan that was edited must not be mixed with runs of the old one."""
        if self._allowed.changed:
            return
        found, wanted = read_run(folder).config, run.config
        # A plan may leave open how many images go at a time; a run writes down what it found.
        pieces = wanted.train.micro_batch or found.train.micro_batch
        wanted = replace(wanted, train=replace(wanted.train, micro_batch=pieces))
        if changes := differences(to_json(found), to_json(wanted)):
            raise UsageError(
                f"this run is not what the plan says: {'; '.join(changes)}",
                where=str(folder.path),
                fix=f"Change {self.folder.config} back, or go on with --allow-changed.",
            )

    @contextmanager
    def _nothing_left_of_nothing(self) -> Iterator[None]:
        """A mistake that is found before the first run has begun leaves no folder."""
        try:
            yield
        except BaseException:
            if self._processes.is_first and not self.folder.config.exists():
                self.folder.lock.unlink(missing_ok=True)
                with suppress(OSError):
                    self.folder.path.rmdir()
            raise


def _last_record(folder: RunFolder) -> dict[str, Any] | None:
    """The "done" of a finished run."""
    records = list(read_log(folder.log, needs_numbers=True)) if folder.log.is_file() else []
    return records[-1] if records and records[-1]["event"] == "done" else None


def _measured(done: dict[str, Any]) -> Measured | None:
    metrics = done["metrics"]
    if metrics is not None and metrics["loss"] is None:
        # JSON has no infinity; a network whose answers are not finite is as bad as can be, and was measured.
        metrics = {**metrics, "loss": sys.float_info.max}
    return None if metrics is None else from_json(Measured, metrics, where="the log of a run")


def _seconds_so_far(folder: RunFolder) -> float:
    return max((record.get("seconds", 0.0) for record in read_log(folder.log)), default=0.0)
