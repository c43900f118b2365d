"""What tells copies from other images: a hash of the pixels, and a short description of how the image looks.

The look of an image is a difference hash (dHash): the image is shrunk to 9 x 8 grey cells and each of the 64 bits says
whether a cell is brighter than its left neighbour. Re-encoding and resizing change few of them. A mirrored copy is
found by the hash of the mirrored image. A grey thumbnail and the mean tint confirm what the hash suggests.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from PIL import Image

THUMBNAIL = 16
# Smaller pictures, and those with less detail, look alike without being copies: drawn digits, skies, blank pages.
_SIDE = 32
_CONTRAST = 4.0
_EDGES = 8
_ROWS, _COLUMNS = 8, 9
# A multiple of both grids, so that the large image is walked through once.
_REDUCED = (144, 128)
# Grey levels by which a neighbour must be brighter: noise in an even sky or on white paper stays below.
_STEP = 1
# Byte j takes one bit of every row and column, so that no byte describes only the sky or only a margin.
_DIAGONALS = np.array([[8 * row + (row + byte) % 8 for row in range(8)] for byte in range(8)]).reshape(-1)


@dataclass(frozen=True)
class Look:
    """How an image looks at a glance."""

    bits: int
    mirrored: int
    """The bits of the mirrored image."""
    thumbnail: np.ndarray
    """Grey, uint8 (16, 16)."""
    tint: tuple[int, int]
    """Mean red and mean blue, each less mean green."""
    is_telling: bool
    """Whether there is enough structure for the look to mean something."""


def pixel_hash(image: Image.Image) -> bytes:
    """128 bits of SHA-256 over mode, size and pixels: equal if and only if the images are."""
    record = hashlib.sha256(f"{image.mode} {image.width} {image.height}\0".encode())
    record.update(image.tobytes())
    return record.digest()[:16]


def look_of(image: Image.Image) -> Look:
    """Describe an upright RGB image."""
    box = Image.Resampling.BOX
    reduced = image.resize(_REDUCED, box)
    # Sums by histogram are the same and take a tenth of the time.
    sums = np.array(reduced.histogram()).reshape(3, 256) @ np.arange(256)
    red, green, blue = (int(mean) for mean in (sums / (_REDUCED[0] * _REDUCED[1])).round())
    grey = reduced.convert("L")
    cells = np.asarray(grey.resize((_COLUMNS, _ROWS), box)).astype(np.int16)
    bits, mirrored = _bits(cells), _bits(cells[:, ::-1])
    thumbnail = np.asarray(grey.resize((THUMBNAIL, THUMBNAIL), box))
    return Look(
        bits=bits,
        mirrored=mirrored,
        thumbnail=thumbnail,
        tint=(red - green, blue - green),
        is_telling=is_large_enough(image)
        and bits.bit_count() + mirrored.bit_count() >= _EDGES
        and float(detail(thumbnail).std()) >= _CONTRAST,
    )


def is_large_enough(image: Image.Image) -> bool:
    """Whether there are pixels enough for the look of an image to mean something."""
    return min(image.size) >= _SIDE


def detail(thumbnails: np.ndarray) -> np.ndarray:
    """Thumbnails (..., 16, 16) less the plane that fits them best: what is left of an even sky is nothing."""
    along = np.arange(THUMBNAIL, dtype=np.float32) - (THUMBNAIL - 1) / 2
    values = thumbnails - thumbnails.mean(axis=(-2, -1), keepdims=True, dtype=np.float32)
    scale = THUMBNAIL * np.square(along).sum()
    for ramp in (along[None, :], along[:, None]):
        slope = (values * ramp).sum(axis=(-2, -1), keepdims=True) / scale
        values = values - slope * ramp
    return values


def difference_bits(thumbnails: np.ndarray) -> np.ndarray:
    """The difference hashes of thumbnails (n, 16, 16) of any numbers, as uint64 (n,)."""
    cells = np.einsum("yr,nrc,xc->nyx", _averages(_ROWS), thumbnails, _averages(_COLUMNS), optimize=True)
    brighter = (cells[:, :, 1:] > cells[:, :, :-1]).reshape(len(cells), -1)
    packed = np.packbits(brighter[:, _DIAGONALS], axis=1)
    return np.ascontiguousarray(packed).view("<u8").reshape(-1)


def _averages(cells: int) -> np.ndarray:
    """Weights (cells, 16) with which a row of 16 becomes a shorter one: by how much each old cell lies in a new one."""
    edges = np.linspace(0, THUMBNAIL, cells + 1)
    old = np.arange(THUMBNAIL)
    inside = np.minimum(edges[1:, None], old + 1) - np.maximum(edges[:-1, None], old)
    return (inside.clip(0) * cells / THUMBNAIL).astype(np.float32)


def _bits(cells: np.ndarray) -> int:
    brighter = (cells[:, 1:] - cells[:, :-1] > _STEP).reshape(-1)
    return int.from_bytes(np.packbits(brighter[_DIAGONALS]).tobytes(), "little")
