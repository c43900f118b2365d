"""Images that are files of their own: class folders and tables of paths read them the same way."""

import errno
import os
import stat
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Encoded, Source
from vitrail.data.sources.strings import Strings
from vitrail.errors import DataError

_LARGEST = 2**30
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
        return read_whole(self.path(index), self.where(index))

    def where(self, index: int) -> str:
        return shown(str(self.path(index)))

    def manifest(self) -> Iterable[bytes]:
        for index, path in enumerate(self.paths):
            try:
                size = self.path(index).stat().st_size
            except OSError:
                size = -1
            yield f"{in_one_spelling(path)}\0{size}".encode("utf-8", "surrogateescape")


def read_whole(path: Path, where: str) -> bytes:
    """The bytes of an image file; what is no plain file, or far too large for an image, is refused unread."""
    try:
        found = path.stat()
        # A pipe or a device would be read for ever.
        if not stat.S_ISREG(found.st_mode):
            raise DataError("this is no file", wanted="an image", where=where)
        if found.st_size > _LARGEST:
            raise DataError(f"the file has {found.st_size:,} bytes", wanted=f"at most {_LARGEST:,}", where=where)
        return path.read_bytes()
    except OSError as error:
        raise DataError(_reason(path, error), where=where) from None
    except ValueError as error:
        raise DataError(f"this cannot be the name of a file ({error})", where=where) from None


def state_of(found: os.stat_result) -> tuple[int, int, int, int]:
    """What changes when a file does: size and time may be set back by a copy, the other two are not."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def user_path(text: str | Path) -> Path:
    """A path as a person writes it, with ~ for a home folder; a DataError when there can be no such path."""
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"the path cannot be looked at ({reason})", where=shown(str(text)[:200])) from None
    return path


def in_one_spelling(path: str) -> str:
    """The same text for a path on every system: NFC and forward slashes; files are put in order by it."""
    return unicodedata.normalize("NFC", path.replace(os.sep, "/"))


def shown(name: str) -> str:
    """A file name for people: bytes that are no UTF-8 and control characters, such as a new line, become \\xNN."""
    return as_text(name).translate(_CONTROLS)


def as_text(name: str) -> str:
    """A file name as text that can be stored: bytes that are no UTF-8 become \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _reason(path: Path, error: OSError) -> str:
    if error.errno != errno.ENAMETOOLONG and path.is_symlink():
        gone = isinstance(error, FileNotFoundError)
        return "the link leads nowhere" if gone else f"the link fails ({error.strerror})"
    return f"the file could not be read ({error.strerror})"
