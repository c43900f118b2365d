"""Carry out a plan, round by round; what is done already is not done again."""

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitrail.config import RunConfig, to_json
from vitrail.data import Source
from vitrail.data.sources.taught import (
    RECORD,
    Lesson,
    TaughtRecord,
    ensure_there,
    read_lesson,
    read_record,
    write_taught,
)
from vitrail.errors import DataError, UsageError
from vitrail.evaluation import classify, measure
from vitrail.evaluation.subject import open_subject
from vitrail.experiments.selftrain_answers import Answers, ask, forget
from vitrail.experiments.selftrain_choosing import choose_images
from vitrail.experiments.selftrain_folder import SelftrainFolder, keep_last, read_plan
from vitrail.experiments.selftrain_plan import Plan, student
from vitrail.experiments.selftrain_result import (
    Model,
    Result,
    Score,
    Taught,
    read_result,
    score_of,
    with_truth,
    write_result,
)
from vitrail.experiments.selftrain_sets import Sets, at_other_root, open_sets
from vitrail.experiments.selftrain_teacher import Teacher, open_teacher
from vitrail.runtime.out_of_memory import release_memory
from vitrail.runtime.processes import ALONE
from vitrail.runtime.threads import is_tiny, one_thread
from vitrail.training.few_shot import Checking
from vitrail.training.folder import RunFolder
from vitrail.training.log import read_log
from vitrail.training.session import Session
from vitrail.training.sources import open_run_data
from vitrail.training.start import Allowed, begin, resume
from vitrail.training.stopping import Stopping
from vitrail.training.whole import ensure_in_place, held, stoppable
from vitrail.weights.folder import sidecar

