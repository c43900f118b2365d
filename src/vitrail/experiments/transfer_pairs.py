"""The folder of a transfer: models and data sets, a fine-tuning for each pair of them, and one table."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitrail.config import to_json
from vitrail.data.sources.files import user_path
from vitrail.errors import UsageError
from vitrail.experiments.finetune_folder import FinetuneFolder
from vitrail.experiments.finetune_plan import Plan
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text
from vitrail.training.folder import NamedFolder, also_processes, command_line, read_record, versions

FORMAT = "vitrail-transfer/1"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A model and a data set, by the names they have in the table."""

    model: str
    data: str
    pretraining: str
    """What is known of where the model comes from."""
    plan: Plan | None
    """None where the data was not there."""
    problem: str = ""
    """Why there is no plan."""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.model} on {self.data}"


@dataclass(frozen=True, kw_only=True)
class TransferRecord:
    """`config.json`: everything that was asked for, and how to do it again."""

    format: str = FORMAT
    pairs: tuple[Pair, ...]
    real_labels: str | None
    """ReaL labels of ImageNet to count by as well."""
    command: str
    """What a person typed."""
    versions: dict[str, Any]


@dataclass(frozen=True)
class TransferFolder(NamedFolder):
    """`runs/<name>/<model>/<data>/` for each pair, and the table of all."""

    @property
    def page(self) -> Path:
        """The table for people."""
        return self.path / "table.md"

    @property
    def numbers(self) -> Path:
        """The table for programs."""
        return self.path / "table.json"

    @property
    def resume_command(self) -> str:
        """What to type to go on."""
        return f"vitrail transfer --resume {shlex.quote(str(self.path))}{also_processes()}"

    def pair(self, pair: Pair) -> FinetuneFolder:
        """The fine-tuning of a pair, which `vitrail finetune --resume` goes on with as well."""
        return _PairFolder(self.path / pair.model / pair.data, self.resume_command)


@dataclass(frozen=True)
class _PairFolder(FinetuneFolder):
    """A fine-tuning that is part of a whole: who stopped it wants to go on with the whole."""

    whole: str

    @property
    def resume_command(self) -> str:
        return self.whole


def write_pairs(folder: TransferFolder, pairs: Sequence[Pair], real_labels: str | None) -> None:
    """Write `config.json`, whole or not at all."""
    record = TransferRecord(pairs=tuple(pairs), real_labels=real_labels, command=command_line(), versions=versions())
    with atomic_file(folder.config) as temporary:
        temporary.write_text(json_text(to_json(record), indent=2) + "\n", encoding="utf-8")


def read_pairs(folder: TransferFolder) -> TransferRecord:
    """Read `config.json`."""
    others = {"vitrail-finetune/": f"`vitrail finetune --resume {folder.path}` goes on with a fine-tuning."}
    return read_record(folder, TransferRecord, FORMAT, "a transfer", others)


def joined_pairs(before: Sequence[Pair], now: Sequence[Pair]) -> tuple[Pair, ...]:
    """A table may grow: what was asked for before stays, and what is asked for again is as it is asked for now."""
    pairs = {(pair.model, pair.data): pair for pair in (*before, *now)}
    return tuple(pairs.values())


def as_named_before(before: Sequence[Pair], now: Sequence[Pair]) -> tuple[Pair, ...]:
    """A model keeps the name that it has in a table, whatever other models are asked for beside it this time."""
    names = {pair.plan.config.start: pair.model for pair in reversed(before) if pair.plan is not None}
    return tuple(
        pair if pair.plan is None else replace(pair, model=names.get(pair.plan.config.start, pair.model))
        for pair in now
    )


def has_real(pair: Pair) -> bool:
    """Whether ReaL labels can be counted by."""
    return pair.plan is not None and is_imagenet(pair.plan)


def is_imagenet(plan: Plan) -> bool:
    """Whether the data is ImageNet, also where it is a folder of the user's that is given the recipe for it."""
    return plan.config.recipe == "finetune-imagenet"


def short_names(words: Sequence[str]) -> list[str]:
    """A name for each model or data set, fit for a folder: the end of its path, and more of it where two end alike."""
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise UsageError(f"{twice!r} is given twice", wanted="each model and each data set once")
    parts = [_parts(word) for word in words]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["-".join(found[-length:]) for found in parts]
        if len({name.casefold() for name in names}) == len(names):
            return names
    return [f"{'-'.join(found)}-{number}" for number, found in enumerate(parts, start=1)]


def _parts(word: str) -> list[str]:
    path = user_path(word)
    if path.exists():
        path = path.resolve()
        if path.name == "model" and len(path.parts) > 2:
            # Of a run: its folder has the better name.
            path = path.parent
        word = str(path.with_suffix("") if path.is_file() else path)
    cleaned = [re.sub(r"[^\w.+-]+", "-", part).strip(".-") for part in re.split(r"[/\\:]", word)]
    return [part for part in cleaned if part] or ["data"]
