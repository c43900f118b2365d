"""From a file's bytes to pixels, by a written policy: the reference that evaluation, prediction and serving use.

Pillow decodes. The content decides what a file is, never its name. Of animations and multi-page files the first frame
is used. EXIF orientation is applied once. Then, by mode:

- 16-bit grey is divided by 257 (65,535 becomes 255), not cut off at 255;
- transparency (RGBA, LA, P or 1-bit with a transparent colour) is laid over `DecodePolicy.background`;
- CMYK and YCCK, palettes, 1-bit and Lab become RGB as Pillow converts them; colour profiles are not applied;
- floating-point pixels, whose range no one states, are refused.
"""

import io
import struct
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from vitrail.config.decoding import FORMATS, DecodePolicy
from vitrail.data.source import Encoded
from vitrail.errors import DataError

Mode = Literal["RGB", "L"]
DEFAULT_POLICY = DecodePolicy()

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What Pillow raises for damaged files of one format or another; anything else is a bug and should be seen as one.
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError, OverflowError, struct.error)


@dataclass(frozen=True)
class Decoded:
    """An upright image in the mode asked for, and what was noticed on the way."""

    image: Image.Image
    format: str
    frames: int = 1


def decode(
    encoded: Encoded, mode: Mode = "RGB", *, where: str = "image", policy: DecodePolicy = DEFAULT_POLICY
) -> Decoded:
    """Decode an image with Pillow; a DataError says what is wrong with the file at `where`."""
    if isinstance(encoded, np.ndarray):
        return Decoded(Image.fromarray(encoded).convert(mode), "pixels")
    image = open_image(encoded, where=where, policy=policy)
    try:
        frames = int(getattr(image, "n_frames", 1))
        image.load()
    except _DAMAGE as error:
        raise _damaged(image.format or "image", error, where) from None
    except MemoryError:
        raise DataError(f"an image of {_size(image)} pixels does not fit into memory", where=where) from None
    upright = _turned(image)
    return Decoded(_in_mode(upright, mode, policy, where), str(image.format), frames)


def open_image(encoded: bytes, *, where: str = "image", policy: DecodePolicy = DEFAULT_POLICY) -> Image.Image:
    """Read the header only and refuse what the policy refuses; nothing is decoded yet."""
    if not encoded:
        raise DataError("the file is empty", wanted="an image", where=where)
    if Image.MAX_IMAGE_PIXELS is not None and policy.max_pixels > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = policy.max_pixels
    try:
        image = Image.open(io.BytesIO(encoded), formats=FORMATS)
    except UnidentifiedImageError:
        raise DataError(
            f"the content is {_kind(encoded)}", wanted=f"an image ({', '.join(FORMATS[:-1])})", where=where
        ) from None
    except Image.DecompressionBombError:
        raise _too_large("more pixels than Pillow opens", policy, where) from None
    except _DAMAGE as error:
        raise _damaged("image", error, where) from None
    width, height = image.size
    if width * height > policy.max_pixels:
        raise _too_large(f"{_size(image)} pixels", policy, where)
    if max(width, height) > policy.max_aspect * min(width, height):
        raise DataError(
            f"the header says {_size(image)} pixels",
            wanted=f"sides within {policy.max_aspect} to 1 (max_aspect)",
            where=where,
        )
    return image


def orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; an EXIF block that cannot be read counts as upright."""
    try:
        found = image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:
        # EXIF is written by many hands, and Pillow's parser raises almost anything on it.
        return 1
    return found if found in _UPRIGHT else 1


def pixels(decoded: Decoded) -> np.ndarray:
    """The image as uint8 (height, width, channels)."""
    array = np.asarray(decoded.image)
    return array[:, :, None] if array.ndim == 2 else array


def _turned(image: Image.Image) -> Image.Image:
    turn = _UPRIGHT.get(orientation(image))
    return image if turn is None else image.transpose(turn)


def _in_mode(image: Image.Image, mode: Mode, policy: DecodePolicy, where: str) -> Image.Image:
    if image.mode == mode:
        return image
    if image.mode.startswith("I"):
        return _from_16_bit(image).convert(mode)
    if image.mode == "F":
        raise DataError("pixels are floating-point numbers", wanted="whole numbers of 1, 8 or 16 bits", where=where)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        behind = Image.new("RGBA", layer.size, (*policy.background, 255))
        return Image.alpha_composite(behind, layer).convert(mode)
    return image.convert(mode)


def _from_16_bit(image: Image.Image) -> Image.Image:
    values = np.asarray(image).astype(np.int64).clip(0, 65_535)
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def _size(image: Image.Image) -> str:
    return f"{image.width:,} x {image.height:,}"


def _too_large(came: str, policy: DecodePolicy, where: str) -> DataError:
    return DataError(f"the header says {came}", wanted=f"at most {policy.max_pixels:,} (max_pixels)", where=where)


def _damaged(kind: str, error: BaseException, where: str) -> DataError:
    reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
    return DataError(f"the {kind} data is damaged or cut off ({reason})", where=where)


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
