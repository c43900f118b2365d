"""Images that are files of their own: class folders and tables of paths read them the same way."""

import errno
import os
import stat
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import numpy as np

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
        self._seen: np.ndarray | None = None
        """Of each file how large it was and when it was written, once it was looked at; 8 bytes, for there are many."""

    def path(self, index: int) -> Path:
        """The file itself; its name may hold bytes that are no UTF-8."""
        return Path(self._root) / self.paths[index]

    def read(self, index: int) -> Encoded:
        path, where = self.path(index), self.where(index)
        seen = (0, 0) if self._seen is None else tuple(self._seen[index].tolist())
        # Of a file that could not be looked at then, nothing is known.
        return read_whole(path, where, seen if any(seen) else None)

    def where(self, index: int) -> str:
        return shown(str(self.path(index)))

    def manifest(self) -> Iterable[bytes]:
        seen = np.zeros((len(self.paths), 2), dtype=np.uint32)
        for index, path in enumerate(self.paths):
            try:
                found = self.path(index).stat()
                size, seen[index] = found.st_size, _writing(found)
            except OSError:
                size = -1
            yield f"{in_one_spelling(path)}\0{size}".encode("utf-8", "surrogateescape")
        # The first look counts: from then on a file that is written anew is another one.
        self._seen = seen if self._seen is None else self._seen


def _writing(found: os.stat_result) -> tuple[int, int]:
    """What is another number after a file was written again: its size, and the time of it."""
    return found.st_size % 2**32, (found.st_mtime_ns // 100) % 2**32


def read_whole(path: Path, where: str, seen: tuple[int, ...] | None = None) -> bytes:
    """The bytes of an image file; what is no plain file, or far too large for an image, is refused unread.

    `seen` is what `_writing` said before: a file that was written since then is refused as well.
    """
    try:
        found = path.stat()
        now = _writing(found)
        # Some network drives tell another time whenever they are asked, which says nothing.
        if seen is not None and seen != now and (seen[0] != now[0] or now == _writing(path.stat())):
            many = f"{now[0]:,} bytes, as before" if now[0] == seen[0] else f"{seen[0]:,} bytes then, {now[0]:,} now"
            raise DataError(f"the file was written anew while it was in use ({many})", where=where)
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
