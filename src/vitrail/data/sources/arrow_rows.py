"""Images in the rows of memory-mapped Arrow files, as Hugging Face's library keeps them."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.data.sources.files import patient_stat, read_whole, shown
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Encoded, Source
from vitrail.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset

_BATCH = 1024


class ArrowRows(Source):
    """One image a row: its bytes, or a path to them, or a record of both; `datasets` finds it and decodes nothing."""

    def __init__(
        self, name: str, split: str, classes: tuple[str, ...], labels: Labels, images: "Dataset", folders: list[Path]
    ) -> None:
        self.name, self.split, self.classes, self.labels = name, split, classes, labels
        self._images = images.with_format("arrow")
        self._folders = [folder.resolve() for folder in folders]

    def read(self, index: int) -> Encoded:
        row: Any = self._images[int(index)]
        try:
            stored = row.column(0)[0].as_py()
        except ValueError as error:
            raise DataError(f"the row cannot be read ({error})", where=self.where(index)) from None
        content, path = (stored.get("bytes"), stored.get("path")) if isinstance(stored, dict) else (stored, None)
        if isinstance(content, bytes):
            return content
        path = path if content is None else content
        if not isinstance(path, str):
            raise DataError("the row has no image", where=self.where(index))
        file = self._file(path)
        if file is None:
            came, wanted = f"the row points to {path[:200]!r}", "a file in the folder of the data"
            raise DataError(came, wanted=wanted, where=self.where(index))
        return read_whole(file, f"{self.where(index)} points to {shown(path)[:200]!r}")

    def where(self, index: int) -> str:
        return f"{self.name}, {self.split}, row {index}"

    def manifest(self) -> Iterable[bytes]:
        for path, size in self._paths_and_sizes():
            size = self._size(path) if size is None else size
            yield f"{Path(path or '').name}\0{size}".encode("utf-8", "surrogateescape")

    def holders(self) -> Iterable[Path]:
        """The files that hold the images: those with the rows, and those that rows point to."""
        yield from (Path(file["filename"]) for file in self._images.cache_files)
        for path, size in self._paths_and_sizes():
            file = self._file(path) if size is None and path is not None else None
            if file is not None:
                yield file

    def _file(self, path: str) -> Path | None:
        """Where a row points to, if that is inside the folders of the data: rows may come from anyone."""
        try:
            file = (self._folders[0] / path).resolve()
        except (OSError, ValueError, RuntimeError):
            return None
        return file if any(file.is_relative_to(folder) for folder in self._folders) else None

    def _size(self, path: str | None) -> int:
        file = None if path is None else self._file(path)
        try:
            return -1 if file is None else patient_stat(file).st_size
        except OSError:
            return -1

    def _paths_and_sizes(self) -> Iterable[tuple[str | None, int | None]]:
        batch: Any
        for batch in self._images.iter(_BATCH):
            for chunk in batch.column(0).chunks:
                yield from _paths_and_sizes(chunk)


def _paths_and_sizes(chunk: Any) -> Iterable[tuple[str | None, int | None]]:
    """What an Arrow array knows of its images without touching their bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    paths, content = [None] * len(chunk), chunk
    if pa.types.is_struct(chunk.type):
        content = chunk.field("bytes")
        paths = _texts(chunk.field("path")) if chunk.type.get_field_index("path") >= 0 else paths
    elif pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type):
        return ((path, None) for path in _texts(chunk))
    return zip(paths, pc.call_function("binary_length", [content]).to_pylist(), strict=True)


def _texts(chunk: Any) -> list[str | None]:
    """Text that may be no UTF-8, since nobody checked it when it was written."""
    import pyarrow as pa

    if not (pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type)):
        return [None] * len(chunk)
    found = chunk.cast(pa.large_binary()).to_pylist()
    return [None if text is None else text.decode("utf-8", "surrogateescape") for text in found]
