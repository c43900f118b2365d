"""JSON for files of ours: readable in every script, and never in the way of a name that is no text."""

import json
from typing import Any


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON with letters as they are; where a path of the system is not valid text, everything is escaped instead."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, allow_nan=False)
    return text
