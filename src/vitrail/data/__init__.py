"""From any source of images to batches: exact, and never silently wrong."""

import importlib
from typing import TYPE_CHECKING, Any

from vitrail.data.open import OpenOptions, open_data
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Arrays, Part, Source

if TYPE_CHECKING:
    from vitrail.data.loading.loader import Batch, evaluation_batches, training_batches
    from vitrail.data.loading.order import Stream
    from vitrail.data.loading.prepare import Preparation
    from vitrail.data.loading.resident import resident_batches

# These bring torch along, which looking at data does not need.
_HOMES = {
    "Batch": "loader",
    "Preparation": "prepare",
    "Stream": "order",
    "evaluation_batches": "loader",
    "resident_batches": "resident",
    "training_batches": "loader",
}

__all__ = [
    "Arrays",
    "Batch",
    "Labels",
    "OpenOptions",
    "Part",
    "Preparation",
    "Source",
    "Stream",
    "evaluation_batches",
    "open_data",
    "resident_batches",
    "training_batches",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"vitrail.data.loading.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'vitrail.data' has no attribute {name!r}")
