"""Zip archives of others: what they unpack to is known, and has to be in proportion, before anything is unpacked."""

import zipfile
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

MOST_TIMES = 20
"""How many times its own size an archive may unpack to. Weights and answers shrink little; three megabytes that become
four gigabytes are no network."""
SMALL = 64 << 20
"""So many bytes are taken from any archive."""


class Disproportionate(ValueError):
    """An archive would unpack to far more than it holds."""


def ensure_proportionate(path: Path, members: Collection[str] | None = None) -> None:
    """Refuse an archive whose members, all or some, say that they unpack to far more than it holds.

    None unpacks to more than it says: readers stop there.
    """
    with zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if members is None or info.filename in members]
    packed, whole = path.stat().st_size, sum(info.file_size for info in infos)
    if whole > max(SMALL, MOST_TIMES * packed):
        raise Disproportionate(f"its {packed:,} bytes would unpack to {whole:,}, more than {MOST_TIMES} times as many")


def open_npz(path: Path, only: Collection[str] | None = None) -> NpzFile:
    """An archive of plain arrays, never unpickled; what is asked of it is all of it, or only some arrays."""
    ensure_proportionate(path, None if only is None else {f"{name}.npy" for name in only})
    return np.load(path, allow_pickle=False)
