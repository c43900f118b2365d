"""The folder of a self-training: its plan, what was taught and the student of each round, and the last model."""

import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitrail.config import to_json
from vitrail.data.sources.taught import RECORD
from vitrail.errors import VitrailError
from vitrail.experiments.selftrain_answers import PIECES
from vitrail.experiments.selftrain_plan import Plan
from vitrail.runtime.atomic import atomic_file, atomic_folder
from vitrail.runtime.json_text import json_text
from vitrail.runtime.processes import ALONE
from vitrail.training.folder import NamedFolder, PartFolder, RunFolder, command_line, read_record, versions
from vitrail.training.whole import held

FORMAT = "vitrail-selftrain/1"


@dataclass(frozen=True)
class SelftrainFolder(NamedFolder):
    """`runs/<name>/` of a self-training."""

    @property
    def result(self) -> Path:
        """What was found, as far as it has come."""
        return self.path / "selftrain.json"

    @property
    def resume_command(self) -> str:
        """What to type to go on."""
        return f"vitrail selftrain --resume {shlex.quote(str(self.path))}"

    def taught(self, number: int) -> Path:
        """What the teacher of a round labelled: `taught:` before it makes a data source."""
        return self.path / f"taught-{number}"

    def round(self, number: int) -> RunFolder:
        """The run of a student."""
        return PartFolder(self.path / f"round-{number}", self.resume_command)


@dataclass(frozen=True, kw_only=True)
class SelftrainRecord:
    """`config.json`: the plan, and how to do it again."""

    format: str
    plan: Plan
    command: str
    versions: dict[str, Any]


def write_plan(folder: SelftrainFolder, plan: Plan) -> None:
    """Write `config.json`, whole or not at all."""
    record = SelftrainRecord(format=FORMAT, plan=plan, command=command_line(), versions=versions(plan.config.model))
    with atomic_file(folder.config) as temporary:
        temporary.write_text(json_text(to_json(record), indent=2) + "\n", encoding="utf-8")


def read_plan(folder: SelftrainFolder) -> Plan:
    """Read the plan back."""
    others = {"vitrail-run/": f"`vitrail train --resume {folder.path}` goes on with a single run."}
    return read_record(folder, SelftrainRecord, FORMAT, "a self-training", others).plan


def can_replace(folder: SelftrainFolder, plan: Plan) -> bool:
    """Whether a plan may take the place of the one there: no student has begun, and what its teacher said stays of use.

    So the same command can be given again after it was refused, with another threshold or other options of the student.
    """
    try:
        before = read_plan(folder)
    except VitrailError:
        return False
    if folder.model.exists() or any(folder.path.glob("round-*/config.json")):
        return False
    first = folder.taught(1)
    if (first / RECORD).is_file():
        return _lesson_of(before) == _lesson_of(plan)
    return not any(first.glob(PIECES)) or _answers_of(before) == _answers_of(plan)


def begin_plan(folder: SelftrainFolder, plan: Plan) -> None:
    """Write a plan, also in the place of another, whose teacher may have been measured on other images."""
    with held(folder, ALONE):
        folder.result.unlink(missing_ok=True)
        write_plan(folder, plan)


def _answers_of(plan: Plan) -> tuple[Any, ...]:
    """Everything that decides what the teacher says."""
    return plan.teacher_fingerprint, plan.preprocessing, plan.unlabelled, plan.choice.labels


def _lesson_of(plan: Plan) -> tuple[Any, ...]:
    """Everything that decides what the student is taught."""
    return *_answers_of(plan), plan.choice, replace(plan.config.data, workers=None)


def keep_last(folder: SelftrainFolder, last: RunFolder) -> None:
    """Copy the model of the last student to where people look for it."""
    with atomic_folder(folder.model) as temporary:
        for file in last.model.iterdir():
            if file.is_file():
                shutil.copyfile(file, temporary / file.name)
