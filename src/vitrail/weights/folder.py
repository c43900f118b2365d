"""Our own model folder: `model.safetensors`, `config.json` and a card, so that weights never travel alone."""

from pathlib import Path
from typing import Any

from vitrail.errors import DataError
from vitrail.runtime.atomic import atomic_folder
from vitrail.weights.card import CARD_FILE, may_write_card, model_card
from vitrail.weights.checkpoint import Checkpoint, with_tensors
from vitrail.weights.layout import as_float32
from vitrail.weights.record import METADATA_KEY, parse_json, read_record, record_text
from vitrail.weights.safetensors_file import read_safetensors, write_safetensors

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"


def read_text(path: Path) -> str:
    """Read a small text file that travels with weights."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", where=str(path)) from error


def sidecar(folder: Path, name: str = CONFIG_FILE) -> dict[str, Any]:
    """A JSON object beside the weights; an empty one when there is none."""
    path = folder / name
    if not path.is_file():
        return {}
    values = parse_json(read_text(path), str(path))
    if not isinstance(values, dict):
        raise DataError("holds no JSON object", where=str(path))
    return values


def read_folder(path: Path) -> Checkpoint:
    """Read a model folder."""
    where = path / CONFIG_FILE
    described = read_record(read_text(where), str(where))
    tensors, _ = read_safetensors(path / WEIGHTS_FILE)
    state = {name: as_float32(tensor, name, str(path)) for name, tensor in tensors.items()}
    return with_tensors(described, state)


def write_folder(path: Path, checkpoint: Checkpoint) -> None:
    """Write a model folder; one that is there already is replaced, and keeps files that are not ours."""
    text = record_text(checkpoint)
    tensors = {name: tensor.cpu() for name, tensor in checkpoint.state.items()}
    with atomic_folder(path) as temporary:
        write_safetensors(temporary / WEIGHTS_FILE, tensors, {METADATA_KEY: text})
        (temporary / CONFIG_FILE).write_text(text, encoding="utf-8")
        if may_write_card(path):
            (temporary / CARD_FILE).write_text(model_card(checkpoint), encoding="utf-8")
