"""Which images of a source are copies of each other, found once and remembered, so that a split keeps them together.

A copy among the images learnt from makes a held-out image a measure of memory. In sets of up to 20,000 images every
image is decoded, large JPEGs at a fraction of their size, and copies are what `vitrail data check` finds: equal pixels,
and near copies that were re-encoded, resized or mirrored. In larger sets only files with equal bytes are found, and
that is said.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import PIL

from vitrail.config.data import CopiesKept
from vitrail.config.decoding import DecodePolicy
from vitrail.data.check.duplicates import exact_groups, near_groups
from vitrail.data.check.kept import load_rows, rows_of, store_rows
from vitrail.data.check.origin import UNKNOWN, identities, is_in_memory, is_known_good
from vitrail.data.check.pool import Advance
from vitrail.data.check.preflight import fine_images, remember_fine
from vitrail.data.check.scan import RECORD, scan
from vitrail.data.check.words import counted
from vitrail.data.sources.files import Files
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.packed import Packed
from vitrail.data.sources.parts import hold_out
from vitrail.data.sources.source import Arrays, Part, Source, whole_of
from vitrail.errors import DataError, notice
from vitrail.runtime.cache import cache_folder, cache_key

NEAR_UP_TO = 20_000
"""In more images near copies are not looked for: decoding all of them is not cheap."""
# A larger group of near copies is one kind of picture when it is all of a class, or so large a share of the set.
_PLAUSIBLE, _PLAUSIBLE_SHARE = 10, 0.1
_HEAD = 4096
# Of fewer nobody notices that they are read.
_WORTH_TELLING = 1000
_POLICY = DecodePolicy()
# What is kept of an image, by its identity: how it looks, or how long its file is, its first bytes and all of them.
_SEEN = np.dtype([("image", "u8"), ("record", RECORD)])
_EQUAL = np.dtype([("image", "u8"), ("size", "u8"), ("head", "u8"), ("content", "u8")])
_KEPT_BYTES = 2**26
_Key = Callable[[Source, int], int]
# A source is asked several times, for its parts and for what is held out; it is what it was when it was opened.
_FOUND: WeakKeyDictionary[Source, np.ndarray] = WeakKeyDictionary()


@dataclass(frozen=True)
class Copies:
    """Groups of copies among the images of a source."""

    groups: np.ndarray
    """int64 (images,): the place of the first image of the group, which is an image's own where it has no copy."""
    caveat: str = ""
    """What was not looked for, or not believed."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell of a split that keeps them together."""
        sizes = np.bincount(self.groups, minlength=1)
        groups, images = int((sizes > 1).sum()), int(sizes[sizes > 1].sum())
        found = f"{counted(groups, 'group')} of copies ({images:,} images) {'is' if groups == 1 else 'are'} kept on one"
        return (*((f"{found} side of every split.",) if groups else ()), *((self.caveat,) if self.caveat else ()))


def copies_of(source: Source, advance: Advance | None = None, *, processes: bool = False) -> Copies:
    """Find the copies among the images of a source, or remember them; nothing is written beside the data.

    Those of a part are those of the whole that it is part of, so that all its parts agree. Images are decoded in
    threads, which every script may start, or in `processes`.
    """
    whole = whole_of(source)
    near = len(whole) <= NEAR_UP_TO
    if whole not in _FOUND:
        images = identities(whole)
        _FOUND[whole] = _nearly(whole, images, advance, processes) if near else _exactly(whole, images, advance)
    exact, alike = _FOUND[whole]
    groups, doubtful = _believed(whole.labels, exact, alike)
    mine = groups[source.ids(np.arange(len(source)))]
    _, first, inverse = np.unique(mine, return_index=True, return_inverse=True)
    return Copies(first[inverse.reshape(-1)].astype(np.int64), " ".join(_caveats(source, whole, near, doubtful)))


def hold_out_of(source: Source, share: float, copies: CopiesKept) -> tuple[Source, Source, tuple[str, ...]]:
    """The rest, a held-out share and what to tell: copies stay on one side, or are split as if there were none."""
    if copies == "apart":
        return *hold_out(source, share), ()
    found = copies_of(source)
    return *hold_out(source, share, found.groups, found.notes), found.notes


def _caveats(source: Source, whole: Source, near: bool, doubtful: int) -> Iterator[str]:
    if doubtful:
        yield (
            f"{doubtful:,} images look alike in groups too large to be copies, so that only equal ones are kept "
            "together."
        )
    if near:
        return
    if _has_keys(whole):
        yield f"Among more than {NEAR_UP_TO:,} images near copies are not looked for, only equal files."
    else:
        yield f"Copies are not looked for in {source.name}: it has more than {NEAR_UP_TO:,} images that are no files."


def _nearly(source: Source, images: np.ndarray, advance: Advance | None, processes: bool) -> np.ndarray:
    """Decode what was not decoded before: the groups of equal pixels, and those of near copies, which hold them."""
    cache = _cache(source, "near")
    kept = load_rows(cache, _SEEN)
    seen = rows_of(images, kept)
    fresh = np.flatnonzero(seen["image"] == UNKNOWN)
    if advance:
        advance(len(source) - len(fresh))
    if len(fresh):
        if not advance and not is_in_memory(source):
            _tell(source, len(fresh))
        some = source if len(fresh) == len(source) else Part(source, fresh, source.split)
        (found,) = scan([some], policy=_POLICY, glance=True, threads=not processes, advance=advance)
        seen["record"][fresh], seen["image"][fresh] = found.records, images[fresh]
        fine = seen[fresh][found.records["good"]]
        if not is_known_good(source):
            remember_fine(source, _POLICY, fine_images(fine["image"], fine["record"]["content"]))
        _keep(cache, seen[seen["record"]["good"]], kept)
    good = np.flatnonzero(seen["record"]["good"])
    records = seen["record"][good]
    exact = exact_groups(records)
    return np.stack([_placed(groups, good, len(source)) for groups in (exact, near_groups(records, exact).groups)])


