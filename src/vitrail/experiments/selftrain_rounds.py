"""What is done in the rounds of a self-training beside its runs: measuring, labelling, choosing, and comparing."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitrail.config import to_json
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
from vitrail.errors import DataError, UsageError, setting
from vitrail.evaluation import classify, measure
from vitrail.evaluation.subject import open_subject
from vitrail.experiments.experiment import Ended, keep_model
from vitrail.experiments.selftrain import Plan, SelftrainFolder, read_selftraining
from vitrail.experiments.selftrain_choosing import choose_images
from vitrail.experiments.selftrain_page import teaching_section
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
from vitrail.experiments.selftrain_teacher import Answers, Teacher, ask, forget, open_teacher
from vitrail.reports import write_report
from vitrail.runtime.out_of_memory import release_memory
from vitrail.runtime.threads import is_tiny, one_thread
from vitrail.training.whole import ensure_in_place
from vitrail.weights.folder import sidecar

if TYPE_CHECKING:
    from vitrail.experiments.driver import Driver

_MEASURING_BATCH = 64


class Rounds:
    """The pieces of work of a plan; each finds what is done of it already."""

    def __init__(self, plan: Plan, folder: SelftrainFolder) -> None:
        self.plan, self.folder = plan, folder
        self._driver: Driver | None = None

    @property
    def driver(self) -> "Driver":
        """Who carries it out."""
        assert self._driver is not None
        return self._driver

    @property
    def alike(self) -> Result:
        """A result like that of the first piece, for a rehearsal."""
        return Result(teacher=Model(name=self.plan.teacher), students=())

    def measure_teacher(self, driver: "Driver") -> Result:
        """What is known so far: at first, how good the teacher is."""
        self._driver = driver
        self._ensure_planned()
        if self.folder.result.is_file():
            return read_result(self.folder.result)
        with driver.between(self.folder):
            result = Result(teacher=self._measured(self._teacher(1)), students=())
        write_result(self.folder.result, result)
        return result

    def teaching(self, number: int) -> "Callable[[Driver], None]":
        """Label for a round, and say what its student is about to be taught."""

        def teach(driver: "Driver") -> None:
            taught, run = self.folder.taught(number), self.folder.round(number)
            with driver.between(self.folder):
                if not (taught / RECORD).is_file():
                    self._teach(number)
            # Of the teacher, which has to make room for the student.
            release_memory()
            if not run.log.is_file() or not driver.has_ended(run):
                record = read_record(taught)
                about = _about(record, read_lesson(taught, record))
                driver.audience.tell(self.plan, about, number=number)

        return teach

    def ending(self, number: int, before: Result, ended: Ended) -> "Callable[[Driver], Result]":
        """Write down what became of the student of a round, and keep its model."""

        def end(driver: "Driver") -> Result:
            taught, run = self.folder.taught(number), self.folder.round(number)
            record = read_record(taught)
            lesson = read_lesson(taught, record)
            metrics = sidecar(run.model).get("metrics", {})
            student = Model(
                name=run.path.name,
                fingerprint=open_subject(str(run.path), device=driver.how.device).fingerprint,
                held_out=score_of(metrics.get("held_out")),
                test=score_of(metrics.get("test")),
                taught=with_truth(_about(record, lesson), record, lesson),
                seconds=ended.seconds,
            )
            result = replace(before, students=(*before.students, student))
            ensure_in_place(self.folder)
            # The result last: a round that stands there is not trained again.
            keep_model(self.folder, run)
            write_result(self.folder.result, result)
            return result

        return end

    def showing(self, number: int, *, is_old: bool) -> "Callable[[Driver], None]":
        """Write the page of a round, unless that was done before."""

        def show(driver: "Driver") -> None:
            run = self.folder.round(number)
            if is_old and run.report.is_file():
                return
            driver.audience.tell(self.plan, read_result(self.folder.result), number=number, folder=self.folder)
            first, outcome = teaching_section(self.folder, number, shown=number), driver.outcomes.pop(run.path, None)
            if outcome is None:
                write_report(run, first=first)
            else:
                write_report(run, outcome.source, outcome.predictions, first=first)

        return show

    def _ensure_planned(self) -> None:
        """Of two processes that began under one name at one time, the plan of the later one stands there."""
        if to_json(read_selftraining(self.folder)) != to_json(self.plan):
            raise UsageError(
                "another process has begun anew in this folder",
                where=str(self.folder.path),
                fix=f"Go on with what it planned ({self.folder.resume_command}), or choose another {setting('name')}.",
            )

    @cached_property
    def _sets(self) -> Sets:
        if isinstance(self.driver.kept, Sets):
            return self.driver.kept
        allowed = self.driver.how.allowed
        labelled, root = self.plan.config.data, allowed.root
        place = {"workers": allowed.workers, "root": root}
        here = replace(labelled, **{name: value for name, value in place.items() if value is not None})
        for data in (labelled.data, self.plan.unlabelled.data):
            ensure_there(data)
        return open_sets(
            here,
            at_other_root(self.plan.unlabelled, labelled, root),
            self.driver.how.device,
            self.driver.audience.reading,
        )

    def _teacher(self, number: int) -> Teacher:
        """Who teaches a round: the student of the one before it."""
        plan, labelled = self.plan, self._sets.labelled.train
        if number > 1:
            return open_teacher(
                str(self.folder.round(number - 1).path), labelled.classes, plan.config.data.data, self.driver.how.device
            )
        where = self._first_teacher()
        teacher = open_teacher(
            where, labelled.classes, plan.config.data.data, self.driver.how.device, plan.preprocessing
        )
        if teacher.subject.fingerprint != plan.teacher_fingerprint:
            raise UsageError(
                "the weights there are no longer those that this was planned with",
                where=where,
                fix=f"Put them back, or begin anew under another {setting('name')}.",
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
        columns = torch.from_numpy(teacher.columns).to(self.driver.how.device)
        few = one_thread(is_tiny(subject.model, self.driver.how.device))
        with few, self.driver.audience.working(f"measuring the teacher on {source.split}", len(source)) as advance:
            said = classify(
                lambda images: subject.model(images)[:, columns],
                source,
                subject.preparation,
                batch_size=_MEASURING_BATCH,
                device=self.driver.how.device,
                workers=self._sets.labelled.workers,
                sigmoid=teacher.is_sigmoid,
                advance=advance,
            )
        return Score(accuracy=measure(said).accuracy, images=len(said))

    def _teach(self, number: int) -> None:
        """Label all images, choose among them, and write down what the student is to learn."""
        plan, sets, taught = self.plan, self._sets, self.folder.taught(number)
        teacher, images = self._teacher(number), sets.unlabelled
        with self.driver.audience.working(f"round {number}: the teacher labels", len(images)) as advance:
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
                f"The student of round {number - 1} is kept: {self.folder.model}. Begin anew under another "
                f"{setting('name')} with a lower {setting('threshold')}, or with longer {setting('train.epochs')}."
            )
        name = self.folder.path.name
        return (
            f"Give the same command with a lower {setting('threshold')} and {setting('name', name)}, and what the "
            f"teacher said is not asked again; or take a better teacher under another {setting('name')}."
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
