"""The folder of a VTAB: what was asked for, a fine-tuning for each task, the splits and the table."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitrail.config import from_json, to_json
from vitrail.data.vtab.open import parse_task
from vitrail.data.vtab.split import Split
from vitrail.errors import DataError, UsageError, VitrailError, command, setting
from vitrail.experiments import old_vtab
from vitrail.experiments.finetune import FinetuneFolder
from vitrail.experiments.vtab_table import Table, TaskScore, as_json, as_markdown, vtab_page
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text
from vitrail.runtime.lock import only_one
from vitrail.training.folder import NamedFolder, differences, is_vacant, read_record

FORMAT = "vitrail-vtab/2"

# Seconds for which others of the same name are waited for, and between two looks; they write for milliseconds.
_PATIENCE, _PAUSE = 10.0, 0.02


@dataclass(frozen=True)
class VtabFolder(NamedFolder):
    """`runs/<name>/`: a folder of fine-tunings."""

    @property
    def resume_command(self) -> str:
        """What to type to go on."""
        return command("vtab", resume=str(self.path))

    @property
    def lock(self) -> Path:
        """Held for a moment by the command that writes; beside the folder, which need not be there yet."""
        whole = self.path.resolve()
        return whole.parent / f".{whole.name}.lock"

    @property
    def table(self) -> Path:
        """The table for people; table.json beside it is for programs."""
        return self.path / "table.md"

    def split(self, task: str) -> Path:
        """Where the ids of a task are kept."""
        return self.path / "splits" / f"{task}.json"

    def task(self, task: str, length: str | None = None) -> FinetuneFolder:
        """The fine-tuning of a task, or of one of the lengths that are tried."""
        path = self.path / task
        return FinetuneFolder(path if length is None else path / length, whole=self.resume_command)


@dataclass(frozen=True, kw_only=True)
class VtabRecord:
    """`config.json`: what was asked for."""

    format: str = FORMAT
    source: str
    setting: str
    tasks: tuple[str, ...]
    """As they are opened: a name, or name=data."""
    settings: dict[str, Any]
    """Of all fine-tunings, by dotted name."""
    root: str | None
    """Where the data is."""
    download: bool
    command: str
    """What a person typed."""
    versions: dict[str, Any]


def read_vtab(folder: VtabFolder) -> VtabRecord:
    """Read `config.json`, also one of version 0.1."""
    if old_vtab.is_old(folder):
        before = read_record(folder, old_vtab.OldRecord, old_vtab.FORMAT, "a VTAB")
        return from_json(VtabRecord, old_vtab.converted(before), where=str(folder.config))
    return read_record(folder, VtabRecord, FORMAT, "a VTAB")


@dataclass(frozen=True, kw_only=True)
class KeptSplit:
    """What is known of the split of a task."""

    origin: str
    """Where it comes from."""
    sha256: str
    train: int
    val: int


@contextmanager
def alone(folder: VtabFolder) -> Iterator[None]:
    """What several commands of one name read and write again, one does at a time; the others wait."""
    refused: VitrailError | None = None
    until = time.monotonic() + _PATIENCE
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(only_one(folder.lock, busy=f"another command is writing {folder.path}"))
                break
            except UsageError:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)
        try:
            yield
        except VitrailError as error:
            # Not from within, where the file of the lock would stay.
            refused = error
    if refused is not None:
        raise refused


def begin_vtab(folder: VtabFolder, record: VtabRecord) -> None:
    """Write `config.json`; one that is there must ask for the same, but may have other tasks."""
    with alone(folder):
        _begin(folder, record)


def _begin(folder: VtabFolder, record: VtabRecord) -> None:
    tasks = record.tasks
    if folder.config.exists():
        found = read_vtab(folder)
        same = replace(record, tasks=found.tasks, root=found.root, command=found.command, versions=found.versions)
        same = replace(same, download=found.download)
        if changes := differences(to_json(found), to_json(same)):
            raise UsageError(
                f"the VTAB of this name is another one: {'; '.join(changes)}",
                where=str(folder.path),
                fix=f"Give the command that began it, or choose another {setting('name')}.",
            )
        _refuse_other_data(folder, found.tasks, tasks)
        tasks = tuple(dict.fromkeys([*found.tasks, *tasks]))
    elif folder.path.exists() and not is_vacant(folder.path):
        raise UsageError(
            "is there already and holds something else",
            where=str(folder.path),
            fix=f"Choose another {setting('name')}.",
        )
    _write(folder.config, json_text(to_json(replace(record, tasks=tasks)), indent=2))


def _refuse_other_data(folder: VtabFolder, before: tuple[str, ...], now: tuple[str, ...]) -> None:
    """A task has one folder, so that its images come from one place."""
    stored = {parse_task(text)[0].name: text for text in before}
    for text in now:
        name = parse_task(text)[0].name
        if stored.get(name, text) != text:
            raise UsageError(
                f"the task {name} is {stored[name]} here, now {text}",
                where=str(folder.path),
                fix=f"Give the same {setting('sources')}, or choose another {setting('name')}.",
            )


def keep_split(folder: VtabFolder, split: Split) -> None:
    """Store the ids of a task with their hash; other images than before are refused."""
    path, record = folder.split(split.task), split.record()
    if not path.is_file():
        _write(path, json.dumps(record, indent=1))
        return
    before, now = read_split(folder, split.task).sha256[:12], str(record["sha256"])[:12]
    if before != now:
        raise UsageError(
            f"the split is another one than before: {before}, now {now}",
            where=str(path),
            fix=f"Bring the images or lists back that were there, or choose another {setting('name')}.",
        )


def read_split(folder: VtabFolder, task: str) -> KeptSplit:
    """Where the split of a task comes from, its hash, and how many images are learnt from and chosen on."""
    path = folder.split(task)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return KeptSplit(
            origin=str(record["origin"]),
            sha256=str(record["sha256"]),
            train=len(record["train800"]),
            val=len(record["val200"]),
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"the split cannot be read ({error})", where=str(path)) from None


def write_table(folder: VtabFolder, table: Table) -> None:
    """Write `table.md`, `table.json` and the page, each whole or not at all."""
    _write(folder.table, as_markdown(table).rstrip("\n"))
    _write(folder.path / "table.json", json.dumps(as_json(table), indent=2, ensure_ascii=False))
    _write(folder.report, vtab_page(table, read_vtab(folder).command).rstrip("\n"))


def read_table(folder: VtabFolder) -> Table:
    """Read `table.json` back; before there is one, no task has a number."""
    path = folder.path / "table.json"
    if not path.is_file():
        return Table(model=Path(read_vtab(folder).source).name, scores={}, missing={})
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        tasks, missing = dict(values["tasks"]), {str(name): str(why) for name, why in values["missing"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"the table cannot be read ({error})", where=str(path)) from None
    scores = {name: from_json(TaskScore, score, where=f"{path}, {name}") for name, score in tasks.items()}
    return Table(model=str(values.get("model")), scores=scores, missing=missing)


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
