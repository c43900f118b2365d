"""Images in one array of an HDF5 file, read one at a time."""

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.data.sources.files import patient_stat, shown
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Encoded, Source
from vitrail.errors import DataError, UsageError


class Hdf5Images(Source):
    """Pixels (images, height, width, 3) in an array of a file, which every process opens for itself."""

    def __init__(self, name: str, split: str, classes: tuple[str, ...], labels: Labels, path: Path, array: str) -> None:
        self.name, self.split, self.classes, self.labels = name, split, classes, labels
        self._path, self._array = str(path), array
        self._opened: tuple[int, Any] | None = None

    def read(self, index: int) -> Encoded:
        # HDF5's handles do not survive a fork.
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), open_hdf5(Path(self._path))
        try:
            return np.asarray(self._opened[1][self._array][index])
        except (OSError, KeyError) as error:
            raise DataError(f"the image could not be read ({error})", where=self.where(index)) from None

    def where(self, index: int) -> str:
        return f"{shown(self._path)}: {self._array}[{index}]"

    def manifest(self) -> Iterable[bytes]:
        path = Path(self._path)
        yield f"{path.name}\0{patient_stat(path).st_size}".encode()

    def holders(self) -> Iterable[Path]:
        """The file that holds the images."""
        return [Path(self._path)]

    def __getstate__(self) -> dict:
        return {**vars(self), "_opened": None}


def open_hdf5(path: Path) -> Any:
    """Open a file for reading; a UsageError when the package for it is missing."""
    require_h5py()
    try:
        return importlib.import_module("h5py").File(path, "r")
    except OSError as error:
        raise DataError(f"the file is missing, damaged or cut off ({error})", where=shown(str(path))) from None


def require_h5py() -> None:
    """Say what to install before anything is looked for."""
    try:
        importlib.import_module("h5py")
    except ImportError:
        raise UsageError("HDF5 files need the package 'h5py'", fix="Run `pip install h5py`.") from None
