"""vitrail: the Vision Transformer of "An Image is Worth 16x16 Words", as software people use.

Public names load on first use, so that `import vitrail` and the command line stay quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitrail import weights as weights
    from vitrail.experiments.calling import plan as plan
    from vitrail.experiments.finetune import finetune as finetune
    from vitrail.experiments.selftrain import selftrain as selftrain
    from vitrail.experiments.train import train as train
    from vitrail.experiments.transfer import transfer as transfer
    from vitrail.experiments.vtab import vtab as vtab
    from vitrail.models import VisionTransformer as VisionTransformer
    from vitrail.models import create_model as create_model
    from vitrail.prediction import Predictor as Predictor
    from vitrail.weights import load_model as load_model
    from vitrail.weights import save_model as save_model

__version__ = "0.1.0"

_HOMES = {
    "Predictor": "vitrail.prediction",
    "VisionTransformer": "vitrail.models",
    "create_model": "vitrail.models",
    "finetune": "vitrail.experiments.finetune",
    "load_model": "vitrail.weights",
    "plan": "vitrail.experiments.calling",
    "save_model": "vitrail.weights",
    "selftrain": "vitrail.experiments.selftrain",
    "train": "vitrail.experiments.train",
    "transfer": "vitrail.experiments.transfer",
    "vtab": "vitrail.experiments.vtab",
}
_ROOMS = (
    "config",
    "data",
    "errors",
    "evaluation",
    "experiments",
    "exporting",
    "inspection",
    "models",
    "prediction",
    "recipes",
    "training",
    "weights",
    "zoo",
)

__all__ = [
    "Predictor",
    "VisionTransformer",
    "create_model",
    "finetune",
    "load_model",
    "plan",
    "save_model",
    "selftrain",
    "train",
    "transfer",
    "vtab",
    "weights",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"vitrail.{name}")
    raise AttributeError(f"module 'vitrail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS, "__version__"})
