"""Frozen dataclasses to JSON and back, with every unknown key and wrong type named."""

import dataclasses
import types
import typing
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from vitrail.errors import DataError, UsageError, VitrailError, choose

Config = TypeVar("Config")


def to_json(value: Any) -> Any:
    """Turn a dataclass into plain JSON values; tuples become lists.

    A field that came later says in its metadata as "only_where_set" that its default is not written, so that versions
    that do not know it read what they can do.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
        return {
            field.name: to_json(one)
            for field, one in named
            if "only_where_set" not in field.metadata or one != field.default
        }
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[Config], values: object, *, where: str) -> Config:
    """Build the dataclass `kind` from parsed JSON found at `where`; fields left out take their defaults.

    A field that came later, and whose default is not what was done before, says in its metadata as "left_out" what a
    file without it means.
    """
    if not isinstance(values, dict):
        raise DataError(f"found {_named(values)}", wanted=f"an object with the fields of {kind.__name__}", where=where)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        try:
            choose("field", name, fields)
        except UsageError as error:
            raise DataError(error.came, where=where, fix=error.fix) from None
    required = dataclasses.MISSING
    for name, field in fields.items():
        if name not in values and field.default is required and field.default_factory is required:
            raise DataError(f"the field {name!r} is missing", where=where)
    before = {name: field.metadata["left_out"] for name, field in fields.items() if "left_out" in field.metadata}
    converted = {name: convert(hints[name], value, f"{where}, field {name!r}") for name, value in values.items()}
    try:
        return kind(**before | converted)
    except VitrailError as error:
        raise DataError(error.came, wanted=error.wanted, where=where, fix=error.fix) from None


def replace(config: Config, overrides: dict[str, Any], *, kind: str) -> Config:
    """Copy a config with some fields changed; an unknown field is an error with a suggestion."""
    names = [field.name for field in dataclasses.fields(config)]  # type: ignore[arg-type]
    hints = typing.get_type_hints(type(config))
    values = {}
    for name, value in overrides.items():
        choose(f"{kind} field", name, names)
        values[name] = _typed(hints[name], value, name)
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def _typed(hint: Any, value: Any, name: str) -> Any:
    """A value given in Python: a dataclass as it is, else what a file may hold; one number stands for a square."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return value
    if hint == tuple[int, int] and isinstance(value, int):
        return value, value
    if get_origin(hint) is Literal:
        return choose(name, value, get_args(hint))
    try:
        return convert(hint, value, name)
    except DataError as error:
        raise UsageError(f"{name}: {error.came}", wanted=error.wanted, fix=error.fix) from None


def convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(arguments, value, where)
    if origin is Literal:
        if value in arguments and type(value) in {type(option) for option in arguments}:
            return value
        raise DataError(f"found {_named(value)}", wanted=f"one of {', '.join(map(repr, arguments))}", where=where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise DataError(f"found {_named(value)}", wanted="a list", where=where)
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) != len(value):
            raise DataError(f"found {len(value)} values", wanted=f"{len(kinds)}", where=where)
        return tuple(convert(kind, item, where) for kind, item in zip(kinds, value, strict=True))
    if origin is dict:
        if isinstance(value, dict):
            return value
        raise DataError(f"found {_named(value)}", wanted="an object", where=where)
    if dataclasses.is_dataclass(hint):
        return from_json(hint, value, where=where)  # type: ignore[arg-type]
    if hint is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is hint:
        return value
    raise DataError(f"found {_named(value)}", wanted=f"a value of type {getattr(hint, '__name__', hint)}", where=where)


def _convert_union(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in options:
        return None
    candidates = [option for option in options if option is not type(None)]
    tags = {tag: option for option in candidates if (tag := _tag(option))}
    if isinstance(value, dict) and tags:
        try:
            return convert(tags[choose("kind", value.get("kind"), tags)], value, where)
        except UsageError as error:
            raise DataError(error.came, where=where, fix=error.fix) from None
    if isinstance(value, dict) and all(map(dataclasses.is_dataclass, candidates)):
        # The kind that knows most of the names, so that its error is about the one field that is wrong.
        return convert(max(candidates, key=lambda kind: len(_names(kind) & set(value))), value, where)
    for option in candidates[:-1]:
        try:
            return convert(option, value, where)
        except DataError:
            continue
    return convert(candidates[-1], value, where)


def _names(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _tag(hint: Any) -> str | None:
    """Dataclasses that stand for each other in a union say which they are in the field `kind`."""
    return getattr(hint, "kind", None)


def _named(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
