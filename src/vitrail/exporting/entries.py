"""What travels inside an exported file: the record of its network, and what the file was compared with."""

import json
from collections.abc import Mapping
from typing import Any

from vitrail.errors import DataError
from vitrail.weights.record import METADATA_KEY, Described, parse_json, read_record, record_text

RECORD = METADATA_KEY
EXPORT = "vitrail_export"
COMPARED = "vitrail_compared"

Entries = Mapping[str, str]


def record_entry(described: Described) -> str:
    """The record in plain ASCII on one line, so that every format carries every name unharmed."""
    return ascii_json(json.loads(record_text(described)))


def ascii_json(value: Any) -> str:
    """JSON in which everything but ASCII is escaped."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def described_by(entries: Entries, where: str) -> Described:
    """The network that a file says it is."""
    if RECORD not in entries:
        raise DataError(
            "does not say what its classes are and how images are prepared",
            wanted="a file of `vitrail export`",
            where=where,
            fix="Export the model anew with `vitrail export MODEL`.",
        )
    return read_record(entries[RECORD], f"{where}, {RECORD!r}")


def export_entry(entries: Entries, where: str) -> dict[str, Any]:
    """How the file was made, and under "compared" what it was compared with; a file that nobody compared has none."""
    made, compared = (_object(entries, name, where) for name in (EXPORT, COMPARED))
    return {**made, **({"compared": compared} if compared else {})}


def _object(entries: Entries, name: str, where: str) -> dict[str, Any]:
    values = parse_json(entries.get(name, "{}"), f"{where}, {name!r}")
    if not isinstance(values, dict):
        raise DataError("holds no JSON object", where=f"{where}, {name!r}")
    return values
