"""The folder of a fine-tuning: its plan, the runs it is made of, its result and the model that is kept."""

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitrail.config import to_json
from vitrail.errors import UsageError
from vitrail.experiments.finetune_plan import Plan
from vitrail.experiments.finetune_result import Result, summary
from vitrail.reports import Summary, write_report
from vitrail.runtime.atomic import atomic_file, atomic_folder
from vitrail.runtime.json_text import json_text
from vitrail.training.finish import Outcome
from vitrail.training.folder import (
    NamedFolder,
    PartFolder,
    RunFolder,
    also_processes,
    command_line,
    read_record,
    versions,
)

FORMAT = "vitrail-finetune/1"


@dataclass(frozen=True)
class FinetuneFolder(NamedFolder):
    """The folder of a fine-tuning: its plan, its runs, and the model of the first seed."""

    @property
    def result(self) -> Path:
        """What was found, once all runs are done."""
        return self.path / "result.json"

    @property
    def resume_command(self) -> str:
        """What to type to go on."""
        return f"vitrail finetune --resume {shlex.quote(str(self.path))}{also_processes()}"

    def run(self, folder: str) -> RunFolder:
        """The folder of one of its runs."""
        return PartFolder(self.path / folder, self.resume_command)


@dataclass(frozen=True, kw_only=True)
class FinetuneRecord:
    """`config.json`: the plan, and how to do it again."""

    format: str
    plan: Plan
    command: str
    """What a person typed."""
    versions: dict[str, Any]


def ensure_new(folder: FinetuneFolder) -> None:
    """Refuse a folder that holds a run or a fine-tuning already."""
    if folder.config.exists():
        raise UsageError(
            "there is a run already",
            where=str(folder.path),
            fix=f"Go on with it ({folder.resume_command}), or choose another --name.",
        )


def write_plan(folder: FinetuneFolder, plan: Plan) -> None:
    """Write `config.json`, whole or not at all."""
    record = FinetuneRecord(format=FORMAT, plan=plan, command=command_line(), versions=versions())
    with atomic_file(folder.config) as temporary:
        temporary.write_text(json_text(to_json(record), indent=2) + "\n", encoding="utf-8")


def read_plan(folder: FinetuneFolder) -> Plan:
    """Read the plan back."""
    return _read_record(folder).plan


def _read_record(folder: FinetuneFolder) -> FinetuneRecord:
    others = {"vitrail-run/": f"`vitrail train --resume {folder.path}` goes on with a single run."}
    return read_record(folder, FinetuneRecord, FORMAT, "a fine-tuning", others)


def keep_first(folder: FinetuneFolder, first: RunFolder) -> None:
    """Copy the model of the first seed to where people look for it."""
    with atomic_folder(folder.model) as temporary:
        for file in first.model.iterdir():
            shutil.copyfile(file, temporary / file.name)


def write_page(folder: FinetuneFolder, result: Result, outcome: Outcome | None = None) -> None:
    """Write the page of the whole, where the first seed has one; `outcome` is what that was measured on, if known."""
    first = folder.run(result.seeds[0].folder)
    if not first.report.is_file():
        return
    source, predictions = (outcome.source, outcome.predictions) if outcome else (None, None)
    write_report(first, source, predictions, summary=summary_of(folder, result))


def summary_of(folder: FinetuneFolder, result: Result) -> Summary:
    """What the page of its first seed says of the whole."""
    record = _read_record(folder)
    return summary(record.plan, result, folder.path, record.command)
