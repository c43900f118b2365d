"""Images that lie one behind the other in a few large files: each is a stretch of bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitrail.data.sources.files import patient_stat, shown
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Encoded, Source
from vitrail.data.sources.strings import Ids
from vitrail.errors import DataError


@dataclass(frozen=True)
class Stretches:
    """Where each image is: the number of its file, its first byte there and how many there are."""

    files: tuple[str, ...]
    file: np.ndarray
    start: np.ndarray
    size: np.ndarray
    shape: tuple[int, int] | None = None
    """Height and width of grey pixels; none where the bytes are an image file such as a JPEG."""
    bits: bool = False
    """Whether a pixel is one bit, black or white, with the first in the highest place."""


class Slices(Source):
    """Stretches of files, read one at a time."""

    def __init__(
        self, name: str, split: str, classes: tuple[str, ...], labels: Labels, stretches: Stretches, ids: Ids
    ) -> None:
        self.name, self.split, self.classes, self.labels = name, split, classes, labels
        self.stretches, self._ids = stretches, ids

    def read(self, index: int) -> Encoded:
        stretches = self.stretches
        size = int(stretches.size[index])
        try:
            with Path(self._file(index)).open("rb") as file:
                file.seek(int(stretches.start[index]))
                content = file.read(size)
        except OSError as error:
            raise DataError(f"the file could not be read ({error.strerror})", where=self.where(index)) from None
        if len(content) < size:
            raise DataError("the file is cut off", where=self.where(index))
        if stretches.shape is None:
            return content
        pixels = np.frombuffer(content, np.uint8)
        return (np.unpackbits(pixels) * np.uint8(255) if stretches.bits else pixels).reshape(stretches.shape)

    def where(self, index: int) -> str:
        return f"{shown(self._file(index))}: {self._ids[index]}"

    def manifest(self) -> Iterable[bytes]:
        for path in map(Path, self.stretches.files):
            yield f"{path.name}\0{patient_stat(path).st_size}".encode()
        yield self.stretches.file.tobytes()
        yield self.stretches.start.tobytes()

    def holders(self) -> Iterable[Path]:
        """The files that hold the images."""
        return [Path(file) for file in self.stretches.files]

    def _file(self, index: int) -> str:
        return self.stretches.files[int(self.stretches.file[index])]
