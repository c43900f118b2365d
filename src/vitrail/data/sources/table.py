"""A table of paths and labels: one row per image, in a CSV or TSV file."""

import csv
import io
import os
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vitrail.data.sources.files import Files, shown
from vitrail.data.sources.folder import in_order
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.splits import SPLITS, canonical_split, missing_split
from vitrail.errors import DataError, notice

_LAYOUT = "a first line that names the columns: path, and label or labels, and perhaps split"
_DELIMITERS = (",", "\t", ";")
_BETWEEN_LABELS = "|"


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    path: str
    labels: tuple[str, ...]
    split: str


def open_table(path: Path, split: str = "train") -> Files:
    """Open one split of a table whose paths are relative to its folder.

    Class numbers follow the sorted class names of the training rows; a class that is only in another split is an error.
    Without a column `split` all rows are training.
    """
    name, split = shown(str(path)), canonical_split(split)
    rows, is_multi = _rows(path)
    there = dict.fromkeys(row.split for row in rows)
    if split not in there:
        raise missing_split(split, there, name)
    known = [row for row in rows if row.split == "train"] or rows
    classes = in_order({label for row in known for label in row.labels})
    numbers = {label: number for number, label in enumerate(classes)}
    for row in rows:
        for label in row.labels:
            if label not in numbers:
                raise _wrong(path, row.line, f"the class {label!r} is in {row.split!r} but not in 'train'")
    chosen = [row for row in rows if row.split == split]
    notes = _repeats(path, rows, split)
    for note in notes:
        notice(note)
    numbered = [[numbers[label] for label in row.labels] for row in chosen]
    labels = (
        Labels.of_many(numbered, len(classes)) if is_multi else Labels.of([one for (one,) in numbered], len(classes))
    )
    return Files(name, split, classes, labels, path.parent, (row.path for row in chosen), notes)


def _rows(path: Path) -> tuple[list[_Row], bool]:
    """All rows, and whether an image may have several labels."""
    lines = _lines(path, _text(path))
    start, header = next(lines, (1, []))
    columns = [name.strip().casefold() for name in header]
    found = f"the columns are {', '.join(map(repr, columns))}"
    if not header:
        raise _wrong(path, start, "the file is empty", wanted=_LAYOUT)
    if "path" not in columns or not {"label", "labels"} & set(columns):
        missing = "label" if "path" in columns else "path"
        raise _wrong(path, start, f"there is no column {missing!r}; {found}", wanted=_LAYOUT)
    if {"label", "labels"} <= set(columns) or len(set(columns)) < len(columns):
        raise _wrong(path, start, found, wanted="each once, and either label or labels")
    is_multi = "labels" in columns
    rows = [_row(path, line, dict(zip(columns, cells, strict=True)), is_multi) for line, cells in lines]
    if not rows:
        raise _wrong(path, start, "there are no rows below the names of the columns", wanted="one row per image")
    return rows, is_multi


def _row(path: Path, line: int, cells: dict[str, str], is_multi: bool) -> _Row:
    if not cells["path"]:
        raise _wrong(path, line, "the path is empty")
    text = unicodedata.normalize("NFC", cells["labels" if is_multi else "label"]).strip()
    words = [word.strip() for word in text.split(_BETWEEN_LABELS)] if is_multi else [text]
    # With a column `labels`, an empty cell is an image that shows none of the classes.
    words = [] if is_multi and not text else words
    if not all(words):
        raise _wrong(path, line, "a label is empty", wanted="a class name")
    split = canonical_split(cells.get("split", "train"))
    if split not in SPLITS:
        raise _wrong(path, line, f"the split is {split!r}", wanted=f"one of {', '.join(SPLITS)}")
    return _Row(line, cells["path"], tuple(dict.fromkeys(words)), split)


def _lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, all of one length, each with the line it begins on."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=first.count), strict=True)
    width, line = 0, 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                width = width or len(cells)
                if len(cells) != width:
                    fix = "Put quotes around a value that holds the separator." if len(cells) > width else ""
                    raise _wrong(path, line, f"the row has {len(cells)} values", wanted=f"{width}", fix=fix)
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise _wrong(path, line, f"the row cannot be read ({error})") from None


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"the file could not be read ({error.strerror})", where=shown(str(path))) from None
    fix = "Save it as 'CSV UTF-8'."
    if b"\0" in raw:
        raise _wrong(path, _line_of(raw, raw.index(b"\0")), "there are NUL bytes", wanted="text in UTF-8", fix=fix)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"the byte 0x{raw[error.start]:02x} is not UTF-8"
        raise _wrong(path, _line_of(raw, error.start), byte, wanted="text in UTF-8", fix=fix) from None


def _repeats(path: Path, rows: list[_Row], split: str) -> tuple[str, ...]:
    """Refuse an image with two labels in the split; tell of rows that repeat an image there or in another split."""
    seen: dict[str, list[_Row]] = {}
    told = Counter()
    for row in rows:
        earlier = seen.setdefault(os.path.normpath(path.parent / row.path), [])
        for first in earlier:
            if split not in (first.split, row.split):
                continue
            differ = set(first.labels) != set(row.labels)
            if differ and first.split == row.split:
                before, now = (_BETWEEN_LABELS.join(one.labels) for one in (first, row))
                raise _wrong(path, row.line, f"{row.path!r} is {now!r} here and {before!r} in line {first.line}")
            where = "an image; each counts again" if first.split == row.split else "an image of another split"
            told[where + (" with another label" if differ else "")] += 1
        # One row for each split is enough to compare with.
        if row.split not in {first.split for first in earlier}:
            earlier.append(row)
    return tuple(f"{shown(str(path))}: {count:,} rows repeat {what}." for what, count in told.items())


def _line_of(raw: bytes, position: int) -> int:
    return raw.count(b"\n", 0, position) + 1


def _wrong(path: Path, line: int, came: str, *, wanted: str = "", fix: str = "") -> DataError:
    return DataError(came, wanted=wanted, where=f"{shown(str(path))}, line {line}", fix=fix)
