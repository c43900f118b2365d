"""Published layouts and our own: read, write, rename, resize positions."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitrail.weights.load import load_model, read_checkpoint
    from vitrail.weights.resize import resize_positions
    from vitrail.weights.save import LAYOUTS, save_model, write_checkpoint

# These bring torch along, which reading what is said about a network does not need.
_HOMES = {
    "LAYOUTS": "save",
    "load_model": "load",
    "read_checkpoint": "load",
    "resize_positions": "resize",
    "save_model": "save",
    "write_checkpoint": "save",
}

__all__ = ["LAYOUTS", "load_model", "read_checkpoint", "resize_positions", "save_model", "write_checkpoint"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"vitrail.weights.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'vitrail.weights' has no attribute {name!r}")
