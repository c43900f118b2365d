"""`log.jsonl`: one JSON object per line, and after a resume as if nothing had happened."""

import errno
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from vitrail.errors import DataError, DiskError, notice
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text
from vitrail.runtime.lock import Hold
from vitrail.training.events import Event, Record, to_record
from vitrail.training.folder import RunFolder

Watcher = Callable[[Event], None]
"""Is told every event that is written, and those that never are."""


class Log:
    """Appends events to a file; every line is handed to the system at once."""

    def __init__(self, path: Path, watcher: Watcher, *, is_written: bool = True, hold: Hold | None = None) -> None:
        """Of several processes one writes; the others only count. `hold` knows whether the folder is in its place."""
        self._path, self.watcher, self._is_written, self._hold = path, watcher, is_written, hold or Hold()
        self._file = None
        self.records = 0
        """How many are in the file."""

    def write(self, event: Event) -> None:
        """Append an event and tell it to who watches."""
        if self._is_written:
            self._append(to_record(event))
        self.records += 1
        self.watcher(event)

    def _append(self, record: Record) -> None:
        # An open file follows a folder that is moved, and checkpoints and models would not.
        self._hold.ensure_in_place()
        try:
            if self._file is None:
                if self._path.is_symlink():
                    raise OSError(errno.ELOOP, "it is a link, and the log is never written elsewhere")
                self._file = self._path.open("a", encoding="utf-8")
            self._file.write(json_text(record) + "\n")
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from error

    def sync(self) -> None:
        """Make sure that the lines survive a power cut, and that what is written next lies beside them."""
        self._hold.ensure_in_place()
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise self._failed(error) from error

    def close(self) -> None:
        """Let go of the file; what could not be written was told when it was."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _failed(self, error: OSError) -> DiskError:
        fix = "Free some space." if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return DiskError(f"could not be written ({error.strerror})", where=str(self._path), fix=fix)

    def rewind(self, records: int, events: Iterable[Record] = ()) -> int:
        """Keep so many records, as a checkpoint knows them: what came after is about to be done again.

        Events are in a checkpoint before they are in the log: one that a kill came between is written now. Lines that
        are no records are put aside with the whole file; returns how many of the records are lost.
        """
        self.close()
        if not self._is_written:
            return 0
        is_there = self._path.exists()
        found = [_parsed(line) for line in _lines(self._path)[:records]] if is_there else []
        kept = [record for record in found if record is not None]
        lost = records - len(kept)
        if lost:
            aside = self._put_aside() if is_there else None
            notice(
                f"{self._path}: {lost:,} of {records:,} records "
                + (f"cannot be read and are left out; the file as it was is {aside.name}" if aside else "are gone")
                + ". The checkpoints are whole, so the run goes on exactly; only its curves have a gap."
            )
        kept += [event for event in events if event not in kept]
        self.records = len(kept)
        if kept or is_there:
            with atomic_file(self._path) as temporary:
                lines = (json_text(record) + "\n" for record in kept)
                temporary.write_text("".join(lines), encoding="utf-8")
        return lost

    def _put_aside(self) -> Path:
        """A copy of the file as it is, under a name that is free."""
        ends = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
        free = (self._path.with_name(f"{self._path.name}.damaged{end}") for end in ends)
        path = next(path for path in free if not path.exists())
        with atomic_file(path) as temporary:
            temporary.write_bytes(self._path.read_bytes())
        return path


_NUMBERS = {
    "train": ("epoch", "loss", "accuracy", "learning_rate", "images_per_second", "data_wait", "seconds"),
    "evaluated": ("accuracy", "images", "loss", "is_best"),
    "few_shot": ("accuracy", "images", "shots"),
    "done": ("seconds",),
}


def _is_record(record: object, needs_numbers: bool) -> bool:
    """Whether it says what kind it is and at which step, and has its numbers; null stands for one JSON cannot hold."""
    if not isinstance(record, dict) or not isinstance(record.get("step"), int) or "event" not in record:
        return False
    numbers = _NUMBERS.get(str(record["event"]), ()) if needs_numbers else ()
    return all(isinstance(record.get(name, ""), int | float | None) for name in numbers)


def is_finished(folder: RunFolder) -> bool:
    """Whether the last record of a run is its end."""
    return folder.log.is_file() and [record["event"] for record in read_log(folder.log)][-1:] == ["done"]


def last_record(folder: RunFolder) -> Record | None:
    """The "done" of a finished run."""
    records = list(read_log(folder.log, needs_numbers=True)) if folder.log.is_file() else []
    return records[-1] if records and records[-1]["event"] == "done" else None


def read_log(path: Path, *, needs_numbers: bool = False, damaged: list[int] | None = None) -> Iterator[Record]:
    """The records of a run, oldest first; lines that are none are left out, and their numbers go to `damaged`.

    A last line that was cut off is no damage: it was being written. `needs_numbers` leaves out records without the
    numbers that those who draw and tabulate them rely on.
    """
    lines = _lines(path)
    for number, line in enumerate(lines, start=1):
        record = _parsed(line, needs_numbers=needs_numbers)
        if record is not None:
            yield record
        elif damaged is not None and not (number == len(lines) and _is_cut_off(line)):
            damaged.append(number)


def _lines(path: Path) -> list[str]:
    try:
        if path.is_symlink() or not path.is_file():
            raise OSError(errno.EINVAL, "not a plain file")
        # Not splitlines(), which also cuts at characters that a file name may hold.
        text = path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None
    return text.split("\n") if text else []


def _parsed(line: str, *, needs_numbers: bool = False) -> Record | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if _is_record(record, needs_numbers) else None


def _is_cut_off(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False
