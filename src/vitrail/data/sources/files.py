"""Images that are files of their own: class folders and tables of paths read them the same way."""

import errno
import os
import stat
import time
import unicodedata
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Encoded, Source
from vitrail.data.sources.strings import Strings
from vitrail.errors import DataError
from vitrail.runtime.patience import PATIENCE, may_pass

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
        """Of each file how large it was and when it was written, once it was looked at, and the CRC-32 of what it held,
        once it was read; 12 bytes, for there are many."""

    def path(self, index: int) -> Path:
        """The file itself; its name may hold bytes that are no UTF-8."""
        return Path(self._root) / self.paths[index]

    def read(self, index: int) -> Encoded:
        path, where = self.path(index), self.where(index)
        size, time, checksum = (0, 0, 0) if self._seen is None else self._seen[index].tolist()
        # Of a file that could not be looked at then, nothing is known.
        return read_whole(path, where, (size, time, checksum) if size or time else None)

    def recall(self, places: np.ndarray, checksums: np.ndarray) -> None:
        """Take over what some files held when they were read: one that is only touched later is then known as such."""
        self._looks()[places, 2] = checksums

    def where(self, index: int) -> str:
        return shown(str(self.path(index)))

    def manifest(self) -> Iterable[bytes]:
        seen = np.zeros((len(self.paths), 2), dtype=np.uint32)
        for index, path in enumerate(self.paths):
            try:
                found = patient_stat(self.path(index))
                size, seen[index] = found.st_size, _writing(found)
            except OSError:
                size = -1
            yield f"{in_one_spelling(path)}\0{size}".encode("utf-8", "surrogateescape")
        # The first look counts: from then on a file that is written anew is another one.
        looks = self._looks()
        unseen = ~looks[:, :2].any(axis=1)
        looks[unseen, :2] = seen[unseen]

    def _looks(self) -> np.ndarray:
        if self._seen is None:
            self._seen = np.zeros((len(self.paths), 3), dtype=np.uint32)
        return self._seen


def _writing(found: os.stat_result) -> tuple[int, int]:
    """What is another number after a file was written again: its size, and the time of it."""
    return found.st_size % 2**32, (found.st_mtime_ns // 100) % 2**32


def patient_stat(path: Path) -> os.stat_result:
    """What the system says of a file; an error that may pass is waited for once."""
    try:
        return path.stat()
    except OSError as error:
        if not may_pass(error):
            raise
        time.sleep(PATIENCE)
        return path.stat()


def read_whole(path: Path, where: str, seen: tuple[int, int, int] | None = None) -> bytes:
    """The bytes of an image file; what is no plain file, or far too large for an image, is refused unread.

    `seen` is what `_writing` said before, and the CRC-32 of the content, or 0 where nobody had read it: a file that
    holds another image since then is refused as well.
    """
    try:
        found = path.stat()
        # A pipe or a device would be read for ever.
        if not stat.S_ISREG(found.st_mode):
            raise DataError("this is no file", wanted="an image", where=where)
        if found.st_size > _LARGEST:
            raise DataError(f"the file has {found.st_size:,} bytes", wanted=f"at most {_LARGEST:,}", where=where)
        content = path.read_bytes()
        if seen is not None and seen[:2] != (now := _writing(found)):
            _ensure_only_touched(path, where, seen, now, content)
        return content
    except OSError as error:
        raise DataError(_reason(path, error), where=where) from None
    except ValueError as error:
        raise DataError(f"this cannot be the name of a file ({error})", where=where) from None


def _ensure_only_touched(
    path: Path, where: str, seen: tuple[int, int, int], now: tuple[int, int], content: bytes
) -> None:
    """Refuse a file that was written since it was seen, unless it holds what it held: a copy or a `touch` of it."""
    size, _, checksum = seen
    if size != now[0]:
        came = f"the file was written anew while it was in use ({size:,} bytes then, {now[0]:,} now)"
    elif checksum:
        if zlib.crc32(content) == checksum:
            return
        came = f"the file was written anew while it was in use ({size:,} bytes as before, and others)"
    elif now != _writing(path.stat()):
        # Some network drives tell another time whenever they are asked, which says nothing.
        return
    else:
        came = "the file was written anew or touched while it was in use, and what it held before is not known"
    raise DataError(came, where=where, fix="Put back the file that was there, or begin anew with this one.")


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
