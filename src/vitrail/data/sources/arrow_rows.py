"""Images in the rows of memory-mapped Arrow files, as Hugging Face's library keeps them."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Encoded, Source
from vitrail.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset

_BATCH = 1024


class ArrowRows(Source):
    """One image a row: its bytes, or a path to them, or a record of both; `datasets` finds it and decodes nothing."""

    def __init__(
        self, name: str, split: str, classes: tuple[str, ...], labels: Labels, images: "Dataset", folder: Path
    ) -> None:
        self.name, self.split, self.classes, self.labels = name, split, classes, labels
        self._images = images.with_format("arrow")
        self._folder = str(folder)

    def read(self, index: int) -> Encoded:
        row: Any = self._images[int(index)]
        stored = row.column(0)[0].as_py()
        content, path = (stored.get("bytes"), stored.get("path")) if isinstance(stored, dict) else (stored, None)
        if isinstance(content, bytes):
            return content
        path = path if content is None else content
        if path is None:
            raise DataError("the row has no image", where=self.where(index))
        try:
            return self._file(path).read_bytes()
        except OSError as error:
            came = f"the row points to {path!r}, which could not be read ({error.strerror})"
            raise DataError(came, where=self.where(index)) from None

    def where(self, index: int) -> str:
        return f"{self.name}, {self.split}, row {index}"

    def manifest(self) -> Iterable[bytes]:
        batch: Any
        for batch in self._images.iter(_BATCH):
            for chunk in batch.column(0).chunks:
                for path, size in _paths_and_sizes(chunk):
                    size = self._size(path) if size is None else size
                    yield f"{Path(path or '').name}\0{size}".encode()

    def _file(self, path: str) -> Path:
        return Path(self._folder) / path

    def _size(self, path: str | None) -> int:
        try:
            return -1 if path is None else self._file(path).stat().st_size
        except OSError:
            return -1


def _paths_and_sizes(chunk: Any) -> Iterable[tuple[str | None, int | None]]:
    """What an Arrow array knows of its images without touching their bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    paths, content = [None] * len(chunk), chunk
    if pa.types.is_struct(chunk.type):
        content = chunk.field("bytes")
        paths = chunk.field("path").to_pylist() if chunk.type.get_field_index("path") >= 0 else paths
    elif pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type):
        return ((path, None) for path in chunk.to_pylist())
    return zip(paths, pc.call_function("binary_length", [content]).to_pylist(), strict=True)
