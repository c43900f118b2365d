"""Zip archives of others: what they unpack to is known, and has to be in proportion, before anything is unpacked."""

import os
import struct
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

MOST_TIMES = 20
"""How many times its own size an archive may unpack to. Weights and answers shrink little; three megabytes that become
four gigabytes are no network."""
SMALL = 64 << 20
"""So many bytes are taken from any archive."""


# The records behind a central directory: that of 64 bits, where it lies, and the end.
_END_64, _LOCATOR, _END = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL"), struct.Struct("<4s4H2LH")
_SIZES_OF_64_BITS = 1


class Refused(ValueError):
    """An archive would unpack to far more than it holds, or is not one and the same for all readers."""


def ensure_proportionate(path: Path, members: Collection[str] | None = None) -> None:
    """Refuse an archive whose members, all or some, say that they unpack to far more than it holds.

    None unpacks to more than it says: readers stop there.
    """
    with zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if members is None or info.filename in members]
    packed, whole = path.stat().st_size, sum(info.file_size for info in infos)
    if whole > max(SMALL, MOST_TIMES * packed):
        raise Refused(f"its {packed:,} bytes would unpack to {whole:,}, more than {MOST_TIMES} times as many")


def ensure_stored(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse an archive with compressed parts, or one that another reader than Python's could take for another one.

    Readers differ in where they look for the central directory, so it has to be where all of them do: right before the
    record of its end, which ends the file.
    """
    for info in archive.infolist():
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise Refused(f"its part {info.filename[:80]!r} is compressed")
        if list(_extra_fields(info.extra)).count(_SIZES_OF_64_BITS) > 1:
            raise Refused(f"its part {info.filename[:80]!r} has two sizes")
    whole, size = sum(info.file_size for info in archive.infolist()), path.stat().st_size
    if whole > size:
        raise Refused(f"says that it is larger than it is: {whole:,} bytes in {size:,}")
    if not _has_one_directory(path):
        raise Refused("its list of parts is not right at its end")


def _has_one_directory(path: Path) -> bool:
    with path.open("rb") as file:
        at = file.seek(-_END.size, os.SEEK_END)
        mark, *_, length, offset, comment = _END.unpack(file.read())
        if mark != b"PK\5\6" or comment:
            return False
        file.seek(max(0, at - _LOCATOR.size - _END_64.size))
        tail = file.read()
    if tail[-_END.size - _LOCATOR.size :].startswith(b"PK\6\7"):
        at -= _LOCATOR.size + _END_64.size
        if at < 0:
            return False
        mark, *_, length, offset = _END_64.unpack_from(tail)
        if mark != b"PK\6\6" or _LOCATOR.unpack_from(tail, _END_64.size)[2] != at:
            return False
    return offset + length == at


def _extra_fields(extra: bytes) -> Iterator[int]:
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        yield kind
        extra = extra[4 + length :]


def open_npz(path: Path, only: Collection[str] | None = None) -> NpzFile:
    """An archive of plain arrays, never unpickled; what is asked of it is all of it, or only some arrays."""
    ensure_proportionate(path, None if only is None else {f"{name}.npy" for name in only})
    return np.load(path, allow_pickle=False)
