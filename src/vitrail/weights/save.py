"""From a network to a file in any of the layouts."""

from collections.abc import Callable
from pathlib import Path

from vitrail.errors import choose
from vitrail.models import Classifier
from vitrail.weights.checkpoint import Checkpoint, from_model
from vitrail.weights.folder import write_folder
from vitrail.weights.google import write_google

LAYOUTS: dict[str, Callable[[Path, Checkpoint], None]] = {"vitrail": write_folder, "google": write_google}


def save_model(model: Classifier, path: str | Path, layout: str = "vitrail") -> None:
    """Write a network: our model folder, or `google` for a .npz of the original's names."""
    write_checkpoint(from_model(model), path, layout)


def write_checkpoint(checkpoint: Checkpoint, path: str | Path, layout: str) -> None:
    """Write a checkpoint as it is."""
    LAYOUTS[choose("layout", layout, LAYOUTS)](Path(path), checkpoint)
