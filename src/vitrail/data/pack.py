"""Making a packed copy: in parallel, resumable after any interruption, and read back before it counts as done."""

import functools
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path

import numpy as np
import torch

from vitrail.config import DecodePolicy, to_json
from vitrail.config.checks import positive
from vitrail.data.check.origin import UNKNOWN, files_of, identities
from vitrail.data.decoding.decode import decode
from vitrail.data.loading.prefetch import prefetched
from vitrail.data.loading.workers import in_workers
from vitrail.data.outside import ensure_outside
from vitrail.data.sources.classes import with_classes
from vitrail.data.sources.packed import (
    RECORD,
    Packed,
    PackIndex,
    PackRecord,
    open_packed,
    pack_image,
    read_record,
    save_index,
)
from vitrail.data.sources.parts import parse_part
from vitrail.data.sources.source import Source
from vitrail.errors import DataError, DiskError, UsageError, setting
from vitrail.runtime.atomic import atomic_file, put_in_place
from vitrail.runtime.lock import only_one

_CHUNK = 16
_SAMPLE = 64
_LINE = np.dtype([("identity", "<u8"), ("shape", "<i4", (3,)), ("bytes", "<i8"), ("checksum", "<u4"), ("reduced", "?")])
"""One line of the journal: what was read, and what was written of it."""


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """How a copy is made."""

    short_side: int = 256
    quality: int | None = None
    workers: int = 0
    skip_bad: bool = False
    policy: DecodePolicy = field(default_factory=DecodePolicy)


@dataclass(frozen=True)
class _Written:
    """A split whose images are all in its file: the hash of the index, and what a person should know."""

    index: str
    notes: list[str]
    reduced: int


@dataclass(frozen=True)
class _Stored:
    """A packed image, or why there is none."""

    data: bytes = b""
    shape: tuple[int, int, int] = (0, 0, 0)
    reduced: bool = False
    failure: tuple[str, str] | None = None


def pack(
    sources: dict[str, Source],
    target: Path,
    options: PackOptions,
    advance: Callable[[int], None] = lambda _count: None,
) -> dict[str, Packed]:
    """Pack the splits into the folder `target`; after an interruption a second call goes on where the first stopped."""
    _check(sources, target, options)
    with only_one(target.with_name(f".{target.name}.lock"), busy=f"{target} is being made by another process"):
        return _pack(sources, target, options, advance)


def _pack(
    sources: dict[str, Source], target: Path, options: PackOptions, advance: Callable[[int], None]
) -> dict[str, Packed]:
    partial = _partial(target)
    first = next(iter(sources.values()))
    # One list of names stands for all splits.
    sources = {split: with_classes(source, first.classes) for split, source in sources.items()}
    record = PackRecord(
        name=first.name,
        classes=first.classes,
        short_side=options.short_side,
        quality=options.quality,
        policy=options.policy,
        digests={split: source.digest() for split, source in sources.items()},
    )
    _begin(partial, record)
    written = {split: _pack_split(source, split, partial, options, advance) for split, source in sources.items()}
    reduced = sum(part.reduced for part in written.values())
    notes = dict.fromkeys([*(note for part in written.values() for note in part.notes), *_losses(options, reduced)])
    indexes = {split: part.index for split, part in written.items()}
    _write_record(partial, replace(record, notes=tuple(notes), indexes=indexes))
    for split in sources:
        _verify(open_packed(partial, split), partial / f"{split}.journal")
    for split in sources:
        (partial / f"{split}.journal").unlink()
    put_in_place(partial, target)
    return {split: open_packed(target, split) for split in sources}


def estimate_bytes(sources: dict[str, Source], options: PackOptions) -> int:
    """How large the copy will be, judged by a few images of each split."""
    total = 0.0
    for source in sources.values():
        places = np.unique(np.linspace(0, len(source) - 1, min(_SAMPLE, len(source))).astype(np.int64))
        sizes = [len(stored.data) for stored in _stored(source, options, places) if stored.failure is None]
        total += len(source) * float(np.mean(sizes)) if sizes else 0.0
    return int(total)


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