Train = Callable[[Session, RunFolder], Any]
"""Trains a session to its end, and may show it."""
Watch = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows how far a piece of work on so many images has come."""
Tell = Callable[[int, Taught], None]
"""Is told what a student is about to be taught."""
Ended = Callable[[int], None]
"""Is told that a round has come to its end, and everything is written."""

_MEASURING_BATCH = 64


class SelfTraining:
    """The rounds of a plan, one after the other."""

    def __init__(
        self,
        plan: Plan,
        folder: SelftrainFolder,
        device: torch.device,
        *,
        checking: Checking,
        watch: Watch,
        tell: Tell,
        train: Train,
        ended: Ended = lambda _number: None,
        allowed: Allowed | None = None,
        sets: Sets | None = None,
    ) -> None:
        """`sets` are the images where they were opened already."""
        self.plan, self.folder, self.device = plan, folder, device
        self._checking, self._watch, self._tell, self._train, self._ended = checking, watch, tell, train, ended
        self._allowed, self._opened = allowed or Allowed(), sets
        self._stopping = Stopping()

    def run(self) -> Result:
        """Label, train, and begin again; raises `Stopped` when a signal came, with everything saved."""
        folder = self.folder
        with (
            held(folder, ALONE),
            stoppable(self._stopping, folder.resume_command, between="pieces of work"),
        ):
            self._ensure_planned()
            result = self._begun()
            for number in range(1, self.plan.rounds + 1):
                is_done = number <= len(result.students)
                ensure_in_place(folder)
                if not is_done:
                    result = replace(result, students=(*result.students, self._round(number)))
                    ensure_in_place(folder)
                    # The result last: a round that stands there is not trained again.
                    keep_last(folder, folder.round(number))
                    write_result(folder.result, result)
                if not (is_done and folder.round(number).report.is_file()):
                    self._ended(number)
            return result

    def _ensure_planned(self) -> None:
        """Of two processes that began under one name at one time, the plan of the later one stands there."""
        if to_json(read_plan(self.folder)) != to_json(self.plan):
            raise UsageError(
                "another process has begun anew in this folder",
                where=str(self.folder.path),
                fix=f"Go on with what it planned ({self.folder.resume_command}), or choose another --name.",
            )

    def _begun(self) -> Result:
        """What is known so far: at first, how good the teacher is."""
        if self.folder.result.is_file():
            return read_result(self.folder.result)
        with self._stopping.interruptible():
            result = Result(teacher=self._measured(self._teacher(1)), students=())
        write_result(self.folder.result, result)
        return result

    def _round(self, number: int) -> Model:
        taught, run = self.folder.taught(number), self.folder.round(number)
        if not (taught / RECORD).is_file():
            with self._stopping.interruptible():
                self._teach(number)
            # Of the teacher, which has to make room for the student.
            release_memory()
        record = read_record(taught)
        lesson = read_lesson(taught, record)
        about = _about(record, lesson)
        if (done := _last_record(run)) is None:
            self._tell(number, about)
            with self._stopping.interruptible():
                session = self._session(student(self.plan, number, taught), run)
            self._train(session, run)
            del session
            release_memory()
            if self.plan.config.train.compile:
                # Else the compiler takes the next network for this one in a new shape, and gives up after a few.
                torch.compiler.reset()
            done = _last_record(run)
            assert done is not None
        metrics = sidecar(run.model).get("metrics", {})
        return Model(
            name=run.path.name,
            fingerprint=open_subject(str(run.path), device=self.device).fingerprint,
            held_out=score_of(metrics.get("held_out")),
            test=score_of(metrics.get("test")),
            taught=with_truth(about, record, lesson),
            seconds=done["seconds"],
        )

    @cached_property
    def _sets(self) -> Sets:
        if self._opened is not None:
            return self._opened
        labelled, root = self.plan.config.data, self._allowed.root
        place = {"workers": self._allowed.workers, "root": root}
        here = replace(labelled, **{name: value for name, value in place.items() if value is not None})
        for data in (labelled.data, self.plan.unlabelled.data):
            ensure_there(data)
        return open_sets(here, at_other_root(self.plan.unlabelled, labelled, root), self.device, self._checking)

    def _teacher(self, number: int) -> Teacher:
        """Who teaches a round: the student of the one before it."""
        plan, labelled = self.plan, self._sets.labelled.train
        if number > 1:
            return open_teacher(
                str(self.folder.round(number - 1).path), labelled.classes, plan.config.data.data, self.device
            )
        where = self._first_teacher()
        teacher = open_teacher(where, labelled.classes, plan.config.data.data, self.device, plan.preprocessing)
        if teacher.subject.fingerprint != plan.teacher_fingerprint:
            raise UsageError(
                "the weights there are no longer those that this was planned with",
                where=where,
                fix="Put them back, or begin anew under another --name.",
            )
        return teacher

    def _first_teacher(self) -> str:
        """Where the teacher is: at its old place, or beside this folder, with which it may have been moved."""
        stored = Path(self.plan.teacher)
        if not stored.is_absolute() or stored.exists():
            return self.plan.teacher
        if (moved := self.folder.path.absolute().parent / stored.name).exists():
            return str(moved)
        raise UsageError(
            "the teacher of this self-training is not there any more",
            wanted="the same weights in the same place",
            where=self.plan.teacher,
            fix=f"Move it back, or lead there by a link: ln -s NEW_PLACE {shlex.quote(self.plan.teacher)}",
        )

    def _measured(self, teacher: Teacher) -> Model:
        """How good a teacher is on the very images that its students are measured on."""
        data = self._sets.labelled
        return Model(
            name=teacher.subject.name,
            fingerprint=teacher.subject.fingerprint,
            held_out=self._score(teacher, data.held_out),
            test=self._score(teacher, data.test),
        )

    def _score(self, teacher: Teacher, source: Source | None) -> Score | None:
        if source is None:
            return None
        subject = teacher.subject
        columns = torch.from_numpy(teacher.columns).to(self.device)
        few = one_thread(is_tiny(subject.model, self.device))
        with few, self._watch(f"measuring the teacher on {source.split}", len(source)) as advance:
            said = classify(
                lambda images: subject.model(images)[:, columns],
                source,
                subject.preparation,
                batch_size=_MEASURING_BATCH,
                device=self.device,
                workers=self._sets.labelled.workers,
                sigmoid=teacher.is_sigmoid,
                advance=advance,
            )
        return Score(accuracy=measure(said).accuracy, images=len(said))

    def _teach(self, number: int) -> None:
        """Label all images, choose among them, and write down what the student is to learn."""
        plan, sets, taught = self.plan, self._sets, self.folder.taught(number)
        teacher, images = self._teacher(number), sets.unlabelled
        with self._watch(f"round {number}: the teacher labels", len(images)) as advance:
            answers = ask(
                teacher,
                images,
                taught,
                is_soft=plan.choice.labels == "soft",
                workers=plan.config.data.workers,
                advance=advance,
            )
        classes = sets.labelled.train.classes
        chosen = choose_images(answers.guesses, answers.confidence, len(classes), plan.choice)
        if not len(chosen):
            raise DataError(
                f"the teacher is sure of none of the {len(images):,} unlabelled images: its surest guess has "
                f"{answers.confidence.max():.2f}",
                wanted=f"a confidence of {plan.choice.threshold:g} or more",
                where=teacher.subject.name,
                fix=self._less_sure(number),
            )
        labelled, unlabelled = sets.origins
        write_taught(
            taught,
            TaughtRecord(
                classes=classes,
                labelled=labelled,
                unlabelled=unlabelled,
                lineage=self._lineage(number, teacher, answers, chosen),
            ),
            Lesson(
                learnt=sets.learnt,
                held_out=sets.held_out,
                taught=images.ids(chosen),
                classes=answers.guesses[chosen],
                shares=None if answers.shares is None else answers.shares[chosen],
            ),
        )
        forget(taught)

    def _less_sure(self, number: int) -> str:
        """What to do when the teacher of a round is sure of nothing."""
        if number > 1:
            return (
                f"The student of round {number - 1} is kept: {self.folder.model}. Begin anew under another --name with "
                "a lower --threshold, or with longer --epochs."
            )
        name = shlex.quote(self.folder.path.name)
        return (
            f"Give the same command with a lower --threshold and --name {name}, and what the teacher said is not "
            "asked again; or take a better teacher under another --name."
        )

    def _lineage(self, number: int, teacher: Teacher, answers: Answers, chosen: np.ndarray) -> dict[str, Any]:
        """What travels with the student: who taught it, and what."""
        sets, model = self._sets, teacher.subject.model
        counts = np.bincount(answers.guesses[np.unique(chosen)], minlength=len(teacher.columns))
        return {
            "round": number,
            "teacher": teacher.subject.name,
            "teacher_fingerprint": teacher.subject.fingerprint,
            "teacher_provenance": dict(model.provenance),
            **to_json(self.plan.choice),
            "labelled": f"{sets.origins[0].data}, {sets.origins[0].split}",
            "labelled_images": len(sets.labelled.train),
            "unlabelled": f"{sets.origins[1].data}, {sets.origins[1].split}",
            "unlabelled_images": len(answers),
            "sure_images": int((answers.confidence >= self.plan.choice.threshold).sum()),
            "images": len(np.unique(chosen)),
            "copies": len(chosen),
            "unseen": [name for name, found in zip(sets.labelled.train.classes, counts, strict=True) if not found],
        }

    def _session(self, config: RunConfig, run: RunFolder) -> Session:
        if run.config.exists():
            return resume(run, self.device, self._checking, self._allowed)
        place = {"workers": self._allowed.workers, "root": self._allowed.root}
        here = replace(config.data, **{name: value for name, value in place.items() if value is not None})
        return begin(config, open_run_data(here, self.device, self._checking), run, self.device)


def _about(record: TaughtRecord, lesson: Lesson) -> Taught:
    lineage, found = record.lineage, np.unique(lesson.classes)
    return Taught(
        offered=int(lineage.get("unlabelled_images", 0)),
        images=len(np.unique(lesson.taught)),
        copies=len(lesson.taught),
        sure=lineage.get("sure_images"),
        unseen=tuple(map(str, lineage.get("unseen", ()))),
        only=record.classes[found[0]] if len(found) == 1 and len(record.classes) > 1 else None,
    )


def _last_record(run: RunFolder) -> dict[str, Any] | None:
    """The "done" of a finished run."""
    records = list(read_log(run.log, needs_numbers=True)) if run.log.is_file() else []
    return records[-1] if records and records[-1]["event"] == "done" else None
