"""From a file's bytes to pixels, by a written policy: the reference that evaluation, prediction and serving use.

Pillow decodes. The content decides what a file is, never its name. Of animations and multi-page files the first frame
is used. EXIF orientation is applied once. Then, by mode:

- 16-bit grey is divided by 257 (65,535 becomes 255), not cut off at 255, and 12-bit grey likewise by its own range;
- transparency (an alpha channel, or a colour that counts as transparent) is laid over `DecodePolicy.background`;
- CMYK and YCCK, palettes, 1-bit and Lab become RGB as Pillow converts them; colour profiles are not applied;
- signed, 32-bit and floating-point pixels, whose range no one states, are refused.
"""

import io
import itertools
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, PngImagePlugin, UnidentifiedImageError

from vitrail.config.decoding import FORMATS, DecodePolicy
from vitrail.data.decoding.jpeg import count_scans, count_segments
from vitrail.data.sources.source import Encoded
from vitrail.errors import DamagedImage, DataError, NoMemory, TooManyPixels

Mode = Literal["RGB", "L"]
DEFAULT_POLICY = DecodePolicy()

# Pillow opens an MPO as the JPEG it begins with.
_OPENED = tuple(name for name in FORMATS if name != "MPO")
# What is cheap to write and dear to read: encoders make a dozen scans, and nobody needs to know of more pages.
_MOST_SCANS, _MOST_PAGES = 50, 1000
# Parts that any file may have, and bytes for each further one: encoders cut pixels into parts of 8 KiB and more.
_FREE_PARTS, _LEAST_PART = 10_000, 2**10
_JPEGS = ("JPEG", "MPO")
_PNG = b"\x89PNG\r\n\x1a\n"
_ORIENTATION_TAG = 0x0112
_PIXELS_AT_ONCE = 2**20
_MOST_TEXT = 8 * 2**20
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Modes that Pillow converts only by way of another.
_FIRST_TO = {"La": "LA", "LAB": "RGB"}
_PHOTOMETRIC_TAG, _BITS_TAG = 0x0106, 0x0102
_QUIET = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


@dataclass(frozen=True)
class Decoded:
    """An upright image in the mode asked for, and what was noticed on the way."""

    image: Image.Image
    format: str
    frames: int = 1
    """Of an animation or a file of several pages; the pages of a TIFF are counted up to 1,000."""


def decode(
    encoded: Encoded, mode: Mode = "RGB", *, where: str = "image", policy: DecodePolicy = DEFAULT_POLICY
) -> Decoded:
    """Decode an image with Pillow; a DataError says what is wrong with the file at `where`."""
    if isinstance(encoded, np.ndarray):
        return Decoded(Image.fromarray(encoded).convert(mode), "pixels")
    image = open_image(encoded, where=where, policy=policy)
    if image.format == "PNG":
        with _named("PNG", where, policy):
            image.load()
            _compare_checksums(encoded)
    return decode_opened(image, mode, where=where, policy=policy)


def decode_opened(
    image: Image.Image, mode: Mode = "RGB", *, where: str = "image", policy: DecodePolicy = DEFAULT_POLICY
) -> Decoded:
    """The same for an image that Pillow has opened or made; it is not changed."""
    check_size(image.height, image.width, where=where, policy=policy)
    with _named(image.format or "image", where, policy):
        frames = _frames(image)
        image.load()
        upright = _turned(_in_mode(image, mode, policy, where), orientation(image))
    return Decoded(upright, str(image.format), frames)


def open_image(
    encoded: bytes,
    *,
    where: str = "image",
    policy: DecodePolicy = DEFAULT_POLICY,
    file: Callable[[bytes], io.BytesIO] = io.BytesIO,
) -> Image.Image:
    """Read the header only, through a file over the bytes, and refuse what the policy refuses; nothing is decoded."""
    if not encoded:
        raise DataError("the file is empty", wanted="an image", where=where)
    _settle_pillow(policy)
    most_parts = _FREE_PARTS + len(encoded) // _LEAST_PART
    if _parts(encoded, most_parts) > most_parts:
        raise DataError("the file is cut into tiny parts", wanted=f"at most {most_parts:,}", where=where)
    with _named("image", where, policy):
        try:
            image = Image.open(file(encoded), formats=_OPENED)
        except UnidentifiedImageError:
            wanted = f"an image ({', '.join(_OPENED)})"
            raise DataError(f"the content is {_kind(encoded)}", wanted=wanted, where=where) from None
    check_size(image.height, image.width, where=where, policy=policy)
    if image.format in _JPEGS and count_scans(encoded, _MOST_SCANS) > _MOST_SCANS:
        raise DataError(
            "the JPEG makes its decoder begin again and again", wanted=f"at most {_MOST_SCANS} scans", where=where
        )
    return image


