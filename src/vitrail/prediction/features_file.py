"""Features of many images as one file: NPZ for numpy, Parquet for tables and search engines."""

import tempfile
from pathlib import Path

import numpy as np

from vitrail.errors import DiskError, UsageError
from vitrail.runtime.atomic import atomic_file

SUFFIXES = (".npz", ".parquet")


def ensure_features_file(path: Path) -> None:
    """Refuse, before anything is computed, a file that could not be written in the end."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"the file ends in {path.suffix!r}", wanted=" or ".join(SUFFIXES), where=str(path))
    if path.suffix == ".parquet":
        _pyarrow()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise DiskError(f"could not be written ({error.strerror})", where=str(path)) from None


def write_features(path: Path, names: list[str], features: np.ndarray) -> None:
    """`image` (names) and `features` (images, dim), in the order of the images."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        if path.suffix == ".npz":
            with temporary.open("wb") as file:
                np.savez(file, image=np.array(names, dtype=str), features=features)
        else:
            arrow, parquet = _pyarrow()
            column = arrow.FixedSizeListArray.from_arrays(arrow.array(features.ravel()), features.shape[1])
            parquet.write_table(arrow.table({"image": arrow.array(names), "features": column}), temporary)


def _pyarrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed", fix="pip install 'vitrail[data]', or write an .npz."
        ) from None
    return pyarrow, pyarrow.parquet
