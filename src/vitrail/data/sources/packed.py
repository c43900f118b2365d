"""A packed copy of a data set: decoded once, resized to a short side, and mapped into memory when read.

A pack is a folder: pack.json says what it holds, and for each split NAME.pixels has the images one after the other and
NAME.safetensors their sizes, places, checksums and labels.
"""

import hashlib
import io
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load, save

from vitrail.config import DecodePolicy, from_json
from vitrail.data.sources.files import shown
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Encoded, Source
from vitrail.data.sources.splits import missing_split
from vitrail.errors import DataError
from vitrail.runtime.atomic import atomic_file

FORMAT = "vitrail-pack/1"
RECORD = "pack.json"
_AGAIN = "Copy it again, or pack it again."


@dataclass(frozen=True, kw_only=True)
class PackRecord:
    """What pack.json says."""

    format: str = FORMAT
    name: str
    """The data as it was named when it was packed."""
    classes: tuple[str, ...]
    short_side: int
    """Larger images were reduced to it; smaller ones are as they were."""
    quality: int | None = None
    """Of JPEG; none holds plain pixels."""
    policy: DecodePolicy = field(default_factory=DecodePolicy)
    """How the files were decoded."""
    digests: dict[str, str]
    """Split to the hash of the source it was made from."""
    indexes: dict[str, str] = field(default_factory=dict)
    """Split to the hash of its NAME.safetensors, once that is written."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PackIndex:
    """Where each image is, and whether it is still what was written."""

    offsets: np.ndarray
    """int64 (images + 1,)."""
    shapes: np.ndarray
    """int32 (images, 3): height, width, channels."""
    checksums: np.ndarray
    """CRC-32 of the bytes of each image."""
    labels: Labels


def is_packed(path: Path) -> bool:
    """Whether a folder is a pack."""
    return (path / RECORD).is_file()


def read_record(path: Path) -> PackRecord:
    """Read pack.json."""
    where = str(path / RECORD)
    try:
        values = json.loads((path / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"it could not be read ({error})", wanted="the record of a pack", where=where) from None
    record = from_json(PackRecord, values, where=where)
    if record.format != FORMAT:
        raise DataError(f"the format is {record.format!r}", wanted=repr(FORMAT), where=where)
    return record


def save_index(path: Path, index: PackIndex) -> str:
    """Write NAME.safetensors; returns its hash."""
    labels = {"labels": index.labels.values}
    if index.labels.offsets is not None:
        labels["label_offsets"] = index.labels.offsets
    content = save({"offsets": index.offsets, "shapes": index.shapes, "checksums": index.checksums, **labels})
    with atomic_file(path) as file:
        file.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def open_packed(path: Path, split: str = "train") -> "Packed":
    """Open one split of a pack."""
    record = read_record(path)
    if split not in record.digests:
        raise missing_split(split, record.digests, str(path))
    try:
        content = (path / f"{split}.safetensors").read_bytes()
        size = (path / f"{split}.pixels").stat().st_size
    except OSError as error:
        where = str(error.filename)
        raise DataError(f"it could not be read ({error.strerror})", where=where, fix=_AGAIN) from None
    # Without it, one wrong bit could give an image another class.
    if hashlib.sha256(content).hexdigest() != record.indexes.get(split):
        where = str(path / f"{split}.safetensors")
        raise DataError("it is not what was written with pack.json", where=where, fix=_AGAIN)
    arrays = load(content)
    labels = Labels(arrays["labels"], len(record.classes), arrays.get("label_offsets"))
    index = PackIndex(arrays["offsets"], arrays["shapes"], arrays["checksums"], labels)
    if size != int(index.offsets[-1]):
        where = str(path / f"{split}.pixels")
        raise DataError(f"it has {size:,} bytes", wanted=f"{int(index.offsets[-1]):,}", where=where, fix=_AGAIN)
    return Packed(path, split, record, index)


class Packed(Source):
    """One split of a pack; each process maps the file when it first reads."""

    def __init__(self, path: Path, split: str, record: PackRecord, index: PackIndex) -> None:
        self.name, self.split, self.classes, self.labels = shown(str(path)), split, record.classes, index.labels
        self.notes = record.notes
        self._pixels, self._index, self._is_jpeg = path / f"{split}.pixels", index, record.quality is not None
        self._digest = record.digests[split]
        self._map: np.ndarray | None = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_map": None}

    def read(self, index: int) -> Encoded:
        stored = self._bytes(index)
        if self._is_jpeg:
            return stored.tobytes()
        height, width, channels = (int(side) for side in self._index.shapes[index])
        return stored.reshape((height, width) if channels == 1 else (height, width, channels))

    def where(self, index: int) -> str:
        return f"{shown(str(self._pixels))}: image {index}"

    def manifest(self) -> Iterable[bytes]:
        yield self._digest.encode()
        yield self._index.checksums.tobytes()

    def damaged(self) -> list[int]:
        """Images whose bytes are not what was written."""
        return [i for i in range(len(self)) if zlib.crc32(self._bytes(i).data) != int(self._index.checksums[i])]

    def _bytes(self, index: int) -> np.ndarray:
        if self._map is None:
            try:
                self._map = np.memmap(self._pixels, dtype=np.uint8, mode="r", shape=(int(self._index.offsets[-1]),))
            except (OSError, ValueError) as error:
                raise DataError(f"the pack could not be read ({error})", where=str(self._pixels), fix=_AGAIN) from None
        return self._map[int(self._index.offsets[index]) : int(self._index.offsets[index + 1])]


def pack_image(image: Image.Image, short_side: int, quality: int | None) -> tuple[bytes, tuple[int, int, int]]:
    """One image as it is stored, and its (height, width, channels)."""
    shortest = min(image.size)
    if shortest > short_side:
        width, height = (max(round(side * short_side / shortest), 1) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    shape = image.height, image.width, len(image.getbands())
    if quality is None:
        return image.tobytes(), shape
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality, subsampling=0)
    return buffer.getvalue(), shape
