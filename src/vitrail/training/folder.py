"""The folder of a run: what it was asked to do, what happened, its checkpoints and its model."""

import json
import os
import platform
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import vitrail
from vitrail.config import ModelConfig, PeerConfig, RunConfig, from_json, to_json
from vitrail.errors import DataError, UsageError, command
from vitrail.runtime.atomic import atomic_file, leftover_of
from vitrail.runtime.json_text import json_text

FORMAT = "vitrail-run/1"
IN_MEMORY = "in-memory"
"""Where a call from Python stores what it was given as arrays or networks, before anything else is in the folder."""

Record = TypeVar("Record")


@dataclass(frozen=True)
class NamedFolder:
    """`runs/<name>/`: what a run and a fine-tuning, which is several, both have in it."""

    path: Path

    @property
    def config(self) -> Path:
        """What was asked for, fully resolved."""
        return self.path / "config.json"

    @property
    def model(self) -> Path:
        """The model that is kept, as a model folder."""
        return self.path / "model"

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @property
    def lock(self) -> Path:
        """Held by the process that works on it."""
        return self.path / ".lock"


@dataclass(frozen=True)
class RunFolder(NamedFolder):
    """The folder of one run."""

    @property
    def log(self) -> Path:
        """A line per record; the last has "event": "done"."""
        return self.path / "log.jsonl"

    @property
    def held_out(self) -> Path:
        """A line for each image that was held out: where it is, what it shows, and a hash of what is stored there."""
        return self.path / "held_out.csv"

    @property
    def checkpoints(self) -> Path:
        """Where `step-*` folders are."""
        return self.path / "checkpoints"

    @property
    def resume_command(self) -> str:
        """What goes on with it, for a message."""
        return command("train", resume=str(self.path), **processes_again())


@dataclass(frozen=True)
class PartFolder(RunFolder):
    """A run that is part of a whole: who stopped it wants to go on with the whole."""

    whole: str

    @property
    def resume_command(self) -> str:
        return self.whole


def is_vacant(path: Path) -> bool:
    """Whether nothing in a folder would be lost: it has at most what a start leaves that was killed at once."""
    try:
        names = {entry.name for entry in path.iterdir()}
        left = {name for name in names if leftover_of(name, "config.json")} | {".lock", ".launch", IN_MEMORY}
        return names <= left or (names <= left | {"checkpoints"} and not any((path / "checkpoints").iterdir()))
    except OSError:
        return False


def processes_again() -> dict[str, int]:
    """The options of a command that is given again in as many processes, where they are all on this machine."""
    here = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return {"processes": int(here)} if here != "1" and here == os.environ.get("WORLD_SIZE") else {}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """`config.json`: the config, what it was resolved with, and how to do it again."""

    format: str
    config: RunConfig
    classes: tuple[str, ...]
    """Class names, by number."""
    digest: str
    """Of the training images, labels and class names."""
    counts: dict[str, Any]
    """Images per split."""
    command: str
    """What a person typed."""
    versions: dict[str, Any]
    device: str
    notes: tuple[str, ...] = ()
    """What was noted about the images when they were opened and read."""


def write_record(folder: RunFolder, record: RunRecord) -> None:
    """Write `config.json`, whole or not at all."""
    with atomic_file(folder.config) as temporary:
        temporary.write_text(json_text(to_json(record), indent=2) + "\n", encoding="utf-8")


def read_run(folder: RunFolder) -> RunRecord:
    """Read `config.json`; what moved with the folder is where it is now."""
    record = read_record(folder, RunRecord, FORMAT, "a run")
    return replace(record, config=beside(record.config, folder.path))


def verb_of(format: str) -> str:
    """The verb that goes on with what says this format: `vitrail-run/1` is that of `train`."""
    kind = format.partition("/")[0].removeprefix("vitrail-")
    return "train" if kind in ("run", "vitrail", "") else kind


def read_record(folder: NamedFolder, record: type[Record], format: str, what: str) -> Record:
    """Read `config.json` of `what` it has to be; of another kind of run it is said what goes on with that."""
    where, yours = str(folder.config), "`ls runs` shows yours."
    if not folder.path.exists():
        raise UsageError("there is no such folder", where=str(folder.path), fix=yours)
    if not folder.config.is_file():
        raise UsageError("there is no config.json", wanted=f"the folder of {what}", where=str(folder.path), fix=yours)
    try:
        values = json.loads(folder.config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", where=where) from None
    found = values.get("format") if isinstance(values, dict) else None
    if found != format:
        is_ours = str(found).startswith("vitrail-") and verb_of(str(found)) != verb_of(format)
        fix = f"`{command(verb_of(str(found)), resume=str(folder.path))}` goes on with it." if is_ours else ""
        raise DataError(f"is not the record of {what}", wanted=f"format {format!r}", where=where, fix=fix)
    return from_json(record, values, where=where)


def versions(model: ModelConfig | None = None) -> dict[str, str]:
    """What the numbers of a run may depend on, with the package that builds its network where that is not ours."""
    import torch

    return {
        "vitrail": vitrail.__version__,
        "torch": torch.__version__,
        **({model.package: metadata.version(model.package)} if isinstance(model, PeerConfig) else {}),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cuda": str(torch.version.cuda) if torch.cuda.is_available() else "",
    }


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """What changed between two JSON values, a line each: "optim.lr: 0.001, now 0.01"."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = list(dict.fromkeys([*old, *new]))
        dot = f"{where}." if where else ""
        return [line for name in names for line in differences(old.get(name), new.get(name), f"{dot}{name}")]
    return [] if old == new else [f"{where}: {_short(old)}, now {_short(new)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


_KIND = "taught:"


def _in_memory(stored: str, run: Path) -> str:
    """Where something is that was stored in the folder of a run, or of the whole that it is part of."""
    _, is_one, name = stored.rpartition(f"/{IN_MEMORY}/")
    if not is_one or Path(stored).exists():
        return stored
    places = (folder / IN_MEMORY / name for folder in (run, *run.parents))
    return str(next((place for place in places if place.exists()), stored))


def beside(config: RunConfig, run: Path) -> RunConfig:
    """The config with what moved with its folder where it is now: paths are stored in full, and old ones are in it.

    That is what a call from Python stored there, and the lesson of a self-training. Only `round-1` is the student of
    the `taught-1` beside it: another run may have been taught elsewhere, by a lesson of the same name.
    """
    run = run.absolute()
    start = None if config.start is None else _in_memory(config.start, run)
    config = replace(config, start=start, data=replace(config.data, data=_in_memory(config.data.data, run)))
    if not config.data.data.startswith(_KIND):
        return config
    # Reading what was taught is not for every command that knows what a run is.
    from vitrail.data.sources.taught import RECORD

    stored = Path(config.data.data.removeprefix(_KIND))
    here = run.parent / stored.name
    is_student = run.name.removeprefix("round-") == stored.name.removeprefix("taught-")
    if not is_student or not (here / RECORD).is_file() or here.resolve() == stored.resolve():
        return config
    return replace(config, data=replace(config.data, data=f"{_KIND}{here}"))
