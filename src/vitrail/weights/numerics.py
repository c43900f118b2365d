"""Numerics that a file does not record: what its readers compute with, and when that is another function."""

import dataclasses
from typing import Any

from vitrail.config import ModelConfig, VitConfig
from vitrail.errors import notice

Change = tuple[str, Any, Any]

_NUMERICS = (
    "gelu",
    "layer_norm_epsilon",
    "group_norm_epsilon",
    "standardisation",
    "standardisation_epsilon",
    "batch_norm_epsilon",
    "pool_padding",
)


def with_numerics(config: ModelConfig, **numerics: Any) -> ModelConfig:
    """A config whose numerics are replaced, in the network and in its backbone, wherever it has such a field."""
    own = _present(config, numerics)
    backbone = config.backbone if isinstance(config, VitConfig) else None
    if backbone is not None:
        own["backbone"] = dataclasses.replace(backbone, **_present(backbone, numerics))
    return dataclasses.replace(config, **own)


def numerics_changed(config: ModelConfig, read: ModelConfig) -> list[Change]:
    """What differs between a network and the one its file would be read as: name, theirs, ours."""
    pairs: list[tuple[Any, Any]] = [(config, read)]
    if isinstance(config, VitConfig) and isinstance(read, VitConfig) and config.backbone:
        pairs.append((config.backbone, read.backbone))
    return [
        (field.name, getattr(theirs, field.name), getattr(ours, field.name))
        for ours, theirs in pairs
        for field in dataclasses.fields(ours)
        if field.name in _NUMERICS and getattr(ours, field.name) != getattr(theirs, field.name)
    ]


def tell_numerics(layout: str, changes: list[Change]) -> None:
    """Say what a reader of the file will compute differently."""
    for name, theirs, ours in changes:
        notice(f"The {layout} layout does not record {name}: its readers take {theirs!r}, this network has {ours!r}.")


def _present(config: Any, numerics: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(config)}
    return {name: value for name, value in numerics.items() if name in names}
