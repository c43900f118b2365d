"""WebDataset shards: images and labels in plain tar files, read by position without unpacking."""

import functools
import glob
import itertools
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from vitrail.data.sources.files import in_one_spelling, shown, state_of, user_path
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.numbering import by_name, number_classes
from vitrail.data.sources.shard_index import ShardIndex, index_shards
from vitrail.data.sources.source import Encoded, Source
from vitrail.data.sources.splits import SPLITS, MissingSplit, canonical_split
from vitrail.data.sources.strings import Strings
from vitrail.errors import DataError, UsageError, notice

CLASSES_FILE = "classes.txt"
_SPLIT = "{split}"
_MOST_SHARDS = 1_000_000
# Far below the usual limit of 1,024 per process.
_OPEN_FILES = 64


class Shards(Source):
    """Images in tar files, each a stretch of bytes."""

    def __init__(
        self,
        name: str,
        split: str,
        classes: tuple[str, ...],
        labels: Labels,
        indices: list[ShardIndex],
        notes: tuple[str, ...] = (),
    ) -> None:
        self.name, self.split, self.classes, self.labels, self.notes = name, split, classes, labels, notes
        self._shards = [(index.path, index.state) for index in indices]
        self._shard = np.repeat(np.arange(len(indices), dtype=np.int32), [len(index.names) for index in indices])
        self._offsets = np.concatenate([index.offsets for index in indices])
        self._sizes = np.concatenate([index.sizes for index in indices])
        self._names = Strings(name for index in indices for name in index.names)
        self._open = functools.lru_cache(_OPEN_FILES)(_OpenShard)

    def read(self, index: int) -> Encoded:
        return self._open(*self._shards[self._shard[index]]).read(
            int(self._offsets[index]), int(self._sizes[index]), self.where(index)
        )

    def where(self, index: int) -> str:
        return f"{shown(self._shards[self._shard[index]][0])}: {shown(self._names[index])}"

    def manifest(self) -> Iterable[bytes]:
        shards = [in_one_spelling(Path(path).name) for path, _ in self._shards]
        for shard, name, size in zip(self._shard, self._names, self._sizes, strict=True):
            yield f"{shards[shard]}\0{name}\0{size}".encode("utf-8", "surrogateescape")

    def holders(self) -> Iterable[Path]:
        """The files that hold the images."""
        return (Path(path) for path, _ in self._shards)

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name != "_open"}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        self._open = functools.lru_cache(_OPEN_FILES)(_OpenShard)


class _OpenShard:
    """An open file, closed when the last reader lets go of it; reads share no position, so threads and forks may."""

    _descriptor = -1

    def __init__(self, path: str, state: tuple[int, int, int, int]) -> None:
        # A new link to the file, or new rights, must not stop a training.
        self._content = state[:2]
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise DataError(f"the shard could not be read ({error.strerror})", where=shown(path)) from None

    def read(self, offset: int, size: int, where: str) -> bytes:
        """A stretch of the file, as long as it is the file that was indexed."""
        try:
            found = os.fstat(self._descriptor)
            content = os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise DataError(f"the shard could not be read ({error.strerror})", where=where) from None
        if state_of(found)[:2] != self._content or len(content) != size:
            raise DataError("the shard has changed since it was opened", where=where, fix="Start again.")
        return content

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def open_shards(pattern: str, split: str = "train") -> Shards:
    """Open local tar shards: one tar, `path/*.tar` or `path/{000..099}.tar`, with {split} where a split has its own.

    Class names come from classes.txt beside the shards, else from the labels of the training shards, where numbers are
    class numbers already.
    """
    split = canonical_split(split)
    paths = _shards_of(pattern, split)
    indices = index_shards(paths)
    kinds = {index.counts is not None for index in indices if index.names}
    if not kinds:
        raise DataError("the shards hold no images", wanted="members such as 0001.jpg and 0001.cls", where=pattern)
    if len(kinds) > 1:
        raise DataError("some shards have 'label' and some have 'labels'", wanted="one kind", where=pattern)
    words = list(dict.fromkeys(word for index in indices for word in index.words))
    names = _class_names(pattern, paths[0])
    train = _paths_of(pattern, "train") if split != "train" else []
    if train:
        # Each split may have a classes.txt of its own, in another order.
        labels, names = by_name(words, names, pattern), _class_names(pattern, train[0])
        home = index_shards(train) if names is None else []
    else:
        labels, home = words, indices
    known = dict.fromkeys(word for index in home for word in index.words)
    classes, mapping = number_classes(labels, known, names, pattern)
    notes = _notes(indices)
    for note in notes:
        notice(note)
    return Shards(pattern, split, classes, _labels(indices, words, mapping, len(classes)), indices, notes)


