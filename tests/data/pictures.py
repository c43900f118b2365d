"""Pictures for tests, and files that Pillow reads and does not write."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

TURNED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""How an upright image lies in a file of each EXIF orientation."""


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def photo(height: int = 24, width: int = 36) -> np.ndarray:
    """Three different gradients, so that every turn and every swap of channels shows."""
    rows, columns = np.mgrid[:height, :width]
    red, green = 255 * columns / (width - 1), 255 * rows / (height - 1)
    return np.stack([red, green, 0.5 * red + 0.2 * green], axis=-1).astype(np.uint8)


def png(width: int, height: int, depth: int, colour_type: int, compressed: bytes, key: bytes | None = None) -> bytes:
    """A PNG of rows that are compressed already; `key` is the colour that counts as transparent."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0))]
    chunks += [] if key is None else [(b"tRNS", key)]
    chunks += [(b"IDAT", compressed), (b"IEND", b"")]
    packed = [struct.pack(">I", len(body)) + name + body + _checksum(name + body) for name, body in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def bomb(side: int) -> bytes:
    """A small 1-bit PNG that decodes to side x side zeros."""
    packer = zlib.compressobj(1)
    rows = bytes(1 + -(-side // 8)) * 100
    return png(side, side, 1, 0, b"".join(packer.compress(rows) for _ in range(side // 100)) + packer.flush())


def tiff(
    row: bytes,
    *,
    width: int,
    bits: int,
    photometric: int = 1,
    samples: int = 1,
    extra: int | None = None,
    sample_format: int = 1,
) -> bytes:
    """A little-endian TIFF of one row with one or two samples per pixel."""
    values = {256: width, 257: 1, 258: bits, 259: 1, 262: photometric, 277: samples, 278: 1, 279: len(row)}
    values |= {339: sample_format} if sample_format != 1 else {}
    values |= {338: extra} if extra is not None else {}
    if samples == 2:
        values[258] = bits | bits << 16
    values[273] = 8 + 2 + 12 * (len(values) + 1) + 4
    tags = b"".join(
        struct.pack("<HHII", tag, 3, samples if tag == 258 else 1, value) for tag, value in sorted(values.items())
    )
    return struct.pack("<2sHIH", b"II", 42, 8, len(values)) + tags + struct.pack("<I", 0) + row


def _checksum(body: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(body))
