"""Decode every image once and keep a short record of each."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from vitrail.config.decoding import FORMATS, DecodePolicy
from vitrail.data.check.hashes import THUMBNAIL, is_large_enough, look_of, pixel_hash
from vitrail.data.check.origin import is_in_memory
from vitrail.data.check.pool import Advance, over_images, pieces_of, worker_count
from vitrail.data.decoding.decode import Decoded, decode, decode_opened, open_image
from vitrail.data.sources.source import Encoded, Source
from vitrail.errors import VitrailError, plain

FORMAT_NAMES = (*FORMATS, "pixels")
# A JPEG that is reduced while it is decoded keeps at least so many pixels: four for each that its look is taken from.
_GLANCE = (288, 256)
RECORD = np.dtype(
    [
        ("good", "?"),
        ("content", "u4"),
        ("format", "u1"),
        ("frames", "u4"),
        ("width", "u4"),
        ("height", "u4"),
        ("pixels", "u8", 2),
        ("bits", "u8"),
        ("mirrored", "u8"),
        ("telling", "?"),
        ("tint", "i2", 2),
        ("thumbnail", "u1", (THUMBNAIL, THUMBNAIL)),
    ]
)
"""About 300 bytes per image: 30 MB for 100,000 of them."""


@dataclass
class Scan:
    """What was seen of one source."""

    records: np.ndarray
    reasons: dict[int, str] = field(default_factory=dict)
    """Why an image cannot be used, by its place in the source."""


def scan(
    sources: Sequence[Source],
    *,
    policy: DecodePolicy,
    workers: int | None = None,
    looks: bool = True,
    glance: bool = False,
    threads: bool = False,
    advance: Advance | None = None,
) -> list[Scan]:
    """Decode everything; a file that cannot be decoded is a reason in the result, never an error.

    At a `glance` large JPEGs are reduced while they are decoded, which is enough to find copies. Workers are processes,
    which run the script again that has no main guard, or `threads`, of which many are no faster than two or three.
    """
    scans = [Scan(np.zeros(len(source), RECORD)) for source in sources]
    pieces = [piece for number, source in enumerate(sources) for piece in pieces_of(number, np.arange(len(source)))]
    # Pixels that are in memory would only be copied into every process.
    processes = 0 if all(map(is_in_memory, sources)) else worker_count(workers, sum(map(len, sources)))
    work = records_at_a_glance if glance else records_with_looks if looks else records_without_looks
    for piece, (records, reasons) in over_images(
        work, sources, pieces, policy=policy, workers=processes, threads=threads, advance=advance
    ):
        scans[piece.source].records[piece.indices] = records
        scans[piece.source].reasons |= reasons
    return scans


def records_with_looks(source: Source, policy: DecodePolicy, indices: np.ndarray) -> tuple[np.ndarray, dict[int, str]]:
    """Records of some images, with what finds copies that are not exact."""
    return _records(source, policy, indices, _whole, looks=lambda _: True)


def records_without_looks(
    source: Source, policy: DecodePolicy, indices: np.ndarray
) -> tuple[np.ndarray, dict[int, str]]:
    """Records of some images, for exact copies only."""
    return _records(source, policy, indices, _whole, looks=lambda _: False)


def records_at_a_glance(source: Source, policy: DecodePolicy, indices: np.ndarray) -> tuple[np.ndarray, dict[int, str]]:
    """Records of some images for finding copies; sizes and pixels are those of a JPEG as it was reduced."""
    return _records(source, policy, indices, _glance, looks=is_large_enough)


def reason(error: BaseException) -> str:
    """Why a file cannot be used, without its name."""
    if isinstance(error, VitrailError):
        return plain(f"{error.came}; wanted {error.wanted}" if error.wanted else error.came)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _records(
    source: Source,
    policy: DecodePolicy,
    indices: np.ndarray,
    see: Callable[[Encoded, str, DecodePolicy], Decoded],
    *,
    looks: Callable[[Image.Image], bool],
) -> tuple[np.ndarray, dict[int, str]]:
    records = np.zeros(len(indices), RECORD)
    reasons: dict[int, str] = {}
    for record, index in zip(records, map(int, indices), strict=True):
        try:
            encoded = source.read(index)
            record["content"] = checksum(encoded)
            decoded = see(encoded, source.where(index), policy)
            _fill(record, decoded, looks(decoded.image))
        except Exception as error:
            # A file that makes a decoder fail in an unforeseen way would stop training too, so it is listed.
            reasons[index] = reason(error)
    return records, reasons


def checksum(encoded: Encoded) -> int:
    """The CRC-32 of a file, which tells whether it still is what was read; 0 of pixels that are no file."""
    return zlib.crc32(encoded) if isinstance(encoded, bytes) else 0


def _whole(encoded: Encoded, where: str, policy: DecodePolicy) -> Decoded:
    return decode(encoded, where=where, policy=policy)


def _glance(encoded: Encoded, where: str, policy: DecodePolicy) -> Decoded:
    if isinstance(encoded, bytes) and encoded.startswith(b"\xff\xd8"):
        image = open_image(encoded, where=where, policy=policy)
        if image.format == "JPEG":
            image.draft("RGB", _GLANCE)
            return decode_opened(image, where=where, policy=policy)
    return decode(encoded, where=where, policy=policy)


def _fill(record: np.void, decoded: Decoded, looks: bool) -> None:
    image = decoded.image
    record["format"] = FORMAT_NAMES.index(decoded.format)
    record["frames"] = decoded.frames
    record["width"], record["height"] = image.size
    record["pixels"] = np.frombuffer(pixel_hash(image), np.uint64)
    if looks:
        look = look_of(image)
        record["bits"], record["mirrored"] = look.bits, look.mirrored
        record["telling"], record["tint"], record["thumbnail"] = look.is_telling, look.tint, look.thumbnail
    record["good"] = True