def _losses(options: PackOptions, reduced: int) -> list[str]:
    side = options.short_side
    smaller = (
        f"packed at short side {side}: {reduced:,} larger images were reduced, so evaluating them from the copy gives "
        f"other pixels than from the files, and training at more than {side} pixels enlarges them again."
    )
    encoded = f"packed as JPEGs of quality {options.quality}: evaluating them gives other pixels than the files."
    return [*([smaller] if reduced else []), *([encoded] if options.quality is not None else [])]


def _check(sources: dict[str, Source], target: Path, options: PackOptions) -> None:
    positive("short_side", options.short_side)
    if options.quality is not None and not 1 <= options.quality <= 100:
        raise UsageError(f"quality is {options.quality}", wanted="a number from 1 to 100")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UsageError("there is something already", where=str(target), fix="Choose a folder that is not there.")
    for split, source in sources.items():
        if source.labels.shares is not None:
            raise UsageError(
                "the labels are shares, which a packed copy has no place for",
                wanted="a class of each image",
                where=source.name,
                fix="Pack the labelled and the unlabelled images, and use the copies for `vitrail selftrain`.",
            )
        if not parse_part(split).is_whole:
            fix = f"Pack the whole split; {split!r} can then be taken of the copy."
            raise UsageError(f"the split to pack is {split!r}", wanted="a whole one", fix=fix)
    ensure_outside(sources.values(), target)
    partial = _partial(target)
    parent = next(folder for folder in target.resolve().parents if folder.is_dir())
    # What an earlier call left is gone on with, or makes room.
    left = sum(file.stat().st_size for file in partial.iterdir()) if partial.is_dir() else 0
    needed, free = estimate_bytes(sources, options), shutil.disk_usage(parent).free + left
    if needed > free:
        raise DiskError(
            f"the copy needs about {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free",
            where=str(parent),
            fix=f"Choose a smaller {setting('short_side')}, or {setting('quality', 90)} to store JPEGs, or another "
            "disk.",
        )


def _begin(partial: Path, record: PackRecord) -> None:
    """Keep what an interrupted call left when it was making such a copy of these splits, else start afresh.

    Whether the images are still the same is asked of each (`_resume`), so that one that was mended costs no others.
    """
    if (partial / RECORD).is_file():
        try:
            found = read_record(partial)
            same_splits = found.digests.keys() == record.digests.keys()
            if same_splits and replace(found, digests=record.digests, notes=(), indexes={}) == record:
                return
        except DataError:
            pass
    try:
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
    except OSError as error:
        fix = "Choose another folder."
        raise DiskError(f"could not be written ({error.strerror})", where=str(partial), fix=fix) from error
    _write_record(partial, record)


def _write_record(folder: Path, record: PackRecord) -> None:
    with atomic_file(folder / RECORD) as file:
        file.write_text(json.dumps(to_json(record), indent=2, ensure_ascii=False), encoding="utf-8")


