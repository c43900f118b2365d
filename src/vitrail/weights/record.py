"""The record that travels with weights: as `config.json` in a model folder, as metadata in a lone file."""

import json
from dataclasses import dataclass, field
from typing import Any

from vitrail.config import BitConfig, ModelConfig, PeerConfig, Preprocessing, VitConfig, from_json, to_json
from vitrail.errors import DataError, UsageError
from vitrail.runtime.json_text import json_text

FORMAT = "vitrail/1"
METADATA_KEY = "vitrail"

# Letters, of which each takes up to forty bytes of memory; the names of 21,843 classes have one or two million.
_LARGEST_TEXT = 12 << 20

_FAMILIES: dict[str, type[ModelConfig]] = {"vit": VitConfig, "bit": BitConfig, "peer": PeerConfig}


@dataclass(frozen=True, kw_only=True)
class Described:
    """Everything about a network but its tensors; torch is not needed to read it."""

    config: ModelConfig
    labels: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Record:
    """The same as it is written."""

    format: str
    family: str
    model: dict[str, Any]
    labels: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


def record_text(described: Described) -> str:
    """The record of a network as JSON."""
    record = Record(
        format=FORMAT,
        family=next(family for family, kind in _FAMILIES.items() if isinstance(described.config, kind)),
        model=to_json(described.config),
        labels=described.labels,
        preprocessing=described.preprocessing,
        provenance=described.provenance,
        metrics=described.metrics,
    )
    try:
        return json_text(to_json(record), indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise UsageError(f"labels, metrics or provenance cannot be written as JSON ({error})") from None


def parse_json(text: str, where: str) -> Any:
    """Parse JSON that came with weights."""
    if len(text) > _LARGEST_TEXT:
        raise DataError(f"has {len(text):,} letters of JSON", wanted=f"at most {_LARGEST_TEXT:,}", where=where)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not valid JSON ({error})", where=where) from None


def read_record(text: str, where: str) -> Described:
    """The network that a record describes."""
    values = parse_json(text, where)
    found = values.get("format") if isinstance(values, dict) else None
    if found != FORMAT:
        raise DataError(f"the format tag is {found!r}", wanted=repr(FORMAT), where=where)
    record = from_json(Record, values, where=where)
    if record.family not in _FAMILIES:
        raise DataError(f"the family is {record.family!r}", wanted="'vit', 'bit' or 'peer'", where=where)
    config: ModelConfig = from_json(_FAMILIES[record.family], record.model, where=f"{where}, 'model'")
    if record.labels is not None and len(record.labels) != config.num_classes:
        came = f"there are {len(record.labels)} labels for {config.num_classes} classes"
        raise DataError(came, wanted="one label per class", where=where)
    return Described(
        config=config,
        labels=record.labels,
        preprocessing=record.preprocessing,
        provenance=record.provenance,
        metrics=record.metrics,
    )
