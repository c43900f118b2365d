"""From any source to a network that is ready to use."""

import dataclasses
from pathlib import Path
from typing import Any

from vitrail.config import Preprocessing, VitConfig, from_json, pair, preset
from vitrail.errors import DataError, choose
from vitrail.models import Classifier, tell_dropped_pixels
from vitrail.weights.adapt import adapt
from vitrail.weights.checkpoint import Checkpoint, to_model
from vitrail.weights.folder import is_model_folder, read_file, read_folder
from vitrail.weights.google import read_google
from vitrail.weights.resize import MODES
from vitrail.weights.stored_grid import stored_grid

Size = int | tuple[int, int]


def load_model(
    source: str | Path,
    num_classes: int | None = None,
    image_size: Size | None = None,
    *,
    resize: str = "google",
    preprocessing: str | Preprocessing | dict[str, Any] | None = None,
    source_image_size: Size | None = None,
    **overrides: Any,
) -> Classifier:
    """Load a network from a model folder, a `.safetensors` of ours or a Google `.npz`, in eval mode.

    Another `image_size` resamples the positions; another `num_classes` attaches a zero head; `overrides` change
    any other field of the config.
    """
    choose("resize mode", resize, MODES)
    checkpoint = read_checkpoint(source, image_size=image_size, source_image_size=source_image_size)
    checkpoint = adapt(checkpoint, num_classes=num_classes, image_size=image_size, resize=resize, overrides=overrides)
    if preprocessing is not None:
        checkpoint = dataclasses.replace(checkpoint, preprocessing=_preprocessing(preprocessing))
    tell_dropped_pixels(checkpoint.config)
    return to_model(checkpoint, str(source))


def read_checkpoint(
    source: str | Path, *, image_size: Size | None = None, source_image_size: Size | None = None
) -> Checkpoint:
    """Read a source as it is stored."""
    path = Path(source)
    if path.is_dir() and is_model_folder(path):
        return _with_grid(read_folder(path), source_image_size, str(path))
    if path.is_dir():
        wanted = "a model folder with config.json and model.safetensors"
        raise DataError("is a folder without a model", wanted=wanted, where=str(path))
    if not path.is_file():
        raise DataError("there is no such file or folder", where=str(path))
    if path.suffix == ".npz":
        return read_google(path, image_size=image_size, source_image_size=source_image_size)
    if path.suffix == ".safetensors":
        checkpoint = read_file(path)
        if checkpoint is not None:
            return _with_grid(checkpoint, source_image_size, str(path))
        raise DataError(
            "carries no record of the network it belongs to", wanted="a file that vitrail wrote", where=str(path)
        )
    raise DataError(
        f"the file ending {path.suffix!r} is not one that is read", wanted=".npz or .safetensors", where=str(path)
    )


def _with_grid(checkpoint: Checkpoint, source_image_size: Size | None, where: str) -> Checkpoint:
    if source_image_size is None:
        return checkpoint
    config = checkpoint.config
    size = pair(source_image_size, "source_image_size")
    if isinstance(config, VitConfig):
        rows = config.grid[0] * config.grid[1]
        stored_grid(rows, config.pixels_per_patch, image_size=None, source_image_size=size, where=where)
    return dataclasses.replace(checkpoint, config=dataclasses.replace(config, image_size=size))


def _preprocessing(value: str | Preprocessing | dict[str, Any]) -> Preprocessing:
    if isinstance(value, Preprocessing):
        return value
    return preset(value) if isinstance(value, str) else from_json(Preprocessing, value, where="preprocessing")
