"""Folders of version 0.1: a VTAB kept the words of a command line, which become settings here and nowhere else."""

from dataclasses import dataclass
from typing import Any

from vitrail.config import read_texts
from vitrail.experiments.ask import names_of
from vitrail.experiments.kinds import format_of
from vitrail.training.folder import NamedFolder

FORMAT = "vitrail-vtab/1"


@dataclass(frozen=True, kw_only=True)
class OldRecord:
    """`config.json` of a VTAB as 0.1 wrote it."""

    format: str
    source: str
    setting: str
    tasks: tuple[str, ...]
    words: tuple[str, ...]
    root: str | None
    download: bool
    command: str
    versions: dict[str, Any]


def is_old(folder: NamedFolder) -> bool:
    """Whether 0.1 wrote it."""
    return format_of(folder.path) == FORMAT


def converted(record: OldRecord) -> dict[str, Any]:
    """The record as it is written today, but for its format."""
    values = {name: value for name, value in vars(record).items() if name not in ("format", "words")}
    return {**values, "tasks": list(record.tasks), "settings": settings_of(record.words)}


def settings_of(words: tuple[str, ...]) -> dict[str, Any]:
    """Settings from stored options of `vitrail finetune`, each with the words behind it."""
    names = names_of("vtab")
    given: dict[str, list[str] | bool] = {}
    last: list[str] = []
    for word in words:
        if not word.startswith("--"):
            last.append(word)
            continue
        # Of an option that was typed several times the last counts.
        group, dot, field = word.removeprefix("--").replace("-", "_").rpartition(".")
        name = names.full(f"{group}{dot}{field.removeprefix('no_')}")
        if names.is_switch(name):
            given[name] = not field.startswith("no_")
        else:
            given[name] = last = []
    return read_texts(given, names).json()
