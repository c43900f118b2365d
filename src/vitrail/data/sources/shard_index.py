"""Where the images of a tar shard begin, and their labels: found once, then kept in the cache."""

import json
import os
import re
import tarfile
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vitrail.data.sources.files import shown, state_of
from vitrail.data.sources.numbering import Label
from vitrail.errors import DataError, DiskError, marked, notice
from vitrail.runtime.archives import open_npz
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.cache import cache_folder, cache_key

_VERSION = 2
_Identity = tuple[str, tuple[int, int, int, int]]
_IMAGE_ENDINGS = {
    *("jpg", "jpeg", "jpe", "jfif", "mpo", "png", "webp", "gif", "bmp"),
    *("tif", "tiff", "ppm", "pgm", "pbm", "pnm", "heic", "avif"),
}
_LONGEST_LABEL = 2**20
# About half a minute of indexing.
_WORTH_TELLING = 50e9
_BLOCK = 512
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK": "zip"}
# What tarfile raises for headers that make no sense; anything else is a bug and should be seen as one.
_DAMAGE = (tarfile.TarError, OSError, ValueError, OverflowError, EOFError, IndexError, RecursionError)


@dataclass(frozen=True)
class ShardIndex:
    """The images of one shard in the order of the tar; image i has `counts[i]` of the `values`, which point to `words`.

    `counts` is None when every image has one label.
    """

    path: str
    state: tuple[int, int, int, int]
    names: list[str]
    offsets: np.ndarray
    sizes: np.ndarray
    words: list[Label]
    values: np.ndarray
    counts: np.ndarray | None
    ignored: dict[str, int]


@dataclass
class _Members:
    """What a tar holds, by key: the name of a member up to the first dot, as WebDataset cuts it."""

    images: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    numbers: dict[str, list[Label]] = field(default_factory=dict)
    records: dict[str, tuple[list[Label], bool] | None] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)


def index_shards(paths: list[Path]) -> list[ShardIndex]:
    """The index of each shard: from the cache while the file is the same, else from the tar."""
    identities = [_identity(path) for path in paths]
    size = sum(identity[1][0] for identity in identities if not _kept(identity).exists())
    if size >= _WORTH_TELLING:
        notice(f"{size / 1e9:,.0f} GB of shards are indexed now; the next time they open at once.")
    return [_index(identity) for identity in identities]


def _identity(path: Path) -> _Identity:
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"the shard could not be read ({error.strerror})", where=shown(str(path))) from None
    return str(path), state_of(found)


def _kept(identity: _Identity) -> Path:
    path, state = identity
    return cache_folder("shards") / f"{cache_key(_VERSION, str(Path(path).resolve()), *state)}.npz"


def _index(identity: _Identity) -> ShardIndex:
    index = _read(_kept(identity), identity)
    if index is None:
        index = _scan(Path(identity[0]), identity)
        try:
            _write(_kept(identity), index)
        except DiskError as error:
            notice(f"{marked(error)} The shards are indexed again next time.")
    return index


def _read(kept: Path, identity: _Identity) -> ShardIndex | None:
    try:
        with open_npz(kept) as file:
            arrays = {name: file[name] for name in file.files}
        text = json.loads(arrays["text"].tobytes())
        several = bool(arrays["several"])
        names, words, ignored = text["names"], text["words"], text["ignored"]
        offsets, sizes, values, counts = (arrays[name] for name in ("offsets", "sizes", "values", "counts"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return ShardIndex(*identity, names, offsets, sizes, words, values, counts if several else None, ignored)


def _write(kept: Path, index: ShardIndex) -> None:
    # JSON with its escapes keeps names that are no UTF-8.
    text = json.dumps({"names": index.names, "words": index.words, "ignored": index.ignored}).encode()
    with atomic_file(kept) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            text=np.frombuffer(text, dtype=np.uint8),
            offsets=index.offsets,
            sizes=index.sizes,
            values=index.values,
            counts=np.zeros(0, dtype=np.int64) if index.counts is None else index.counts,
            several=np.array(index.counts is not None),
        )


def _scan(path: Path, identity: _Identity) -> ShardIndex:
    where = shown(str(path))
    members = _Members()
    try:
        with path.open("rb") as file:
            _refuse_compressed(file, where)
            with tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape") as archive:
                while (member := archive.next()) is not None:
                    # Only the way forward is needed, and a large shard has millions of members.
                    archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]
                    _take(member, file, members, where)
                end = archive.offset
            _check_end(file, end, where)
    except _DAMAGE as error:
        raise DataError(f"the tar is damaged or cut off ({error})", where=where) from None
    labels = [_labels_of(key, name, members, where) for key, (name, _, _) in members.images.items()]
    _refuse_orphans(members, where)
    is_multi = {several for _, several in labels}
    if len(is_multi) > 1:
        raise DataError("some images have 'label' and some have 'labels'", wanted="one kind", where=where)
    words = list(dict.fromkeys(word for found, _ in labels for word in found))
    numbers = {word: number for number, word in enumerate(words)}
    return ShardIndex(
        *identity,
        [name for name, _, _ in members.images.values()],
        np.array([offset for _, offset, _ in members.images.values()], dtype=np.int64),
        np.array([size for _, _, size in members.images.values()], dtype=np.int64),
        words,
        np.array([numbers[word] for found, _ in labels for word in found], dtype=np.int64),
        np.array([len(found) for found, _ in labels], dtype=np.int64) if is_multi == {True} else None,
        dict(members.ignored),
    )


