"""The training loop: batch, step, log, evaluate, save."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from vitrail.config import to_json
from vitrail.data import Batch, Stream
from vitrail.data.loading.workers import WorkerError
from vitrail.errors import DataError, UsageError, also, notice, setting
from vitrail.runtime.out_of_memory import is_out_of_memory, release_memory
from vitrail.training import checkpoint as checkpoints
from vitrail.training.divergence import MOST_IN_A_ROW, MOST_ROLLBACKS, RATE_FACTOR, Diverged, NotFinite, write_diverged
from vitrail.training.estimate import try_seconds_per_image
from vitrail.training.events import (
    Evaluated,
    Evaluating,
    Event,
    FewShotScored,
    LengthSet,
    MicroBatchHalved,
    PieceDone,
    RecordsLost,
    RolledBack,
    Saved,
    Skipped,
    Stepped,
    Trained,
)
from vitrail.training.few_shot import FewShot
from vitrail.training.finish import keep_model
from vitrail.training.folder import RunFolder
from vitrail.training.log import Log
from vitrail.training.memory import OutOfMemory, smallest_piece
from vitrail.training.newest import newest_of_all
from vitrail.training.progress import Best
from vitrail.training.schedule import epoch_of, evaluation_interval, is_milestone, micro_batch, total_steps
from vitrail.training.session import Session
from vitrail.training.step import Happened
from vitrail.training.stopping import Interrupted, Stopped, Stopping

_LOSSES_REMEMBERED = 100

Measured = TypeVar("Measured")


class Loop:
    """One run from its present step to its last; whatever happens, the folder holds enough to go on."""

    def __init__(self, session: Session, folder: RunFolder, log: Log, stopping: Stopping) -> None:
        self.session, self.folder, self.log, self.stopping = session, folder, log, stopping
        self.processes = session.processes
        self.pace = Pace(session.progress.seconds)
        self._images = len(session.data.train)
        self._every = evaluation_interval(session.config.train, self._images)
        self._unread = 0
        self._not_finite: NotFinite | None = None
        self._losses: deque[float] = deque(maxlen=_LOSSES_REMEMBERED)

    def tell_lost(self, records: int) -> None:
        """Records of the log that could not be read or were gone: what was computed does not depend on them."""
        self._happened(RecordsLost(step=self.session.progress.step, records=records))

    def run(self) -> None:
        """Train to the end; losses that are not finite and memory that runs out are met on the way."""
        session = self.session
        if self.processes.told(not checkpoints.listed(self.folder.checkpoints)):
            self.save()
            self._guess_length()
        while session.progress.step < session.progress.steps or self._owes_evaluation():
            try:
                if self._owes_evaluation():
                    self._evaluate()
                    self.save()
                    continue
                with closing(session.batches()) as batches:  # type: ignore[type-var]
                    self._train(batches)
            except Interrupted:
                session.step.clear()
                self._stop()
            except NotFinite as error:
                self._roll_back(error)
            except (DataError, WorkerError):
                if self._save_alone():
                    notice(
                        f"Everything up to step {session.progress.step:,} is saved. "
                        f"To go on: {self.folder.resume_command}"
                    )
                raise
            except Exception as error:
                if (lost := self.processes.lost(error)) is not None:
                    # A GPU would wait for ever for the one that is gone before it gave anything away.
                    if session.device.type != "cuda":
                        self._save_alone()
                    raise lost from None
                if not is_out_of_memory(error):
                    raise
                self._halve(str(error))

    def _train(self, batches: Iterator[Batch]) -> None:
        session, train = self.session, self.session.config.train
        while session.progress.step < session.progress.steps:
            self._update(batches)
            step = session.progress.step
            is_due = self._owes_evaluation()
            is_asked, is_late = self.processes.agree(
                self.stopping.is_asked, self.pace.minutes_since_save() >= train.save_minutes
            )
            if is_due or step % train.log_every == 0:
                self._write_log()
                self._set_length()
            elif session.device.type == "cpu":
                self._set_length()
            if self._not_finite is not None:
                raise self._not_finite
            if is_due:
                self._evaluate()
            if is_due or is_late:
                self.save()
            if is_asked and step < session.progress.steps:
                self._stop()

    def _update(self, batches: Iterator[Batch]) -> None:
        """One update: every micro-batch forward and backward, then the optimiser."""
        session, step = self.session, self.session.step
        last = session.accumulation - 1
        for micro in range(session.accumulation):
            with self.pace.waiting_for_data(), self.stopping.interruptible():
                batch = next(batches)
            session.seed_dropout(micro)
            step.accumulate(batch.images, batch.targets, is_last=micro == last)
            if micro < last:
                done, whole = (micro + 1) * session.progress.micro_batch, session.config.train.batch_size
                self.log.watcher(PieceDone(step=session.progress.step + 1, images=done, of=whole))
        session.set_numbers()
        step.update()
        session.progress = replace(session.progress, step=session.progress.step + 1)
        self._unread += 1
        self.pace.count(session.config.train.batch_size)
        self.log.watcher(Stepped(step=session.progress.step))

    def _write_log(self) -> None:
        """Read what the last updates saw, write the mean of it, and look whether it was finite."""
        if not self._unread:
            return
        session, step = self.session, self.session.progress.step
        seen = session.engine.read(self._unread)
        first, self._unread = step - self._unread + 1, 0
        for number, happened in enumerate(seen, start=first):
            self._judge(number, happened)
        finite = [happened for happened in seen if happened.was_finite]
        if finite:
            self.log.write(self._trained(step, finite))

    def _judge(self, number: int, happened: Happened) -> None:
        session = self.session
        self._losses.append(happened.loss)
        if happened.was_finite:
            session.progress = replace(session.progress, bad_in_a_row=0)
            return
        bad = session.progress.bad_in_a_row + 1
        session.progress = replace(session.progress, bad_in_a_row=bad)
        self.log.write(Skipped(step=number, reason="loss or gradient is not finite"))
        if bad >= MOST_IN_A_ROW and self._not_finite is None:
            self._not_finite = NotFinite(number)

    def _trained(self, step: int, finite: list[Happened]) -> Trained:
        train = self.session.config.train
        return Trained(
            step=step,
            epoch=round(epoch_of(step, train.batch_size, self._images), 4),
            loss=sum(happened.loss for happened in finite) / len(finite),
            accuracy=sum(happened.accuracy for happened in finite) / len(finite),
            learning_rate=self.session.last_rate,
            gradient_norm=finite[-1].gradient_norm,
            **self.pace.measured(self.session.device),
        )

    def _evaluate(self) -> None:
        """Measure on held-out images, and keep the model when it is the best so far, or the last."""
        session = self.session
        held_out, step = session.data.held_out, session.progress.step
        is_last = step == session.progress.steps
        if session.data.few_shot is not None:
            # First, because a stop in the middle of it must find the evaluation all undone.
            self._score(session.data.few_shot)
        metrics = None
        if held_out is not None:
            with self.pace.paused(), self.stopping.interruptible():
                metrics = self._within_memory(lambda: session.evaluate(held_out, self._evaluated))
            loss = metrics.loss if math.isfinite(metrics.loss) else sys.float_info.max
            found = Best(accuracy=metrics.accuracy, loss=loss, step=step)
            is_best = session.progress.best is None or session.progress.best.is_beaten_by(found)
            if is_best:
                session.progress = replace(session.progress, best=found)
            self.log.write(Evaluated(step=step, **metrics.record(), is_best=is_best))
        else:
            is_best = is_last
        keeps_last = session.config.train.keep == "last" or held_out is None
        if is_last if keeps_last else is_best:
            # The lines that tell of a model are on disk before it is, in the folder that it belongs to.
            self.log.sync()
            keep_model(session, self.folder, metrics)
        session.progress = replace(session.progress, evaluated=step)

    def _score(self, few_shot: FewShot) -> None:
        """Tell how good the features are for another data set."""
        with self.pace.paused(), self.stopping.interruptible():
            found = self._within_memory(lambda: self.session.few_shot(few_shot, self._heard))
        self.log.write(FewShotScored(step=self.session.progress.step, **found))

    def _owes_evaluation(self) -> bool:
        """Whether an epoch has just ended, or the run, and has not been measured; a stop may have come between."""
        progress, batch_size = self.session.progress, self.session.config.train.batch_size
        is_due = progress.step == progress.steps or (
            progress.step > 0 and is_milestone(progress.step, self._every, batch_size, self._images)
        )
        return is_due and progress.evaluated != progress.step

    def _within_memory(self, measuring: Callable[[], Measured]) -> Measured:
        """What is measured; an evaluation has made itself as small as it can before it runs out of memory."""
        try:
            return measuring()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            release_memory()
            saved = ", and everything is saved" if self._save_alone() else ""
            raise OutOfMemory(
                f"memory ran out in evaluation with {'one image' if self.session.spread.has_all else 'so many images'} "
                f"at a time{saved}",
                fix=f"Free some memory; to go on: {self.folder.resume_command}",
            ) from error

    def _evaluated(self, images: int) -> None:
        self.log.watcher(Evaluating(step=self.session.progress.step, images=images * self.processes.ranks))
        self.stopping.obey(self.processes)

    def _heard(self, _images: int) -> None:
        """Several processes read these images by themselves and then fail together: they do not agree in between."""
        if self.processes.ranks == 1:
            self.stopping.obey(self.processes)

    def save(self) -> None:
        """Write a complete checkpoint; the first process does, and the others wait for it."""
        self._write_log()
        with self.pace.paused():
            tensors = self.session.tensors()
            if self.processes.is_first:
                self._write_checkpoint(tensors)
            self.processes.wait()
        self.pace.saved()
        self.log.watcher(Saved(step=self.session.progress.step))

    def _write_checkpoint(self, tensors: checkpoints.Tensors) -> None:
        session = self.session
        session.progress = replace(session.progress, seconds=self.pace.seconds(), records=self.log.records)
        self.log.sync()
        state = {
            "progress": session.progress.to_json(),
            "config": to_json(session.config),
            "data": session.digest,
            "processes": self.processes.ranks,
        }
        checkpoints.save(self.folder.checkpoints, session.progress.step, tensors, state)

    def _save_alone(self) -> bool:
        """Save what an error leaves intact, without the other processes, which may be gone; no update was begun."""
        session = self.session
        if not (self.processes.is_first and session.spread.has_all):
            return False
        session.step.clear()
        self._write_log()
        self._write_checkpoint(session.tensors())
        return True

    def _stop(self) -> None:
        self.save()
        step, steps = self.session.progress.step, self.session.progress.steps
        raise Stopped(
            f"stopped after step {step:,} of {steps:,}, and everything is saved",
            fix=f"To go on: {self.folder.resume_command}",
        )

    def _guess_length(self) -> None:
        """A first guess for a run with a time limit, so that its warm-up has about the right length from the start."""
        train = self.session.config.train
        if train.time_limit is None:
            return
        each = self.processes.told(try_seconds_per_image(self.session))
        if each is not None:
            self._plan(max(int(60 * train.time_limit * self.processes.ranks / (each * train.batch_size)), 1))

    def _set_length(self) -> None:
        """With a time limit, the speed decides how many steps there will be; it is looked at a few times."""
        limit, progress = self.session.config.train.time_limit, self.session.progress
        if limit is None:
            return
        if self.pace.seconds() >= 60 * limit:
            steps: int | None = progress.step
        else:
            steps = self.pace.steps_within(60 * limit, progress.step)
        # The clock of one process counts for all.
        if (steps := self.processes.told(steps)) is not None:
            self._plan(steps)

    def _plan(self, steps: int) -> None:
        """So many steps in all, but never more than the run was asked to have."""
        progress = self.session.progress
        steps = min(steps, total_steps(self.session.config.train, self._images))
        if steps != progress.steps:
            self._happened(LengthSet(step=progress.step, steps=steps), steps=steps)

    def _halve(self, reason: str) -> None:
        """Memory ran out: half as many images at a time, the same batch, and the step again from its beginning."""
        session, train = self.session, self.session.config.train
        smallest = smallest_piece(session.config)
        before = session.progress.micro_batch
        if not session.spread.is_alone:
            if session.device.type != "cuda":
                self._save_alone()
            each = -(-before // self.processes.ranks)
            fewer = f"To go on with fewer: {also(self.folder.resume_command, micro_batch=each // 2)}"
            raise OutOfMemory(
                f"memory ran out in process {self.processes.rank} with {each} image{'s' if each > 1 else ''} at a time "
                f"({reason.splitlines()[0]})",
                fix=fewer
                if each // 2 >= smallest
                else f"Use a smaller {setting('image_size')} or network, or more processes.",
            )
        session.step.clear()
        self._write_log()
        session.drop_step()
        release_memory()
        try:
            size = micro_batch(before // 2, train.batch_size, smallest)
        except UsageError:
            session.rebuild_step()
            self.save()
            raise OutOfMemory(
                f"memory ran out with {before} image{'s' if before > 1 else ''} at a time ({reason.splitlines()[0]})",
                fix=f"Use a smaller {setting('image_size')} or network, or "
                f"{setting('train.checkpoint_activations', True)}; everything is saved, and with more memory "
                f"{self.folder.resume_command} goes on.",
            ) from None
        event = MicroBatchHalved(step=session.progress.step, before=before, micro_batch=size)
        session.rebuild_step()
        self._happened(event, micro_batch=size, each=size)

    def _roll_back(self, error: NotFinite) -> None:
        """Back to the last checkpoint, with half the learning rate from there on."""
        session = self.session
        if session.progress.rollbacks >= MOST_ROLLBACKS:
            self._give_up(error)
        good = newest_of_all(self.folder, self.processes)
        assert good is not None
        events = session.progress.events
        session.load(good)
        self.processes.wait()
        if self.processes.is_first:
            checkpoints.clean(self.folder.checkpoints, good.path)
        self._unread, self._not_finite = 0, None
        self.log.rewind(session.progress.records, events)
        factor = session.progress.rate_factor * RATE_FACTOR
        session.progress = replace(session.progress, events=events, bad_in_a_row=0)
        event = RolledBack(step=session.progress.step, before=error.step, rate_factor=factor)
        self._happened(event, rate_factor=factor)

    def _give_up(self, error: NotFinite) -> None:
        session = self.session
        path = self.folder.path / "diverged.json"
        stream = Stream(length=self._images, batch_size=session.config.train.batch_size, seed=session.config.train.seed)
        record = {
            "step": error.step,
            "learning_rate": session.rate(),
            "losses": [loss if math.isfinite(loss) else str(loss) for loss in self._losses],
            "rollbacks": session.progress.rollbacks,
        }
        if self.processes.is_first:
            write_diverged(path, record, session.data.train, stream, error.step)
        files = [session.data.train.where(int(index)) for index in stream.step(error.step - 1).indices[:3]]
        raise Diverged(
            f"the loss is not finite at step {error.step:,}, after {MOST_ROLLBACKS} returns to a good checkpoint with "
            f"half the learning rate each; the batch begins with {', '.join(files)}",
            fix=f"{path} names all files of the last batches; try a smaller {setting('optim.lr')}"
            + (f", or {setting('optim.clip', 1)}." if session.config.optim.clip is None else "."),
        )

    def _happened(self, event: Event, **changes) -> None:
        """Something that cannot be computed ahead: in a checkpoint at once, so that it is replayed, and in the log."""
        self.session.progress = self.session.progress.with_event(event, **changes)
        self.save()
        self.log.write(event)


# Compiling and the first touches of memory are over by then.
_STEPS_TO_SETTLE = 10
_SHARE_TO_SETTLE = 0.02
# When a run with a time limit is planned anew, because the machine is faster or slower than it was.
_PLANNED_AT = (0.05, 0.2, 0.4, 0.6, 0.8)
# Left for evaluations and saves.
_RESERVE = 0.03


class Pace:
    """A stopwatch for training alone: evaluations and saves are left out of the speed, not of the time."""

    def __init__(self, seconds_before: float) -> None:
        self._begin = time.monotonic() - seconds_before
        self._saved = time.monotonic()
        self._steps = 0
        self._mark: tuple[int, float] | None = None
        self._plans = 0
        self._start_interval()

    def seconds(self) -> float:
        """Time spent on the run."""
        return time.monotonic() - self._begin

    def count(self, images: int) -> None:
        """One more update."""
        self._interval_images += images
        self._steps += 1

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Time in here is data wait."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._interval_wait += time.monotonic() - begin

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here is not training."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._interval_begin += time.monotonic() - begin

    def measured(self, device: torch.device) -> dict[str, Any]:
        """The numbers since the last call."""
        span = max(time.monotonic() - self._interval_begin, 1e-9)
        record = {
            "images_per_second": round(self._interval_images / span, 2),
            "data_wait": round(min(self._interval_wait / span, 1.0), 4),
            "seconds": round(self.seconds(), 3),
        }
        if device.type == "cuda":
            record["memory_bytes"] = torch.cuda.max_memory_allocated(device)
        self._start_interval()
        return record

    def steps_within(self, limit: float, step: int) -> int | None:
        """How many updates fit into a limit in seconds, at the speed since it was last asked; now and then, else none.

        To be asked when the device has nothing left to do, else work that was only handed to it would count as done.
        """
        if self._mark is None:
            if self._steps >= _STEPS_TO_SETTLE or (self._steps and self.seconds() > _SHARE_TO_SETTLE * limit):
                self._mark = self._steps, time.monotonic()
            return None
        steps, since = self._mark
        plans = sum(self.seconds() >= share * limit for share in _PLANNED_AT)
        if plans == self._plans or self._steps == steps:
            return None
        each = (time.monotonic() - since) / (self._steps - steps)
        self._mark, self._plans = (self._steps, time.monotonic()), plans
        return step + max(int(((1 - _RESERVE) * limit - self.seconds()) / each), 1)

    def minutes_since_save(self) -> float:
        """Time that a kill would lose."""
        return (time.monotonic() - self._saved) / 60

    def saved(self) -> None:
        """A checkpoint is on disk."""
        self._saved = time.monotonic()

    def _start_interval(self) -> None:
        self._interval_begin = time.monotonic()
        self._interval_images, self._interval_wait = 0, 0.0
