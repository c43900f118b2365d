"""What every source of images offers: a fixed order, labels, and one image at a time."""

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np

from vitrail.data.sources.labels import Labels
from vitrail.errors import DataError
from vitrail.runtime.patience import PATIENCE

Encoded = bytes | np.ndarray
"""A file's bytes, or pixels that need no decoding: uint8 (height, width) or (height, width, 3)."""


class Source(ABC):
    """Images with labels in a fixed order.

    Nothing is decoded here and nothing is ever written beside the data. A source travels to worker processes, so it
    holds plain values, arrays and paths, and opens files when asked to read.
    """

    name: str
    """What a person typed to get it."""
    split: str
    """train, val, test, or a part of one."""
    classes: tuple[str, ...]
    """Class names in NFC, by class number."""
    labels: Labels
    notes: tuple[str, ...] = ()
    """What was ignored, merged or renamed on the way; shown to the user once."""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"<{self.name}, {self.split}: {len(self):,} images of {len(self.classes):,} classes>"

    @abstractmethod
    def read(self, index: int) -> Encoded:
        """The image as it is stored; a DataError names the file when it cannot be read."""

    @abstractmethod
    def where(self, index: int) -> str:
        """Where a person finds this image: a path, or a file and a place in it."""

    @abstractmethod
    def manifest(self) -> Iterable[bytes]:
        """What identifies each image without reading it all: name and size, or a hash."""

    def ids(self, indices: np.ndarray) -> np.ndarray:
        """Numbers that stay with the images in every part of this source; augmentation is a function of them."""
        return np.asarray(indices, dtype=np.int64)

    def digest(self) -> str:
        """A hash of images, labels and class names: two runs saw the same data when it is equal."""
        record = hashlib.sha256()
        for name in self.classes:
            record.update(name.encode("utf-8", "surrogateescape") + b"\0")
        record.update(self.labels.values.tobytes())
        for more in (self.labels.offsets, self.labels.shares):
            record.update(b"" if more is None else more.tobytes())
        for item in self.manifest():
            record.update(item + b"\0")
        return record.hexdigest()


class Part(Source):
    """Some images of another source, in the order given; ids stay those of the whole."""

    def __init__(self, whole: Source, indices: np.ndarray, split: str, notes: tuple[str, ...] = ()) -> None:
        self.whole = whole
        self._indices = np.asarray(indices, dtype=np.int64)
        self.name, self.split, self.classes = whole.name, split, whole.classes
        self.labels = whole.labels.select(self._indices)
        self.notes = (*whole.notes, *notes)

    def read(self, index: int) -> Encoded:
        return self.whole.read(int(self._indices[index]))

    def where(self, index: int) -> str:
        return self.whole.where(int(self._indices[index]))

    def manifest(self) -> Iterable[bytes]:
        yield hashlib.sha256(b"\0".join(self.whole.manifest())).digest()
        yield self._indices.tobytes()

    def ids(self, indices: np.ndarray) -> np.ndarray:
        return self.whole.ids(self._indices[indices])


def read_patiently(source: Source, index: int) -> Encoded:
    """Read an image; one on a network drive may be gone for a moment."""
    try:
        return source.read(index)
    except DataError:
        time.sleep(PATIENCE)
        return source.read(index)


def whole_of(source: Source) -> Source:
    """The source that a part is a part of; any other is its own."""
    while isinstance(source, Part):
        source = source.whole
    return source


class Arrays(Source):
    """A small set whose pixels are in memory: uint8 (images, height, width) or (images, height, width, 3)."""

    def __init__(self, name: str, split: str, classes: tuple[str, ...], labels: Labels, pixels: np.ndarray) -> None:
        self.name, self.split, self.classes, self.labels, self.pixels = name, split, classes, labels, pixels

    def read(self, index: int) -> Encoded:
        return self.pixels[index]

    def where(self, index: int) -> str:
        return f"{self.name}, {self.split} image {index}"

    def manifest(self) -> Iterable[bytes]:
        yield str(self.pixels.shape).encode()
        yield hashlib.sha256(np.ascontiguousarray(self.pixels).data).digest()