def _parts(encoded: bytes, at_most: int) -> int:
    """How many pieces a JPEG has before its pixels, or a PNG altogether: each takes Pillow some microseconds.

    Counting stops above `at_most`.
    """
    if encoded.startswith(b"\xff\xd8"):
        return count_segments(encoded, at_most)
    chunks = itertools.islice(_chunks(encoded), at_most + 1) if encoded.startswith(_PNG) else ()
    return sum(1 for _ in chunks)


def _chunks(encoded: bytes) -> Iterator[tuple[int, int]]:
    """Where the names of a PNG's chunks begin and where their content ends; what follows the last is no part of it."""
    place = len(_PNG)
    while place + 8 <= len(encoded):
        end = place + 8 + int.from_bytes(encoded[place : place + 4], "big")
        yield place + 4, end
        if encoded[place + 4 : place + 8] == b"IEND":
            return
        place = end + 4


def check_size(height: int, width: int, *, where: str, policy: DecodePolicy) -> None:
    """Refuse from the header what would be too large to decode, or too narrow to be a picture."""
    if width * height > policy.max_pixels:
        raise _too_large(f"{width:,} x {height:,} pixels", policy, where)
    if max(width, height) > policy.max_aspect * min(width, height):
        raise DataError(
            f"the header says {width:,} x {height:,} pixels",
            wanted=f"sides within {policy.max_aspect} to 1 (max_aspect)",
            where=where,
        )


def orientation(image: Image.Image) -> int:
    """The EXIF orientation that is left to apply, 1 to 8; an EXIF block that cannot be read counts as upright."""
    # Pillow turns TIFFs itself, and gives their size as turned from the start.
    if image.format == "TIFF":
        return 1
    try:
        found = image.getexif().get(_ORIENTATION_TAG, 1)
        return int(found) if found in _UPRIGHT else 1
    except Exception:
        # EXIF is written by many hands, and Pillow's parser raises almost anything on it.
        return 1


def pixels(decoded: Decoded) -> np.ndarray:
    """The image as uint8 (height, width, channels)."""
    array = np.asarray(decoded.image)
    return array[:, :, None] if array.ndim == 2 else array


def _frames(image: Image.Image) -> int:
    """How many frames a file has; a TIFF is a chain of pages, each slow to find, and is followed for so long only."""
    if image.format != "TIFF":
        return int(getattr(image, "n_frames", 1))
    shown, pages = image.tell(), 1
    with suppress(EOFError):
        while pages < _MOST_PAGES:
            image.seek(pages)
            pages += 1
    image.seek(shown)
    return pages


def _turned(image: Image.Image, number: int) -> Image.Image:
    turn = _UPRIGHT.get(number)
    return image if turn is None else image.transpose(turn)


def _in_mode(image: Image.Image, mode: Mode, policy: DecodePolicy, where: str) -> Image.Image:
    # Pillow keeps 16-bit PGM files in 32-bit pixels, scaled to 65,535.
    if image.mode == "F" or (image.mode == "I" and image.format != "PPM"):
        kind = "floating-point" if image.mode == "F" else "signed or 32-bit"
        raise DataError(f"pixels are {kind} numbers", wanted="whole numbers of 1, 8 or 16 bits", where=where)
    if image.mode.startswith("I"):
        image = _from_16_bit(image)
    if image.mode in _FIRST_TO:
        image = image.convert(_FIRST_TO[image.mode])
    if image.has_transparency_data:
        return _opaque(image, mode, policy)
    return image if image.mode == mode else image.convert(mode)