def _cache(source: Source, kind: str) -> Path:
    return cache_folder("copies") / f"{cache_key(2, kind, source.name, PIL.__version__)}.npy"


def _keep(cache: Path, rows: np.ndarray, before: np.ndarray) -> None:
    """Keep the rows of the images there are, and some of others: of another split, or another set of this name."""
    others = before[~np.isin(before["image"], rows["image"])][: _KEPT_BYTES // rows.itemsize]
    store_rows(cache, np.concatenate([rows, others]), "Copies will be looked for again next time")


def _tell(source: Source, images: int) -> None:
    if images >= _WORTH_TELLING:
        notice(f"{source.name}: {images:,} images are looked through for copies, this once.")


def _placed(groups: np.ndarray, good: np.ndarray, length: int) -> np.ndarray:
    """Groups of some images as groups of all: the place of the first of each; the others stand alone."""
    placed = np.arange(length)
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    placed[good] = good[first[inverse.reshape(-1)]]
    return placed


def _exactly(source: Source, images: np.ndarray, advance: Advance | None) -> np.ndarray:
    """Groups of images with equal bytes; only what no earlier key has told apart is looked at more closely."""
    placed = np.arange(len(source))
    if not _has_keys(source):
        return np.stack([placed, placed])
    cache = _cache(source, "equal")
    kept = load_rows(cache, _EQUAL)
    known = rows_of(images, kept)
    before = known.copy()
    known["image"] = images
    if not advance and not is_in_memory(source):
        _tell(source, int((before["image"] == UNKNOWN).sum()))
    groups: list[Sequence[int]] = [range(len(source))]
    keys: dict[str, _Key] = {"size": _size, "head": _head, "content": _content}
    for name, key in keys.items():
        told: list[Sequence[int]] = []
        for members in groups:
            same = _same(source, members, key, known[name])
            told += same
            if advance:
                # Who stands alone is done; those that the last key leaves together are as well.
                advance(len(members) - (0 if name == "content" else sum(map(len, same))))
        groups = told
    for members in groups:
        placed[members] = members[0]
    if (known != before).any():
        _keep(cache, known, kept)
    return np.stack([placed, placed])


def _same(source: Source, members: Sequence[int], key: _Key, known: np.ndarray) -> list[Sequence[int]]:
    """The members whose key is equal, two or more each; what is `known` is not computed again."""
    same: dict[int, list[int]] = defaultdict(list)
    for index in members:
        if not known[index]:
            try:
                known[index] = key(*_stored(source, index))
            except (OSError, ValueError, DataError):
                # What cannot be read is told where it is read, and is no copy.
                continue
        same[int(known[index])].append(index)
    return [found for found in same.values() if len(found) > 1]


def _has_keys(source: Source) -> bool:
    """Whether copies can be found without reading all there is."""
    whole = whole_of(source)
    return (
        all(map(_has_keys, whole.sources)) if isinstance(whole, Joined) else isinstance(whole, Files | Arrays | Packed)
    )


def _stored(source: Source, index: int) -> tuple[Source, int]:
    """The source that an image is stored in, and its place there."""
    whole, inside = whole_of(source), int(source.ids(np.array([index]))[0])
    return _stored(*whole.place(inside)) if isinstance(whole, Joined) else (whole, inside)


def _size(source: Source, index: int) -> int:
    if isinstance(source, Files):
        return source.path(index).stat().st_size
    return source.checksum(index) if isinstance(source, Packed) else 0


def _head(source: Source, index: int) -> int:
    if not isinstance(source, Files):
        return 1
    if not source.path(index).is_file():
        # A pipe would be waited for.
        raise ValueError("no file")
    with source.path(index).open("rb") as file:
        return _digest(file.read(_HEAD))


def _content(source: Source, index: int) -> int:
    encoded = source.read(index)
    if isinstance(encoded, bytes):
        return _digest(encoded)
    return _digest(str(encoded.shape).encode() + np.ascontiguousarray(encoded).tobytes())


def _digest(content: bytes) -> int:
    """64 bits, never 0, which stands for what is not known."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) or 1


def _believed(labels: Labels, exact: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, int]:
    """The groups to keep together, and how many images only look alike.

    Near copies of near copies make one group. Where it is all of a class, or much of the set, holding some of it out
    would be impossible: pictures of one kind, rather than copies.
    """
    sizes = np.bincount(near, minlength=len(near))
    large = sizes > max(_PLAUSIBLE, _PLAUSIBLE_SHARE * len(near))
    if not labels.is_multi:
        for number in np.flatnonzero(labels.counts() > _PLAUSIBLE):
            members = near[labels.values == number]
            large[members[0]] |= bool((members == members[0]).all())
    doubtful = large[near]
    return np.where(doubtful, exact, near), int((doubtful & (near != exact)).sum())
