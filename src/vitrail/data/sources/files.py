"""Images that are files of their own: class folders and tables of paths read them the same way."""

import os
from collections.abc import Iterable
from pathlib import Path

from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Encoded, Source
from vitrail.data.sources.strings import Strings
from vitrail.errors import DataError

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


class Files(Source):
    """Paths below a folder, one per image."""

    def __init__(
        self,
        name: str,
        split: str,
        classes: tuple[str, ...],
        labels: Labels,
        root: Path,
        paths: Iterable[str],
        notes: tuple[str, ...] = (),
    ) -> None:
        self.name, self.split, self.classes, self.labels, self.notes = name, split, classes, labels, notes
        self._root = str(root)
        self.paths = Strings(paths)

    def path(self, index: int) -> Path:
        """The file itself; its name may hold bytes that are no UTF-8."""
        return Path(self._root) / self.paths[index]

    def read(self, index: int) -> Encoded:
        path = self.path(index)
        try:
            # A pipe or a device would be read for ever.
            if path.exists() and not path.is_file():
                raise DataError("this is no file", wanted="an image", where=self.where(index))
            return path.read_bytes()
        except OSError as error:
            raise DataError(_reason(path, error), where=self.where(index)) from None

    def where(self, index: int) -> str:
        return shown(str(self.path(index)))

    def manifest(self) -> Iterable[bytes]:
        for index, path in enumerate(self.paths):
            try:
                size = self.path(index).stat().st_size
            except OSError:
                size = -1
            yield f"{path}\0{size}".encode("utf-8", "surrogateescape")


def shown(name: str) -> str:
    """A file name for people: bytes that are no UTF-8 and control characters, such as a new line, become \\xNN."""
    return as_text(name).translate(_CONTROLS)


def as_text(name: str) -> str:
    """A file name as text that can be stored: bytes that are no UTF-8 become \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _reason(path: Path, error: OSError) -> str:
    if path.is_symlink():
        gone = isinstance(error, FileNotFoundError)
        return "the link leads nowhere" if gone else f"the link fails ({error.strerror})"
    return f"the file could not be read ({error.strerror})"
