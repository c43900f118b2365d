"""Our own model folder: `model.safetensors` and `config.json`, so that weights never travel alone."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitrail.config import BitConfig, ModelConfig, Preprocessing, VitConfig, from_json, to_json
from vitrail.errors import DataError, UsageError
from vitrail.runtime.atomic import atomic_folder
from vitrail.weights.checkpoint import Checkpoint
from vitrail.weights.safetensors_file import parse_json, read_safetensors, write_safetensors

FORMAT = "vitrail/1"
WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
METADATA_KEY = "vitrail"

_FAMILIES: dict[str, type[VitConfig] | type[BitConfig]] = {"vit": VitConfig, "bit": BitConfig}


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The fields of `config.json`."""

    format: str
    family: str
    model: dict[str, Any]
    labels: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


def is_model_folder(path: Path) -> bool:
    """Whether a folder holds one of our models."""
    return (path / CONFIG_FILE).is_file() and (path / WEIGHTS_FILE).is_file()


def read_folder(path: Path) -> Checkpoint:
    """Read a model folder."""
    where = path / CONFIG_FILE
    try:
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", where=str(where)) from error
    tensors, _ = read_safetensors(path / WEIGHTS_FILE)
    return _checkpoint(parse_json(text, str(where)), tensors, str(where))


def read_file(path: Path) -> Checkpoint | None:
    """Read a lone `.safetensors` that we wrote; none when it carries no record of ours."""
    tensors, metadata = read_safetensors(path)
    if METADATA_KEY not in metadata:
        return None
    where = f"{path}, metadata"
    return _checkpoint(parse_json(metadata[METADATA_KEY], where), tensors, where)


def write_folder(path: Path, checkpoint: Checkpoint) -> None:
    """Write a model folder; one that is there already is replaced, other folders are left alone."""
    if path.exists() and not (path.is_dir() and (is_model_folder(path) or not any(path.iterdir()))):
        raise UsageError("is there already and is not a model folder", where=str(path), fix="Choose another target.")
    text = json.dumps(_record(checkpoint), indent=2, ensure_ascii=False) + "\n"
    tensors = {name: tensor.cpu() for name, tensor in checkpoint.state.items()}
    with atomic_folder(path) as temporary:
        write_safetensors(temporary / WEIGHTS_FILE, tensors, {METADATA_KEY: text})
        (temporary / CONFIG_FILE).write_text(text, encoding="utf-8")


def _record(checkpoint: Checkpoint) -> dict[str, Any]:
    return to_json(
        _Record(
            format=FORMAT,
            family="bit" if isinstance(checkpoint.config, BitConfig) else "vit",
            model=to_json(checkpoint.config),
            labels=checkpoint.labels,
            preprocessing=checkpoint.preprocessing,
            provenance=checkpoint.provenance,
            metrics=checkpoint.metrics,
        )
    )


def _checkpoint(values: object, tensors: dict[str, Any], where: str) -> Checkpoint:
    found = values.get("format") if isinstance(values, dict) else None
    if found != FORMAT:
        raise DataError(f"the format tag is {found!r}", wanted=repr(FORMAT), where=where)
    record = from_json(_Record, values, where=where)
    if record.family not in _FAMILIES:
        raise DataError(f"the family is {record.family!r}", wanted="'vit' or 'bit'", where=where)
    config: ModelConfig = from_json(_FAMILIES[record.family], record.model, where=f"{where}, 'model'")
    if record.labels is not None and len(record.labels) != config.num_classes:
        came = f"there are {len(record.labels)} labels for {config.num_classes} classes"
        raise DataError(came, wanted="one label per class", where=where)
    return Checkpoint(
        config=config,
        state={name: tensor.float() for name, tensor in tensors.items()},
        labels=record.labels,
        preprocessing=record.preprocessing,
        provenance=record.provenance,
        metrics=record.metrics,
    )
