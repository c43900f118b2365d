"""What was given for a run: dotted names with their values, and nothing that was not given.

A name is a field of one of the configs behind the name of its group, `optim.lr`, or a plain field of what a verb takes
besides, `rates`. Words of a command line and values from Python are read against the types of those fields; whoever
asks, a wrong name and a wrong value get the same sentence.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from os import PathLike, fspath
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from vitrail.config.augment import AugmentConfig
from vitrail.config.bit import BitConfig
from vitrail.config.data import DataConfig
from vitrail.config.masking import MaskingConfig
from vitrail.config.peer import PeerConfig
from vitrail.config.spelling import SHORT
from vitrail.config.training import OptimConfig, ScheduleConfig, TrainConfig
from vitrail.config.values import convert, to_json
from vitrail.config.vit import VitConfig
from vitrail.errors import DataError, UsageError, setting

Config = TypeVar("Config")

GROUPS: dict[str, tuple[type, ...]] = {
    "data": (DataConfig,),
    "model": (VitConfig, BitConfig, PeerConfig),
    "optim": (OptimConfig,),
    "schedule": (ScheduleConfig,),
    "train": (TrainConfig,),
    "augment": (AugmentConfig,),
    "masking": (MaskingConfig,),
}
"""The parts of a RunConfig that can be set; which network it is decides which of its fields there are."""

_DERIVED = {
    "schedule.lr": f"{setting('optim.lr')} is what it is taken from",
    "schedule.steps": f"{setting('train.steps')} or {setting('train.epochs')} is what it is taken from",
    "model.num_classes": "the data has as many as it has",
}


@dataclass(frozen=True)
class Names:
    """The names that a verb takes: fields of `own`, a dataclass, and all settings of a run; `short` adds short ones."""

    own: type
    short: Mapping[str, str] = field(default_factory=dict)

    def full(self, name: str) -> str:
        """The dotted name of what was written, with hyphens or not; for an unknown one another is suggested."""
        name = name.replace("-", "_")
        if name in self.plain:
            return name
        name = {**SHORT, **self.short}.get(name, name)
        if not self.hints(name):
            raise self._unknown(name)
        return name

    @property
    def plain(self) -> dict[str, Any]:
        """What the verb itself takes, with types."""
        return _fields(self.own)

    def hints(self, name: str) -> list[Any]:
        """The types that a setting may have; none for a name that is none."""
        if name in self.plain:
            return [self.plain[name]]
        group, _, rest = name.partition(".")
        return [hint for kind in GROUPS.get(group, ()) for hint in _leaves(kind, rest.split("."))]

    def is_switch(self, name: str) -> bool:
        """Whether it is on or off, and takes no value on a command line."""
        return self.hints(name) == [bool]

    def _unknown(self, name: str) -> UsageError:
        known = [*self.plain, *SHORT, *self.short, *all_names()]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        if name in GROUPS:
            first = next(one for one in all_names() if one.startswith(f"{name}."))
            return UsageError(f"there is no {setting(name)}", fix=f"Its settings have names such as {setting(first)}.")
        if not near:
            near = [one for one in known if one.rpartition(".")[2] == name.rpartition(".")[2]][:1]
        hint = f"Did you mean {setting(self.full(near[0]))}?" if near else ""
        return UsageError(f"there is no {setting(name)}", fix=hint)


@dataclass(frozen=True)
class Settings(Mapping[str, Any]):
    """Values by dotted name, each of the type of its field; what is not there was not given."""

    said: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.said[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.said)

    def __len__(self) -> int:
        return len(self.said)

    def __or__(self, other: Mapping[str, Any]) -> "Settings":
        return Settings({**self.said, **other})

    def without(self, *names: str) -> "Settings":
        """All but these."""
        return Settings({name: value for name, value in self.said.items() if name not in names})

    def of_runs(self) -> "Settings":
        """Those that are settings of a run, without what a verb takes besides."""
        return Settings({name: value for name, value in self.said.items() if "." in name})

    def filled(self, kind: type[Config]) -> Config:
        """A dataclass of what a verb takes, its defaults where nothing was given."""
        return kind(**{name: self.said[name] for name in _fields(kind) if name in self.said})

    def over(self, config: Config, group: str) -> Config:
        """The config of a group with what was given of it; what this kind of it does not have is refused."""
        prefix = f"{group}."
        flat = {name.removeprefix(prefix): value for name, value in self.said.items() if name.startswith(prefix)}
        for name in flat:
            if not _leaves(type(config), name.split("."), config):
                known = [f"{prefix}{one}" for one in _fields(type(config))]
                near = difflib.get_close_matches(prefix + name, known, n=1, cutoff=0.6)
                raise UsageError(
                    f"{setting(prefix + name)} is no setting of this {_WORDS.get(group, group)}",
                    fix=f"Did you mean {setting(near[0])}?" if near else "",
                )
        return _with(config, {tuple(name.split(".")): value for name, value in flat.items()})

    def json(self) -> dict[str, Any]:
        """For a file."""
        return {name: to_json(value) for name, value in self.said.items()}


_WORDS = {"model": "network"}


def read_values(given: Mapping[str, Any], names: Names) -> Settings:
    """Settings from Python: names dotted or short, numbers and lists as they come."""
    found: dict[str, Any] = {}
    for written, value in given.items():
        name = names.full(written)
        if name in found:
            raise UsageError(f"{setting(name)} is given twice", wanted="one value")
        found[name] = _typed(names, name, value)
    return _checked(found)


def read_texts(given: Mapping[str, Sequence[str] | bool], names: Names) -> Settings:
    """Settings from a command line: what was typed behind each option, or whether a switch is on."""
    return _checked(
        {
            (full := names.full(name)): texts if isinstance(texts, bool) else _parsed(names.hints(full), full, texts)
            for name, texts in given.items()
        }
    )


def _checked(found: dict[str, Any]) -> Settings:
    for name, reason in _DERIVED.items():
        if name in found:
            raise UsageError(f"{setting(name)} cannot be set: {reason}")
    return Settings(found)


@lru_cache
def all_names() -> tuple[str, ...]:
    """Every setting of a run by its dotted name, but for parts of parts."""
    kinds = [(group, kind) for group, several in GROUPS.items() for kind in several]
    return tuple(dict.fromkeys(f"{group}.{name}" for group, kind in kinds for name in _fields(kind)))


@lru_cache
def _fields(kind: Any) -> dict[str, Any]:
    return {one.name: typing.get_type_hints(kind)[one.name] for one in dataclasses.fields(kind) if one.init}


def _leaves(kind: Any, path: Sequence[str], value: Any = None) -> list[Any]:
    """The types at the end of a path through dataclasses and tuples of them; of a `value`, those of its own kinds."""
    if not path:
        return [kind]
    found: list[Any] = []
    for option in _options(kind):
        if dataclasses.is_dataclass(option) and path[0] in _fields(option):
            if value is not None and not isinstance(value, typing.cast(type, option)):
                continue
            inner = None if value is None else getattr(value, path[0])
            found += _leaves(_fields(option)[path[0]], path[1:], inner)
        elif get_origin(option) is tuple and path[0].isdecimal():
            inner = value[int(path[0])] if value is not None and int(path[0]) < len(value) else None
            if value is None or inner is not None:
                found += _leaves(get_args(option)[0], path[1:], inner)
    return found


def _options(hint: Any) -> list[Any]:
    """The members of a union, or the one type."""
    return list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]


def _with(config: Any, changes: Mapping[tuple[str, ...], Any]) -> Any:
    """A dataclass or tuple with some of its parts changed, however deep."""
    if not changes:
        return config
    whole = {path[0]: value for path, value in changes.items() if len(path) == 1}
    deeper: dict[str, dict[tuple[str, ...], Any]] = {}
    for path, value in changes.items():
        if len(path) > 1:
            deeper.setdefault(path[0], {})[path[1:]] = value
    if isinstance(config, tuple):
        return tuple(_with(one, deeper.get(str(place), {})) for place, one in enumerate(config))
    inner = {name: _with(getattr(config, name), parts) for name, parts in deeper.items()}
    return dataclasses.replace(config, **whole, **inner)


def _typed(names: Names, name: str, value: Any) -> Any:
    """A value from Python as its field wants it; one number stands for a square, a path for its text."""
    hints = names.hints(name)
    if isinstance(value, PathLike):
        value = fspath(value)
    if (as_list := getattr(value, "tolist", None)) is not None:
        # A number or an array of numpy or torch.
        value = as_list()
    elif isinstance(value, range):
        value = list(value)
    elif type(value).__name__ == "device":
        # Of torch, which is not loaded for this.
        value = str(value)
    elif isinstance(value, tuple | list):
        value = [fspath(one) if isinstance(one, PathLike) else one for one in value]
    if tuple[int, int] in hints and isinstance(value, int) and not isinstance(value, bool):
        value = (value, value)
    takes_several = any(get_args(one)[-1:] == (Ellipsis,) for hint in hints for one in _options(hint))
    # One stands for a list of one.
    given = (value,) if takes_several and isinstance(value, int | float | str) else value
    for hint in hints:
        try:
            return convert(hint, given, "")
        except DataError:
            continue
    raise UsageError(f"{setting(name)} is {_shown(value)}", wanted=in_words(hints))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _parsed(hints: Sequence[Any], name: str, texts: Sequence[str]) -> Any:
    """What was typed behind an option as its field wants it."""
    for hint in hints:
        for option in sorted(_options(hint), key=lambda one: one is str):
            try:
                return _from_texts(option, texts)
            except ValueError:
                continue
    typed = f" is {' '.join(texts)!r}" if texts else " has no value"
    raise UsageError(f"{setting(name)}{typed}", wanted=in_words(hints))


def _from_texts(hint: Any, texts: Sequence[str]) -> Any:
    """Raises ValueError for what is none."""
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if Ellipsis not in inner and len(inner) != len(texts):
            raise ValueError
        kinds = [inner[0]] * len(texts) if Ellipsis in inner else inner
        return tuple(_from_texts(kind, [text]) for kind, text in zip(kinds, texts, strict=True))
    (text,) = texts
    if hint is type(None):
        if text.lower() != "none":
            raise ValueError
        return None
    options = get_args(hint) if get_origin(hint) is Literal else (True, False) if hint is bool else ()
    if (known := {str(option): option for option in options}) and text in known:
        return known[text]
    if hint in (int, float, str):
        return hint(text)
    raise ValueError


def most_texts(hints: Sequence[Any]) -> float:
    """How many words an option takes at most on a command line."""
    counts = [1.0]
    for option in (option for hint in hints for option in _options(hint)):
        if get_origin(option) is tuple:
            inner = get_args(option)
            counts.append(float("inf") if Ellipsis in inner else len(inner))
    return max(counts)


def can_be(hints: Sequence[Any], text: str) -> bool:
    """Whether a word may be one of several values of an option; what is no number is none where numbers are wanted."""
    options = [option for hint in hints for option in _options(hint)]
    tuples = [option for option in options if get_origin(option) is tuple]
    kinds = [one for several in tuples for one in get_args(several) if one is not Ellipsis]
    # None stands in the place of all of them.
    for kind in (*kinds, *(option for option in options if option is type(None))):
        try:
            _from_texts(kind, [text])
            return True
        except ValueError:
            continue
    return False


_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", type(None): "None"}
_SEVERAL = {int: "whole numbers", float: "numbers", str: "texts"}


def in_words(hints: Iterable[Any]) -> str:
    """What a value may be, for people: "a whole number or None"."""
    options = [option for hint in hints for option in _options(hint)]
    # What stands for nothing is named last.
    ordered = sorted(dict.fromkeys(options), key=lambda option: option is type(None))
    return " or ".join(dict.fromkeys(map(_kind_in_words, ordered)))


def _kind_in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        several = _SEVERAL.get(inner[0], "values")
        return several if Ellipsis in inner else f"{len(inner)} {several}"
    if dataclasses.is_dataclass(hint):
        return f"its parts by name, such as {next(iter(_fields(hint)))}"
    return _KINDS.get(hint, "a value")
