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
from safetensors import SafetensorError
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
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"it could not be read ({error})", wanted="the record of a pack", where=where) from None
    record = from_json(PackRecord, values, where=where)
    if record.format != FORMAT:
        raise DataError(f"the format is {record.format!r}", wanted=repr(FORMAT), where=where)
    if not all(isinstance(digest, str) for digest in record.digests.values()) or not record.digests:
        raise DataError("the digests are no hashes", wanted="one for each split", where=where, fix=_AGAIN)
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
    index = _read_index(content, record, str(path / f"{split}.safetensors"))
    if size != int(index.offsets[-1]):
        where = str(path / f"{split}.pixels")
        raise DataError(f"it has {size:,} bytes", wanted=f"{int(index.offsets[-1]):,}", where=where, fix=_AGAIN)
    return Packed(path, split, record, index)


def _read_index(content: bytes, record: PackRecord, where: str) -> PackIndex:
    """The index, which may come from anyone: whatever it says must fit together."""
    try:
        arrays = load(content)
        labels = Labels(arrays["labels"], len(record.classes), arrays.get("label_offsets"))
        index = PackIndex(arrays["offsets"], arrays["shapes"], arrays["checksums"], labels)
    except (SafetensorError, KeyError, ValueError) as error:
        raise DataError(f"it is no index of a pack ({error})", where=where, fix=_AGAIN) from None
    fault = _fault(index, plain=record.quality is None)
    if fault:
        raise DataError(fault, wanted="an index that fits together", where=where, fix=_AGAIN)
    return index


def _fault(index: PackIndex, *, plain: bool) -> str:
    """What is wrong with an index, if anything."""
    shapes, labels = index.shapes, index.labels
    images = len(shapes) if shapes.ndim == 2 and shapes.shape[1] == 3 else -1
    if images < 0 or shapes.dtype != np.int32 or (shapes < 1).any() or not np.isin(shapes[:, 2], (1, 3)).all():
        return "the shapes of the images are wrong"
    if index.checksums.shape != (images,) or index.checksums.dtype != np.uint32:
        return f"there are {index.checksums.size:,} checksums for {images:,} images"
    if not _are_steps(index.offsets, images):
        return "the places of the images are wrong"
    if plain and not np.array_equal(np.diff(index.offsets), shapes.astype(np.int64).prod(axis=1)):
        return "the places of the images do not fit their shapes"
    if labels.values.ndim != 1 or labels.values.dtype != np.int64:
        return "the labels are no class numbers"
    if labels.offsets is not None and not _are_steps(labels.offsets, images):
        return "the places of the labels are wrong"
    if len(labels.values) != (images if labels.offsets is None else labels.offsets[-1]):
        return f"there are {len(labels.values):,} labels for {images:,} images"
    if ((labels.values < 0) | (labels.values >= labels.num_classes)).any():
        return f"a label is not one of the {labels.num_classes} classes"
    return ""


def _are_steps(offsets: np.ndarray, images: int) -> bool:
    """Whether offsets begin at 0 and never go back."""
    return (
        offsets.shape == (images + 1,)
        and offsets.dtype == np.int64
        and int(offsets[0]) == 0
        and bool((offsets[1:] >= offsets[:-1]).all())
    )


class Packed(Source):
    """One split of a pack; each process maps the file when it first reads."""

    def __init__(self, path: Path, split: str, record: PackRecord, index: PackIndex) -> None:
        self.name, self.split, self.classes, self.labels = shown(str(path)), split, record.classes, index.labels
        self.notes = record.notes
        self._pixels, self._index, self._is_jpeg = path / f"{split}.pixels", index, record.quality is not None
        self._digest = record.digests[split]
        self._map: np.ndarray | None = None
        self._compared = np.zeros(len(index.checksums), dtype=bool)

    def __getstate__(self) -> dict:
        return {**vars(self), "_map": None, "_compared": np.zeros_like(self._compared)}

    def read(self, index: int) -> Encoded:
        stored = self._bytes(index)
        # Once in each process: a checksum takes a fifth of the time of a training crop.
        if not self._compared[index]:
            if self._is_damaged(index):
                raise DataError("its bytes are not what was packed", where=self.where(index), fix=_AGAIN)
            self._compared[index] = True
        if self._is_jpeg:
            return stored.tobytes()
        height, width, channels = (int(side) for side in self._index.shapes[index])
        return stored.reshape((height, width) if channels == 1 else (height, width, channels))

    def where(self, index: int) -> str:
        return f"{shown(str(self._pixels))}: image {index}"

    def manifest(self) -> Iterable[bytes]:
        yield self._digest.encode()
        yield self._index.checksums.tobytes()

    def holders(self) -> Iterable[Path]:
        """The file that holds the images."""
        return [self._pixels]

    def checksum(self, index: int) -> int:
        """The CRC-32 of the bytes of an image, which is known without reading them."""
        return int(self._index.checksums[index])

    def damaged(self) -> list[int]:
        """Images whose bytes are not what was written."""
        return [index for index in range(len(self)) if self._is_damaged(index)]

    def _is_damaged(self, index: int) -> bool:
        return zlib.crc32(self._bytes(index).data) != int(self._index.checksums[index])

    def _bytes(self, index: int) -> np.ndarray:
        if self._map is None:
            try:
                size = int(self._index.offsets[-1])
                self._map = np.memmap(self._pixels, dtype=np.uint8, mode="r", shape=(size,))
            except (OSError, ValueError) as error:
                where = str(self._pixels)
                raise DataError(f"the pack could not be read ({error})", where=where, fix=_AGAIN) from None
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