def _pack_split(
    source: Source, split: str, partial: Path, options: PackOptions, advance: Callable[[int], None]
) -> _Written:
    journal, pixels = partial / f"{split}.journal", partial / f"{split}.pixels"
    known = identities(source)
    done = _resume(journal, pixels, known, options.skip_bad)
    advance(done)
    places = np.arange(done, len(source))
    failures: list[tuple[str, str]] = []
    # Without buffers, so that a journal never speaks of what is not written, and closing has nothing left to write.
    with pixels.open("ab", buffering=0) as image_file, journal.open("ab", buffering=0) as journal_file:
        for identity, stored in zip(known[done:], _stored(source, options, places), strict=False):
            if stored.failure is not None:
                failures.append(stored.failure)
                if not options.skip_bad:
                    break
            checksum = zlib.crc32(stored.data)
            line = np.array([(identity, stored.shape, len(stored.data), checksum, stored.reduced)], dtype=_LINE)
            _append(image_file, stored.data)
            _append(journal_file, line.tobytes())
            advance(1)
        os.fsync(image_file.fileno())
    if failures and not options.skip_bad:
        where, reason = failures[0]
        leave_out = setting("data.skip_bad", True)
        mend = f"Mend or remove the file, or pass {leave_out}; the same command then goes on where it stopped."
        begin = f"Mend the data, which starts the copy afresh, or pass {leave_out}, which goes on where it stopped."
        raise DataError(reason, where=where, fix=mend if files_of(source) else begin)
    lines = np.fromfile(journal, dtype=_LINE)
    kept = np.flatnonzero(lines["bytes"] > 0)
    offsets = np.concatenate([[0], np.cumsum(lines["bytes"][kept])]).astype(np.int64)
    index = PackIndex(offsets, lines["shape"][kept], lines["checksum"][kept], source.labels.select(kept))
    dropped = len(source) - len(kept)
    left_out = [f"{dropped:,} of {len(source):,} images of {split!r} left out: bad files."] if dropped else []
    written = save_index(partial / f"{split}.safetensors", index)
    return _Written(written, [*source.notes, *left_out], int(lines["reduced"].sum()))


def _append(file: FileIO, content: bytes) -> None:
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        fix = "Free some space; the same command then goes on where it stopped."
        raise DiskError(f"could not be written ({error.strerror})", where=str(file.name), fix=fix) from error


def _resume(journal: Path, pixels: Path, known: np.ndarray, skip_bad: bool) -> int:
    """How many images an earlier call finished; anything from the first that has changed since is cut off.

    Where bad files are to stop us, one that an earlier call was allowed to skip is not finished.
    """
    if not journal.is_file() or not pixels.is_file():
        for file in (journal, pixels):
            file.unlink(missing_ok=True)
        return 0
    lines = np.fromfile(journal, dtype=_LINE)[: len(known)]
    again = (lines["identity"] != known[: len(lines)]) | (lines["identity"] == UNKNOWN)
    if not skip_bad:
        again |= lines["bytes"] == 0
    lines = lines[: np.argmax(again)] if again.any() else lines
    ends = np.cumsum(lines["bytes"])
    done = int(np.searchsorted(ends, pixels.stat().st_size, side="right"))
    os.truncate(journal, done * _LINE.itemsize)
    os.truncate(pixels, int(ends[done - 1]) if done else 0)
    return done


def _verify(copy: Packed, journal: Path) -> None:
    damaged = copy.damaged()
    if damaged:
        # The machine may have stopped before all was on the disk: the next call begins this split again.
        journal.unlink()
        raise DiskError(
            f"{len(damaged):,} images read back differ from what was written",
            where=copy.where(damaged[0]),
            fix="Run the same command again; should it happen twice, choose another disk.",
        )


def _stored(source: Source, options: PackOptions, places: np.ndarray) -> Iterator[_Stored]:
    chunks = [places[start : start + _CHUNK] for start in range(0, len(places), _CHUNK)]
    make = functools.partial(_store_chunk, source, options)
    # In a thread of its own, for the reason that `prefetched` gives.
    for chunk in prefetched(lambda: in_workers(make, lambda: chunks, workers=options.workers), torch.device("cpu")):
        yield from chunk


def _store_chunk(source: Source, options: PackOptions, places: np.ndarray) -> list[_Stored]:
    return [_store(source, options, int(place)) for place in places]


def _store(source: Source, options: PackOptions, index: int) -> _Stored:
    try:
        encoded, where = source.read(index), source.where(index)
        # Grey images stay grey: a third of the space, and they are read as either.
        grey = isinstance(encoded, np.ndarray) and encoded.ndim == 2
        image = decode(encoded, "L" if grey else "RGB", where=where, policy=options.policy).image
    except DataError as error:
        return _Stored(failure=(error.where, error.came))
    data, shape = pack_image(image, options.short_side, options.quality)
    return _Stored(data, shape, reduced=min(image.size) > options.short_side)
