"""JSON for files of ours: readable in every script, and never in the way of a name that is no text."""

import json
import math
from typing import Any


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON with letters as they are; where a path of the system is not valid text, everything is escaped instead."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, allow_nan=False)
    return text


def finite(value: Any) -> Any:
    """The value with every number that JSON cannot hold replaced by null."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
