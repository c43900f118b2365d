"""Numpy archives: read without executing anything, written whole or not at all."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import DataError
from vitrail.runtime.archives import Refused, open_npz
from vitrail.runtime.atomic import atomic_file


def read_npz(path: Path) -> dict[str, Tensor]:
    """All arrays of an archive by name; bfloat16, which numpy stores as two raw bytes, becomes float32."""
    where = str(path)
    if not zipfile.is_zipfile(path):
        raise DataError("is not a complete .npz archive", where=where, fix="Download or copy the file again.")
    arrays: dict[str, Tensor] = {}
    name = ""
    try:
        with open_npz(path) as archive:
            for name in archive.files:
                # Archives made on Windows may separate the levels by backslashes.
                arrays[name.replace("\\", "/")] = _tensor(archive[name])
    except Refused as error:
        fix = "If it is one, save it without compression."
        raise DataError(f"is hardly a file of weights: {error}", where=where, fix=fix) from None
    except Exception as error:  # a hostile archive can make zip, zlib, numpy and its header parser fail in many ways
        if name and "allow_pickle" in str(error):
            raise DataError(
                f"the array {name!r} holds pickled Python objects, which are never loaded",
                wanted="plain numbers",
                where=where,
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        came = f"the array {name!r} cannot be read ({reason})" if name else f"the archive cannot be read ({reason})"
        raise DataError(came, where=where, fix="The file is damaged: download or copy it again.") from error
    return arrays


def write_npz(path: Path, arrays: Mapping[str, Tensor]) -> None:
    """Write an archive with the given names."""
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        numbers: dict[str, Any] = {name: array.cpu().numpy() for name, array in arrays.items()}
        np.savez(file, **numbers)


def _tensor(array: np.ndarray) -> Tensor:
    if not isinstance(array, np.ndarray):
        raise TypeError("it is not a numpy array")  # other members of a zip file come as bytes
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
