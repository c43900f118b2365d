"""Which images of a source are copies of each other, found once and remembered, so that a split keeps them together.

A copy among the images learnt from makes a held-out image a measure of memory. In sets of up to 20,000 images every
image is decoded, large JPEGs at a fraction of their size, and copies are what `vitrail data check` finds: equal pixels,
and near copies that were re-encoded, resized or mirrored. In larger sets only files with equal bytes are found, and
that is said.
"""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL

from vitrail.config.data import CopiesKept
from vitrail.config.decoding import DecodePolicy
from vitrail.data.check.duplicates import exact_groups, near_groups
from vitrail.data.check.origin import UNKNOWN, identities, is_in_memory, is_known_good
from vitrail.data.check.pool import Advance
from vitrail.data.check.preflight import fine_images, remember_fine
from vitrail.data.check.scan import scan
from vitrail.data.check.words import counted
from vitrail.data.sources.files import Files
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.packed import Packed
from vitrail.data.sources.parts import hold_out
from vitrail.data.sources.source import Arrays, Source, whole_of
from vitrail.errors import DataError, DiskError, notice
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.cache import cache_folder, cache_key

NEAR_UP_TO = 20_000
"""In more images near copies are not looked for: decoding all of them is not cheap."""
# A larger group of near copies is one kind of picture when it is all of a class, or so large a share of the set.
_PLAUSIBLE, _PLAUSIBLE_SHARE = 10, 0.1
_HEAD = 4096
# Of fewer nobody notices that they are read.
_WORTH_TELLING = 1000


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


def copies_of(source: Source, advance: Advance | None = None) -> Copies:
    """Find the copies among the images of a source, or remember them; nothing is written beside the data.

    Those of a part are those of the whole that it is part of, so that all its parts agree.
    """
    whole = whole_of(source)
    images = identities(whole)
    near = len(whole) <= NEAR_UP_TO
    # An image of which nobody can tell whether it has changed is never remembered.
    is_known = not (images == UNKNOWN).any()
    cache = cache_folder("copies") / f"{cache_key(1, near, PIL.__version__, images.tobytes())}.npy"
    found = _load(cache, len(whole)) if is_known else None
    if found is None:
        found = _nearly(whole, images, advance) if near else _exactly(whole)
        if is_known:
            _store(cache, found)
    exact, alike = found
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


def _nearly(source: Source, images: np.ndarray, advance: Advance | None) -> np.ndarray:
    """Decode everything: the groups of equal pixels, and those of near copies, which hold them."""
    policy = DecodePolicy()
    if advance is None and len(source) >= _WORTH_TELLING and not is_in_memory(source):
        notice(f"{source.name}: {len(source):,} images are looked through for copies, this once.")
    (seen,) = scan([source], policy=policy, glance=True, advance=advance)
    good = np.flatnonzero(seen.records["good"])
    if not is_known_good(source):
        remember_fine(source, policy, fine_images(images[good], seen.records["content"][good]))
    records = seen.records[good]
    exact = exact_groups(records)
    return np.stack([_placed(groups, good, len(source)) for groups in (exact, near_groups(records, exact).groups)])


def _placed(groups: np.ndarray, good: np.ndarray, length: int) -> np.ndarray:
    """Groups of some images as groups of all: the place of the first of each; the others stand alone."""
    placed = np.arange(length)
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    placed[good] = good[first[inverse.reshape(-1)]]
    return placed


def _exactly(source: Source) -> np.ndarray:
    """Groups of images with equal bytes; only what no earlier key has told apart is looked at more closely."""
    groups: list[Sequence[int]] = [range(len(source))] if _has_keys(source) else []
    for key in (_size, _head, _content):
        told: list[Sequence[int]] = []
        for members in groups:
            same: dict[Hashable, list[int]] = defaultdict(list)
            for index in members:
                try:
                    same[key(*_stored(source, index))].append(index)
                except (OSError, ValueError, DataError):
                    # What cannot be read is told where it is read, and is no copy.
                    continue
            told += [found for found in same.values() if len(found) > 1]
        groups = told
    placed = np.arange(len(source))
    for members in groups:
        placed[members] = members[0]
    return np.stack([placed, placed])


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


def _size(source: Source, index: int) -> Hashable:
    if isinstance(source, Files):
        return source.path(index).stat().st_size
    return source.checksum(index) if isinstance(source, Packed) else None


def _head(source: Source, index: int) -> Hashable:
    if not isinstance(source, Files):
        return None
    if not source.path(index).is_file():
        # A pipe would be waited for.
        raise ValueError("no file")
    with source.path(index).open("rb") as file:
        return hashlib.blake2b(file.read(_HEAD), digest_size=16).digest()


def _content(source: Source, index: int) -> Hashable:
    encoded = source.read(index)
    shape = encoded.shape if isinstance(encoded, np.ndarray) else None
    content = np.ascontiguousarray(encoded).data if isinstance(encoded, np.ndarray) else encoded
    return shape, hashlib.blake2b(content, digest_size=16).digest()


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


def _load(cache: Path, length: int) -> np.ndarray | None:
    """Groups that were found before; a file that is missing or damaged only means that they are found again."""
    try:
        found = np.load(cache, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    fits = found.dtype == np.int64 and found.shape == (2, length)
    return found if fits and (found >= 0).all() and (found <= np.arange(length)).all() else None


def _store(cache: Path, found: np.ndarray) -> None:
    try:
        with atomic_file(cache) as temporary, temporary.open("wb") as file:
            np.save(file, found, allow_pickle=False)
    except DiskError as error:
        notice(f"Copies will be looked for again next time: {error}")