def _opaque(image: Image.Image, mode: Mode, policy: DecodePolicy) -> Image.Image:
    """Lay an image over the background, some rows at a time: the layers of a whole one take four times its memory."""
    shown = Image.new(mode, image.size)
    rows = max(1, _PIXELS_AT_ONCE // image.width)
    for top in range(0, image.height, rows):
        layer = image.crop((0, top, image.width, min(top + rows, image.height))).convert("RGBA")
        behind = Image.new("RGBA", layer.size, (*policy.background, 255))
        shown.paste(Image.alpha_composite(behind, layer).convert(mode), (0, top))
    return shown


def _from_16_bit(image: Image.Image) -> Image.Image:
    """Grey as L, or as LA where one grey level counts as transparent."""
    values = np.asarray(image).astype(np.int64)
    tags = getattr(image, "tag_v2", {})
    full = 4_095 if tags.get(_BITS_TAG) == (12,) else 65_535
    grey = ((values.clip(0, full) * 255 + full // 2) // full).astype(np.uint8)
    # In these TIFFs 0 is white, which Pillow heeds for up to 8 bits only.
    shown = Image.fromarray(255 - grey if tags.get(_PHOTOMETRIC_TAG) == 0 else grey)
    key = image.info.get("transparency")
    if isinstance(key, int):
        shown.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return shown


def _compare_checksums(encoded: bytes) -> None:
    """Check the pixel data of a PNG, whose checksums Pillow skips: one wrong bit may change half of the image."""
    for start, end in _chunks(encoded):
        is_wanted = encoded[start : start + 4] == b"IDAT"
        stored = int.from_bytes(encoded[end : end + 4], "big")
        if is_wanted and zlib.crc32(memoryview(encoded)[start:end]) != stored:
            raise ValueError("a checksum differs")


def _settle_pillow(policy: DecodePolicy) -> None:
    """Let the policy alone decide: Pillow's own limit makes way, and its warnings, which no user can mend, are off."""
    # Pillow warns at its limit and refuses at twice that.
    if Image.MAX_IMAGE_PIXELS is not None and policy.max_pixels > 2 * Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = policy.max_pixels
    # Texts in a PNG, which nobody reads here, may unpack to a thousand times their size.
    PngImagePlugin.MAX_TEXT_MEMORY = _MOST_TEXT
    # Not `catch_warnings`: it is not made for threads, and repeats warnings that should be seen once.
    if not warnings.filters or warnings.filters[0] != _QUIET:
        warnings.filterwarnings("ignore", module=_QUIET[3].pattern)


@contextmanager
def _named(kind: str, where: str, policy: DecodePolicy) -> Iterator[None]:
    """What Pillow raises as a DataError that names the file; on damaged files that is almost any exception."""
    try:
        yield
    except DataError:
        raise
    except Image.DecompressionBombError as error:
        count = re.search(r"\d+", str(error))
        raise _too_large(f"{int(count[0]):,} pixels" if count else "too many pixels", policy, where) from None
    except MemoryError:
        raise NoMemory("the pixels do not fit into memory", where=where) from None
    except Exception as error:
        raise _damaged(kind, error, where) from None


def _too_large(came: str, policy: DecodePolicy, where: str) -> TooManyPixels:
    return TooManyPixels(f"the header says {came}", wanted=f"at most {policy.max_pixels:,} (max_pixels)", where=where)


def _damaged(kind: str, error: BaseException, where: str) -> DamagedImage:
    reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
    return DamagedImage(f"the {kind} data is damaged or cut off ({reason})", where=where)


_BEGINNINGS = {
    b"<!doctype html": "an HTML page",
    b"<html": "an HTML page",
    b"<svg": "an SVG drawing",
    b"<?xml": "XML",
    b"%pdf": "a PDF",
    b"pk\x03\x04": "a zip archive",
    b"\x89hdf": "HDF5",
}


def _kind(encoded: bytes) -> str:
    start = encoded[:64].lstrip().lower()
    named = next((kind for begins, kind in _BEGINNINGS.items() if start.startswith(begins)), None)
    if named is None and encoded[4:12] in (b"ftypheic", b"ftypavif", b"ftypheix", b"ftypmif1"):
        named = "HEIC or AVIF"
    return named or "no image we read"