def _take(member: tarfile.TarInfo, file: BinaryIO, members: _Members, where: str) -> None:
    """Sort one member in: image, label, or something else."""
    folder, slash, name = member.name.rpartition("/")
    stem, _, ending = name.partition(".")
    ending = ending.lower()
    # Archives made on a Mac hold a file ._0.jpg beside 0.jpg.
    if member.isdir() or not stem:
        return
    if ending not in _IMAGE_ENDINGS and ending not in ("cls", "json"):
        members.ignored[f".{ending}" if ending else "no ending"] += 1
        return
    key, place = f"{folder}{slash}{stem}", f"{where}: {shown(member.name)}"
    if not member.isreg() or member.sparse is not None:
        raise DataError("the member is a link or sparse", wanted="a plain file", where=place)
    if ending in _IMAGE_ENDINGS:
        if key in members.images:
            other = shown(members.images[key][0])
            raise DataError(f"the key is used twice, the first time by {other}", wanted="one image a key", where=place)
        members.images[key] = (member.name, member.offset_data, member.size)
        return
    labels = members.numbers if ending == "cls" else members.records
    if key in labels:
        raise DataError("the key has two labels of this kind", wanted="one", where=place)
    if member.size > _LONGEST_LABEL:
        raise DataError(f"the label is {member.size:,} bytes long", wanted="a number, or a JSON object", where=place)
    raw = os.pread(file.fileno(), member.size, member.offset_data)
    if len(raw) != member.size:
        raise EOFError(f"{place} ends too early")
    if ending == "cls":
        members.numbers[key] = [_number(raw, place)]
    else:
        members.records[key] = _record(raw, place)


def _number(raw: bytes, place: str) -> int:
    text = raw.strip()
    if not re.fullmatch(rb"\d{1,18}", text):
        came = f"the label is {shown(os.fsdecode(text[:40]))!r}"
        raise DataError(came, wanted="a class number from 0 up", where=place, fix="Names go into a .json.")
    return int(text)


def _record(raw: bytes, place: str) -> tuple[list[Label], bool] | None:
    """The labels of a JSON object and whether there may be several; None when it holds other things only."""
    try:
        record: Any = json.loads(raw)
    except (ValueError, RecursionError):
        raise DataError("the label is no JSON", where=place) from None
    named = [name for name in ("label", "labels") if isinstance(record, dict) and name in record]
    if not named:
        return None
    is_multi = named == ["labels"]
    found = record[named[0]] if is_multi else [record[named[0]]]
    right = isinstance(found, list) and all(
        (type(label) is int and label >= 0) or (isinstance(label, str) and label and _is_text(label)) for label in found
    )
    if not right or len(named) > 1:
        wanted = '"label" with a class name or number, or "labels" with a list of them'
        raise DataError(
            f"the record has {', '.join(f'{name!r}: {record[name]!r}' for name in named)}"[:120],
            wanted=wanted,
            where=place,
        )
    return list(dict.fromkeys(found)), is_multi


def _is_text(label: str) -> bool:
    """JSON can write half of a character, which no file and no screen takes."""
    return not any("\ud800" <= letter <= "\udfff" for letter in label)


def _labels_of(key: str, name: str, members: _Members, where: str) -> tuple[list[Label], bool]:
    """A .cls goes before a .json, which often holds everything else that is known of an image."""
    if key in members.numbers:
        return members.numbers[key], False
    record = members.records.get(key)
    if record is None:
        raise DataError(
            "the image has no label",
            wanted="a .cls with a class number or a .json with a label beside it",
            where=f"{where}: {shown(name)}",
        )
    return record


def _refuse_orphans(members: _Members, where: str) -> None:
    for key in (*members.numbers, *members.records):
        if key not in members.images:
            raise DataError(f"the key {shown(key)!r} has a label and no image", wanted="both", where=where)


def _refuse_compressed(file: BinaryIO, where: str) -> None:
    beginning = file.read(8)
    file.seek(0)
    kind = next((kind for begins, kind in _COMPRESSED.items() if beginning.startswith(begins)), None)
    if kind:
        raise DataError(
            f"the shard is compressed ({kind}), so its images cannot be reached one by one",
            wanted="a plain tar",
            where=where,
            fix="Unpack it once; images inside are compressed already.",
        )


def _check_end(file: BinaryIO, end: int, where: str) -> None:
    """tarfile stops in silence at a header it cannot read; a whole tar ends with zeros and nothing after them."""
    block = os.pread(file.fileno(), _BLOCK, end)
    if len(block) < _BLOCK:
        raise DataError("the tar is cut off: its end mark is missing", where=where, fix="Copy the shard again.")
    while block:
        if block.strip(b"\0"):
            came = f"the tar cannot be read on from byte {end:,}: damaged, or several tars joined into one"
            raise DataError(came, where=where)
        end += len(block)
        block = os.pread(file.fileno(), 2**20, end)
