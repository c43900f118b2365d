"""From any source to a network that is ready to use."""

import dataclasses
from pathlib import Path
from typing import Any

from vitrail.config import Preprocessing, VitConfig, from_json, pair, peer_name, preset
from vitrail.errors import DataError, UsageError, choose, command
from vitrail.models import Classifier, tell_dropped_pixels
from vitrail.runtime.lock import is_held
from vitrail.weights.adapt import adapt
from vitrail.weights.checkpoint import Checkpoint, to_model
from vitrail.weights.folder import CONFIG_FILE, WEIGHTS_FILE, read_folder, sidecar
from vitrail.weights.google import read_google
from vitrail.weights.hub import fetch, is_hub, with_origin, zoo_source
from vitrail.weights.huggingface_processor import PROCESSOR_FILE
from vitrail.weights.library import read_tensors
from vitrail.weights.library_config import Hints
from vitrail.weights.peer import read_peer
from vitrail.weights.resize import MODES
from vitrail.weights.safetensors_file import read_safetensors
from vitrail.weights.stored_grid import grid_rule, stored_grid
from vitrail.weights.torch_file import SUFFIXES, read_torch

Size = int | tuple[int, int]

# Names under which libraries save the weights of a folder, ours first.
_WEIGHT_FILES = (WEIGHTS_FILE, "pytorch_model.bin")


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
    """Load a network in eval mode: a folder or file of vitrail, Google, timm, torchvision or Hugging Face.

    `hf-hub:owner/name` and zoo keys with published weights are fetched from the hub; `timm:NAME` and `torchvision:NAME`
    are networks of those packages with their weights.

    Another `image_size` resamples the positions; another `num_classes` attaches a zero head; `overrides` change
    any other field of the config.
    """
    choose("resize mode", resize, MODES)
    checkpoint = read_checkpoint(
        source,
        image_size=image_size,
        source_image_size=source_image_size,
        num_heads=overrides.get("num_heads"),
    )
    checkpoint = adapt(checkpoint, num_classes=num_classes, image_size=image_size, resize=resize, overrides=overrides)
    if preprocessing is not None:
        checkpoint = dataclasses.replace(checkpoint, preprocessing=_preprocessing(preprocessing))
    tell_dropped_pixels(checkpoint.config)
    return to_model(checkpoint, str(source))


def read_checkpoint(
    source: str | Path,
    *,
    image_size: Size | None = None,
    source_image_size: Size | None = None,
    num_heads: int | None = None,
) -> Checkpoint:
    """Read a source as it is stored; what the caller knows of it settles what the file leaves open."""
    path = Path(source)
    peer = None if _exists(path) else peer_name(str(source))
    if peer is not None:
        return read_peer(peer)
    published = None if _exists(path) else zoo_source(str(source))
    if published or is_hub(str(source)):
        repository = published.hub if published else str(source)
        path = fetch(repository)
        stored = read_checkpoint(path, image_size=image_size, source_image_size=source_image_size, num_heads=num_heads)
        return with_origin(stored, path, repository, published)
    hints = Hints(image_size=image_size, source_image_size=source_image_size, num_heads=num_heads)
    try:
        return _read_path(path, hints)
    except UsageError as error:  # a config that cannot be, read off a file
        raise DataError(error.came, wanted=error.wanted, where=str(path), fix=error.fix) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None


# Of many models, none of which is that of the whole.
_TABLES = ("vitrail-transfer", "vitrail-vtab")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file system takes
        return False


def _read_path(path: Path, hints: Hints) -> Checkpoint:
    if path.is_dir():
        return _read_folder(path, hints)
    if not path.is_file():
        raise DataError(
            "there is no such file or folder",
            where=str(path),
            fix="Check the path; `vitrail list models` shows names with published weights.",
        )
    if path.suffix == ".npz":
        return read_google(path, image_size=hints.image_size, source_image_size=hints.source_image_size)
    if path.suffix == ".safetensors" or path.suffix in SUFFIXES:
        beside = sidecar(path.parent) if path.name in _WEIGHT_FILES else {}
        is_ours = not beside or "format" in beside
        return _read_file(path, hints if is_ours else _with_sidecars(hints, path.parent, beside))
    wanted = f".npz, .safetensors, {', '.join(SUFFIXES)} or a folder"
    raise DataError(f"the file ending {path.suffix!r} is not one that is read", wanted=wanted, where=str(path))


def _read_folder(path: Path, hints: Hints) -> Checkpoint:
    file = next((path / name for name in _WEIGHT_FILES if (path / name).is_file()), None)
    config = sidecar(path)
    kind = str(config.get("format", "")).partition("/")[0]
    if kind.startswith("vitrail-") and (kind not in _TABLES or (path / "model").is_dir()):
        return _read_run(path, hints)
    if file is None or not config:
        wanted = f"a model folder with {CONFIG_FILE} and {WEIGHTS_FILE}"
        inside = next((child for child in sorted(path.iterdir()) if (child / CONFIG_FILE).is_file()), None)
        fix = "" if inside is None else f"There is one inside: {inside}."
        raise DataError("is a folder without a model", wanted=wanted, where=str(path), fix=fix)
    if "model_type" in config or "architecture" in config:
        return _read_file(file, _with_sidecars(hints, path, config))
    return _with_grid(read_folder(path), hints.source_image_size, str(path))


def _with_sidecars(hints: Hints, folder: Path, config: dict[str, Any]) -> Hints:
    return dataclasses.replace(hints, config=config, preprocessor=sidecar(folder, PROCESSOR_FILE))


def _read_run(path: Path, hints: Hints) -> Checkpoint:
    """The model that a run kept."""
    kind = str(sidecar(path)["format"]).partition("/")[0].removeprefix("vitrail-")
    verb = "train" if kind == "run" else kind
    if not (path / "model").is_dir():
        goes_on = f"`{command(verb, resume=str(path))}` goes on with it."
        raise DataError(
            "this run has not kept a model yet",
            where=str(path),
            fix="It is being trained now: wait for its end." if is_held(path / ".lock") else goes_on,
        )
    return _read_folder(path / "model", hints)


def _read_file(path: Path, hints: Hints) -> Checkpoint:
    tensors, metadata = read_safetensors(path) if path.suffix == ".safetensors" else (read_torch(path), {})
    return _with_grid(read_tensors(tensors, metadata, hints, path), hints.source_image_size, str(path))


def _with_grid(checkpoint: Checkpoint, source_image_size: Size | None, where: str) -> Checkpoint:
    if source_image_size is None:
        return checkpoint
    config = checkpoint.config
    size = pair(source_image_size, "source_image_size")
    if isinstance(config, VitConfig):
        rows, grid_of = config.grid[0] * config.grid[1], grid_rule(config.patch_size, config.backbone)
        stored_grid(rows, grid_of, image_size=None, source_image_size=size, where=where)
    return dataclasses.replace(checkpoint, config=dataclasses.replace(config, image_size=size))


def _preprocessing(value: str | Preprocessing | dict[str, Any]) -> Preprocessing:
    if isinstance(value, Preprocessing):
        return value
    return preset(value) if isinstance(value, str) else from_json(Preprocessing, value, where="preprocessing")
