"""Which files the images of a source are or lie in, and what changes when an image does.

What is kept of images (that they can be read, features, copies) is found by these numbers: an image whose file is not
known, or cannot be looked at, has none, and is read again every time.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from vitrail.data.sources.arrow_rows import ArrowRows
from vitrail.data.sources.files import Files, state_of
from vitrail.data.sources.hdf5 import Hdf5Images
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.packed import Packed
from vitrail.data.sources.shards import Shards
from vitrail.data.sources.slices import Slices
from vitrail.data.sources.source import Arrays, Source, whole_of

UNKNOWN = np.uint64(0)
"""The identity of an image of which nothing is known: nothing that is kept is about it."""


def files_of(source: Source) -> tuple[Files, np.ndarray] | None:
    """The files behind a source and the place of each image among them; None when the images are no files."""
    whole = whole_of(source)
    return (whole, source.ids(np.arange(len(source)))) if isinstance(whole, Files) else None


def holders(source: Source) -> Iterable[Path]:
    """The files that hold images which are no files of their own; none when they are in memory."""
    whole = whole_of(source)
    if isinstance(whole, Joined):
        return [path for part in whole.sources for path in holders(part)]
    return whole.holders() if isinstance(whole, ArrowRows | Hdf5Images | Packed | Shards | Slices) else ()


def identities(source: Source) -> np.ndarray:
    """64 bits for each image that change when it does; 0, which stands for nothing known, where nobody can tell.

    They come from path and state of its file; else from those of the files that hold it, the digest and its place. A
    kind of source that is not known here may read from anywhere, and so may one whose file is not there.
    """
    whole = whole_of(source)
    if isinstance(whole, Joined):
        return np.concatenate([identities(part) for part in whole.sources])[source.ids(np.arange(len(source)))]
    found = files_of(source)
    if found is not None:
        files, places = found
        return _numbers(_state(files.path(place).absolute()) for place in places.tolist())
    states = [_state(path) for path in holders(source)]
    # The digest of pixels in memory is one of their content; any other says no more than names and sizes.
    if not all(states) or not (states or isinstance(whole, Arrays)):
        return np.full(len(source), UNKNOWN)
    held = hashlib.sha256(b"\0".join([source.digest().encode(), *states])).digest()
    return _numbers(held + place.to_bytes(8, "little") for place in range(len(source)))


def is_in_memory(source: Source) -> bool:
    """Whether the pixels would be copied into every process that is to read them."""
    whole = whole_of(source)
    return all(map(is_in_memory, whole.sources)) if isinstance(whole, Joined) else isinstance(whole, Arrays)


def is_known_good(source: Source) -> bool:
    """Whether nothing can be unreadable unseen: in memory, or packed, where reading compares with a checksum."""
    whole = whole_of(source)
    return all(map(is_known_good, whole.sources)) if isinstance(whole, Joined) else isinstance(whole, Arrays | Packed)


def _state(path: Path) -> bytes:
    try:
        now = path.stat()
    except (OSError, ValueError):
        return b""
    return f"{path}\0{state_of(now)}".encode("utf-8", "surrogateescape")


def _numbers(states: Iterable[bytes]) -> np.ndarray:
    made = (hashlib.blake2b(state, digest_size=8).digest() if state else bytes(8) for state in states)
    return np.frombuffer(b"".join(made), np.uint64)