def _labels(indices: list[ShardIndex], words: list, mapping: np.ndarray, num_classes: int) -> Labels:
    numbers = dict(zip(words, mapping.tolist(), strict=True))
    tables = [np.array([numbers[word] for word in index.words], dtype=np.int64) for index in indices]
    values = np.concatenate([table[index.values] for table, index in zip(tables, indices, strict=True)])
    counts = [index.counts for index in indices if index.counts is not None]
    if not counts:
        return Labels.of(values, num_classes)
    return Labels(values, num_classes, np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64))


def _notes(indices: list[ShardIndex]) -> tuple[str, ...]:
    ignored = sum((Counter(index.ignored) for index in indices), Counter())
    if not ignored:
        return ()
    kinds = ", ".join(f"{count:,} with {ending}" for ending, count in sorted(ignored.items())[:5])
    return (f"members of the shards that are neither image nor label were ignored: {kinds}.",)


def _shards_of(pattern: str, split: str) -> list[Path]:
    if _SPLIT not in pattern and split != "train":
        raise MissingSplit(
            f"there is no {split!r} part: without {_SPLIT} in the pattern all shards are 'train'",
            where=pattern,
            fix=f"Write {_SPLIT} where the names of the shards say train or {split}, or take a part: 'train[90%:]'.",
        )
    paths = _paths_of(pattern, split)
    if not paths:
        came = f"there are no shards for {split!r}" if _SPLIT in pattern else "there are no such shards"
        folder = user_path(pattern).is_dir()
        fix = f"Write wds:{pattern.rstrip('/')}/*.tar for a folder of shards." if folder else ""
        raise MissingSplit(came, wanted="tar files, as in path/{000..099}.tar or path/*.tar", where=pattern, fix=fix)
    return paths


def _paths_of(pattern: str, split: str) -> list[Path]:
    """The shards of a split, under whichever of its usual names they go; none when there are none."""
    for word in SPLITS.get(split, (split,)) if _SPLIT in pattern else (split,):
        found = _expand(pattern.replace(_SPLIT, word))
        if found:
            return found
    return []


def _expand(pattern: str) -> list[Path]:
    """All files that a pattern with {000..099}, {a,b} and * stands for; a gap in a range is an error."""
    try:
        whole = Path(pattern).expanduser()
    except RuntimeError as error:
        raise DataError(f"the path cannot be looked at ({error})", where=pattern) from None
    if _is_file(whole):
        return [whole]
    found: list[Path] = []
    missing: list[Path] = []
    for text in _braces(str(whole)):
        if glob.has_magic(text) and not _is_file(Path(text)):
            # Unlike pathlib's, this glob leaves out hidden files.
            named = sorted(glob.glob(text, recursive=True), key=in_one_spelling)  # noqa: PTH207
            found += [Path(path) for path in named if _is_file(Path(path))]
        else:
            (found if _is_file(Path(text)) else missing).append(Path(text))
    if found and missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(f"the shard {shown(missing[0].name)}{more} is missing", where=pattern)
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # A pattern may be longer than the name of a file can be.
        return False


def _braces(pattern: str) -> list[str]:
    pieces = re.split(r"(\{\d+\.\.\d+\}|\{[^{}]*,[^{}]*\})", pattern)
    choices = [_choices(piece) if number % 2 else [piece] for number, piece in enumerate(pieces)]
    if math.prod(map(len, choices)) > _MOST_SHARDS:
        raise UsageError(f"the pattern stands for more than {_MOST_SHARDS:,} shards", where=pattern)
    return ["".join(parts) for parts in itertools.product(*choices)]


def _choices(braces: str) -> list[str]:
    if "," in braces:
        return braces[1:-1].split(",")
    first, _, last = braces[1:-1].partition("..")
    # As in a shell, a leading zero asks for numbers of one width.
    padded = any(end.startswith("0") and len(end) > 1 for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    stop = min(int(last) + 1, int(first) + _MOST_SHARDS + 1)
    return [str(number).zfill(width) for number in range(int(first), stop)]


def _class_names(pattern: str, shard: Path) -> tuple[str, ...] | None:
    """The lines of classes.txt beside the shards, or beside the folders of the splits."""
    folders = [shard.parent, *([shard.parent.parent] if _SPLIT in str(Path(pattern).parent) else [])]
    path = next((folder / CLASSES_FILE for folder in folders if (folder / CLASSES_FILE).is_file()), None)
    if path is None:
        return None
    where = shown(str(path))
    try:
        lines = path.read_text("utf-8-sig").rstrip().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the class names could not be read ({error})", where=where) from None
    names: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        name = unicodedata.normalize("NFC", line.strip())
        if not name or name in names:
            came = f"the name {name!r} stands in line {names[name]} already" if name else "the line is empty"
            raise DataError(came, wanted="one class name a line", where=f"{where}, line {number}")
        names[name] = number
    return tuple(names)
