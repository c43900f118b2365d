"""Pickled torch files, read with `weights_only`: the one place that may unpickle anything."""

import pickle
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from vitrail.errors import DataError
from vitrail.runtime.archives import Refused, ensure_stored

SUFFIXES = (".bin", ".pth", ".pt")
# Training scripts save more than weights; these keys hold them.
_NESTED = ("state_dict", "model", "model_state_dict")
_DAMAGE = (RuntimeError, OSError, EOFError, ValueError, KeyError, AttributeError, TypeError, zipfile.BadZipFile)


def read_torch(path: Path) -> dict[str, Tensor]:
    """All tensors of a torch file by name; anything but plain tensors and containers is refused unread."""
    where = str(path)
    try:
        if _is_archive(path):
            with zipfile.ZipFile(path) as archive:
                ensure_stored(path, archive)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise DataError(
            "holds Python objects beside tensors, which are never loaded",
            where=where,
            fix="Save its state dict alone, best as .safetensors.",
        ) from None
    except Refused as error:
        fix = "If it is one, save its state dict anew with torch.save, or better as .safetensors."
        raise DataError(f"is hardly a file of weights: {error}", where=where, fix=fix) from None
    except _DAMAGE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"is not a complete torch file ({reason})", where=where, fix="Copy the file again.") from error
    for key in _NESTED:
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(isinstance(name, str) for name in loaded):
        raise DataError(f"holds a {type(loaded).__name__}", wanted="a state dict", where=where)
    tensors = {name.removeprefix("module."): value for name, value in loaded.items() if isinstance(value, Tensor)}
    if not tensors:
        raise DataError("holds no tensors", wanted="a state dict", where=where)
    return tensors


def _is_archive(path: Path) -> bool:
    """Files of older torches are bare pickles."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"
