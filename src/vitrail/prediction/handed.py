"""Images as they are handed over: paths, patterns, folders, bytes, Pillow images, arrays, standard input."""

import glob
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitrail.config.decoding import DecodePolicy
from vitrail.data.decoding.decode import Decoded, Mode, decode, decode_opened
from vitrail.data.sources.files import as_text, read_whole, shown, user_path
from vitrail.data.sources.loose import images_in
from vitrail.errors import DataError, UsageError

STANDARD_INPUT = "-"

_LARGEST = 2**30
_ONE = (str, bytes, bytearray, memoryview, os.PathLike, Image.Image)


@dataclass(frozen=True)
class Handed:
    """One image, not yet read."""

    name: str
    decoded: Callable[[Mode, DecodePolicy], Decoded]
    """A DataError says what is wrong with it."""


def from_names(names: Sequence[str]) -> list[Handed]:
    """Files, folders, patterns such as `photos/*.jpg`, and `-` for an image on standard input, as a person types them.

    What is not there becomes an image that cannot be read, so that the others are answered.
    """
    return [handed for name in names for handed in _from_name(name)]


def from_objects(images: Any) -> list[Handed]:
    """Paths, bytes, Pillow images or arrays of bytes (height, width, channels): one of them, or several."""
    # Arrays of every library can be gone through, row by row.
    several = isinstance(images, Iterable) and not isinstance(images, _ONE) and not hasattr(images, "__array__")
    objects = list(images) if several else [images]
    # Pillow reads a file when its pixels are asked for, and not from two threads at once.
    locks: dict[int, threading.Lock] = {}
    return [
        _from_object(image, f"image {number}", locks.setdefault(id(image), threading.Lock()))
        for number, image in enumerate(objects, start=1)
    ]


def _from_name(name: str) -> list[Handed]:
    if name == STANDARD_INPUT:
        # A program may have none, and one without an end must not fill the memory.
        encoded = b"" if sys.stdin is None else sys.stdin.buffer.read(_LARGEST)
        return [Handed("standard input", lambda mode, policy: _of_bytes(encoded, "standard input", mode, policy))]
    if name.startswith(("http://", "https://")):
        return [_unreadable(name, "is an address", "Fetch the image first: nothing here reads from the network.")]
    try:
        path = user_path(name)
        if path.is_dir():
            return [_of_file(found) for found in images_in(path)]
        if not path.exists() and glob.has_magic(name):
            return [_of_file(Path(found)) for found in _matching(path)]
    except DataError as error:
        return [_failed(as_text(name), error)]
    return [_of_file(path)]


def _matching(pattern: Path) -> list[str]:
    found = sorted(path for path in glob.glob(str(pattern), recursive=True) if Path(path).is_file())  # noqa: PTH207
    if not found:
        raise DataError("no file matches this pattern", where=shown(str(pattern)))
    return found


def _of_file(path: Path) -> Handed:
    where = shown(str(path))
    return Handed(as_text(str(path)), lambda mode, policy: _of_bytes(read_whole(path, where), where, mode, policy))


def _of_bytes(encoded: bytes, where: str, mode: Mode, policy: DecodePolicy) -> Decoded:
    return decode(encoded, mode, where=where, policy=policy)


def _from_object(image: Any, name: str, lock: threading.Lock) -> Handed:
    if isinstance(image, str | os.PathLike):
        return _of_file(user_path(Path(image)))
    if isinstance(image, bytes | bytearray | memoryview):
        encoded = bytes(image)
        return Handed(name, lambda mode, policy: _of_bytes(encoded, name, mode, policy))
    if isinstance(image, Image.Image):
        return Handed(name, lambda mode, policy: _of_pillow(image, lock, name, mode, policy))
    if hasattr(image, "__array__"):
        array = np.asarray(image)
        return Handed(name, lambda mode, policy: decode_opened(_pillow(array, name), mode, where=name, policy=policy))
    raise UsageError(
        f"an image is a {type(image).__name__}", wanted="a path, bytes, a Pillow image or an array of bytes"
    )


def _of_pillow(image: Image.Image, lock: threading.Lock, where: str, mode: Mode, policy: DecodePolicy) -> Decoded:
    with lock:
        return decode_opened(image, mode, where=where, policy=policy)


def _pillow(array: np.ndarray, where: str) -> Image.Image:
    wanted = "bytes (uint8) of shape (height, width) or (height, width, 1, 3 or 4)"
    if array.dtype != np.uint8:
        scale = " Multiply values from 0 to 1 by 255." if array.dtype.kind == "f" else ""
        raise DataError(f"the array holds {array.dtype}", wanted=wanted, where=where, fix=scale.strip())
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    first = array.ndim == 3 and array.shape[0] in (1, 3, 4)
    last = array.ndim == 3 and array.shape[2] in (3, 4)
    if not (array.ndim == 2 or last) or 0 in array.shape:
        fix = "Put the channels last: array.transpose(1, 2, 0)." if first else ""
        raise DataError(f"the array has shape {array.shape}", wanted=wanted, where=where, fix=fix)
    return Image.fromarray(array)


def _unreadable(name: str, came: str, fix: str) -> Handed:
    return _failed(name, DataError(came, wanted="a file", where=shown(name), fix=fix))


def _failed(name: str, error: DataError) -> Handed:
    def fail(_mode: Mode, _policy: DecodePolicy) -> Decoded:
        raise error

    return Handed(name, fail)
