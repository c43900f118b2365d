"""Numpy archives: read without executing anything, written whole or not at all."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import DataError
from vitrail.runtime.atomic import atomic_file


def read_npz(path: Path) -> dict[str, Tensor]:
    """All arrays of an archive by name; bfloat16, which numpy stores as two raw bytes, becomes float32."""
    where = str(path)
    if not zipfile.is_zipfile(path):
        raise DataError("is not a complete .npz archive", where=where, fix="Download or copy the file again.")
    arrays: dict[str, Tensor] = {}
    name = ""
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                # Archives made on Windows may separate the levels by backslashes.
                arrays[name.replace("\\", "/")] = _tensor(archive[name])
    except (
        ValueError,
        TypeError,
        EOFError,
        MemoryError,
        OverflowError,
        OSError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        if "allow_pickle" in str(error):
            raise DataError(
                f"the array {name!r} holds pickled Python objects, which are never loaded",
                wanted="plain numbers",
                where=where,
            ) from None
        came = f"the array {name!r} cannot be read ({error})"
        raise DataError(came, where=where, fix="The file is damaged: download or copy it again.") from error
    return arrays


def write_npz(path: Path, arrays: Mapping[str, Tensor]) -> None:
    """Write an archive with the given names."""
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **{name: array.cpu().numpy() for name, array in arrays.items()})


def _tensor(array: np.ndarray) -> Tensor:
    if not isinstance(array, np.ndarray):
        raise TypeError("it is not a numpy array")  # other members of a zip file come as bytes
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return torch.from_numpy(array)
