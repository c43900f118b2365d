"""Training as a function of (config, seed, step, recorded events)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitrail.training.optimizer import build_optimizer
    from vitrail.training.schedule import learning_rate

# These bring torch along, which reading the folder of a run does not need.
_HOMES = {"build_optimizer": "optimizer", "learning_rate": "schedule"}

__all__ = ["build_optimizer", "learning_rate"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"vitrail.training.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'vitrail.training' has no attribute {name!r}")
