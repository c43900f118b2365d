"""The short names of settings, and how settings and commands are written at the command line and in Python."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from vitrail.config.data import DataConfig
from vitrail.errors import Spelling, marked, spelled, typed, typed_option

SHORT: dict[str, str] = {
    "lr": "optim.lr",
    "epochs": "train.epochs",
    "steps": "train.steps",
    "batch_size": "train.batch_size",
    "micro_batch": "train.micro_batch",
    "seed": "train.seed",
    "precision": "train.precision",
    "compile": "train.compile",
    "deterministic": "train.deterministic",
    "time_limit": "train.time_limit",
    "freeze": "optim.freeze",
    "data_root": "data.root",
    **{field.name: f"data.{field.name}" for field in fields(DataConfig)},
}
"""What people may write in place of a dotted name."""

# Of several short names the last is written: that of the field itself.
_SHORT_OF = {name: short for short, name in SHORT.items()}
# Those that are functions of the package too.
_FUNCTIONS = ("train", "finetune", "transfer", "vtab", "selftrain")


def short_name(name: str) -> str:
    """The short name of a setting, or its own where it has none."""
    return _SHORT_OF.get(name, name)


def _option(name: str, value: object) -> str:
    return typed_option(short_name(name), value)


def _typed(verb: str, subjects: Sequence[str], options: Mapping[str, Any]) -> str:
    return typed(verb, subjects, {short_name(name): value for name, value in options.items()})


def _keyword(name: str, value: object) -> str:
    name = short_name(name)
    if value is ...:
        return f'settings["{name}"]' if "." in name else name
    return f"settings={{{_item(name, value)}}}" if "." in name else f"{name}={value!r}"


def _item(name: str, value: object) -> str:
    shown = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    return f'"{name}": {shown}'


def _call(verb: str, subjects: Sequence[str], options: Mapping[str, Any]) -> str:
    if verb not in _FUNCTIONS:
        return _typed(verb, subjects, options)
    named = {short_name(name): value for name, value in options.items()}
    keywords = [f"{name}={value!r}" for name, value in named.items() if "." not in name]
    items = [_item(name, value) for name, value in named.items() if "." in name]
    settings = [f"settings={{{', '.join(items)}}}"] if items else []
    return f"vitrail.{verb}({', '.join([*map(repr, subjects), *keywords, *settings])})"


OPTIONS = Spelling(setting=_option, command=_typed)
"""At the command line."""

KEYWORDS = Spelling(setting=_keyword, command=_call)
"""In Python."""


def as_typed(error: BaseException) -> str:
    """What an error says, for people at a command line: in a table, a page or a line of output."""
    return spelled(marked(error), OPTIONS)
