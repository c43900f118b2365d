"""dSprites: where a shape is, and how it is turned; 737,280 images of 64x64 bits in one compressed array."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.data.sources.files import shown
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.slices import Slices, Stretches
from vitrail.data.sources.strings import Strings
from vitrail.data.vtab.pools import Listed, Pools, shared_out
from vitrail.data.vtab.tasks import Task
from vitrail.errors import DataError, notice
from vitrail.runtime.archives import open_npz
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.cache import cache_folder

_FILE = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
_CLASSES = 16
# Columns of latents_classes: colour, shape, scale, orientation, x, y; and how many values each of ours has.
_ATTRIBUTES = {"dsprites-orientation": (3, 40), "dsprites-location": (4, 32)}
_IMAGES_AT_A_TIME = 4096


def open_dsprites(task: Task, root: Path, download: bool) -> Pools:
    """There are no splits; 80 % are to learn from and 10 % to choose on."""
    path = root / "dsprites" / _FILE
    column, values = _ATTRIBUTES[task.name]
    with _reading(path):
        with open_npz(path, only=["latents_classes"]) as arrays:
            latents = arrays["latents_classes"]
        labels = sixteenths(latents[:, column], values)
    bits, shape = _as_bits(path)
    count = len(labels)
    if shape[0] != count:
        raise DataError(f"{shape[0]:,} images and {count:,} labels", wanted="as many", where=shown(str(path)))
    size = shape[1] * shape[2] // 8
    ids = Strings(str(index) for index in range(count))
    stretches = Stretches(
        files=(str(bits),),
        file=np.zeros(count, dtype=np.int64),
        start=np.arange(count, dtype=np.int64) * size,
        size=np.full(count, size, dtype=np.int64),
        shape=(shape[1], shape[2]),
        bits=True,
    )
    names = tuple(f"{number + 1} of {_CLASSES}" for number in range(_CLASSES))
    whole = Slices(task.name, "all", names, Labels.of(labels, _CLASSES), stretches, ids)
    return shared_out("dsprites", Listed(whole, ids), 80, 10)


def sixteenths(values: np.ndarray, count: int) -> np.ndarray:
    """The label: `count` values in 16 classes, floor(value / (count / 16)) in the float32 of the original."""
    if len(values) and not 0 <= values.min() <= values.max() < count:
        raise ValueError(f"values from {values.min()} to {values.max()}, of {count}")
    return np.floor_divide(values.astype(np.float32), np.float32(count / _CLASSES)).astype(np.int64)


def _as_bits(path: Path) -> tuple[Path, tuple[int, ...]]:
    """The images as eight pixels a byte in our cache: a compressed array has no random access."""
    with _reading(path), zipfile.ZipFile(path) as archive, archive.open("imgs.npy") as file:
        shape, kind = _header(file)
        if len(shape) != 3 or kind != np.uint8 or shape[1] * shape[2] % 8:
            raise ValueError(f"imgs are {kind}{shape}")
        # By what is in it and not by when it was written, because the name is part of the digest.
        checksum = archive.getinfo("imgs.npy").CRC
    target = cache_folder("vtab") / f"dsprites-{checksum:08x}.bits"
    size = shape[0] * shape[1] * shape[2] // 8
    with suppress(OSError):
        if target.stat().st_size == size:
            return target, shape
    notice(f"{shown(str(path))} is unpacked once, to {shown(str(target))} ({size:,} bytes).")
    with atomic_file(target) as temporary, temporary.open("wb") as bits:
        bits.writelines(_packed(path, shape))
    return target, shape


def _packed(path: Path, shape: tuple[int, ...]) -> Iterator[bytes]:
    """Some images at a time; what goes wrong in here is the archive's fault and not that of the cache."""
    pixels = shape[1] * shape[2]
    with _reading(path), zipfile.ZipFile(path) as archive, archive.open("imgs.npy") as file:
        _header(file)
        for start in range(0, shape[0], _IMAGES_AT_A_TIME):
            part = np.frombuffer(_exactly(file, min(_IMAGES_AT_A_TIME, shape[0] - start) * pixels), np.uint8)
            if part.max(initial=0) > 1:
                raise ValueError(f"a pixel is {part.max()}, wanted 0 or 1")
            yield np.packbits(part).tobytes()
        # The checksum is compared at the end.
        if file.read(1):
            raise ValueError("imgs are longer than they say")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What zipfile and NumPy raise for a file that is damaged, or no archive of arrays at all."""
    try:
        yield
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        EOFError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DataError(f"the file is damaged or another one ({error})", where=shown(str(path))) from None


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, is_fortran, kind = reader[version](file)
    if is_fortran:
        raise ValueError("imgs are stored in columns")
    return shape, kind


def _exactly(file: Any, size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise ValueError("imgs are cut off")
    return content
