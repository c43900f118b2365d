"""Decode every image once and keep a short record of each."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vitrail.config.decoding import FORMATS, DecodePolicy
from vitrail.data.check.hashes import THUMBNAIL, look_of, pixel_hash
from vitrail.data.check.origin import is_in_memory
from vitrail.data.check.pool import Advance, over_images, pieces_of, worker_count
from vitrail.data.decoding.decode import decode
from vitrail.data.sources.source import Source
from vitrail.errors import VitrailError

FORMAT_NAMES = (*FORMATS, "pixels")
RECORD = np.dtype(
    [
        ("good", "?"),
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
    advance: Advance | None = None,
) -> list[Scan]:
    """Decode everything; a file that cannot be decoded is a reason in the result, never an error."""
    scans = [Scan(np.zeros(len(source), RECORD)) for source in sources]
    pieces = [piece for number, source in enumerate(sources) for piece in pieces_of(number, np.arange(len(source)))]
    # Pixels that are in memory would only be copied into every process.
    processes = 0 if all(map(is_in_memory, sources)) else worker_count(workers, sum(map(len, sources)))
    work = records_with_looks if looks else records_without_looks
    for piece, (records, reasons) in over_images(
        work, sources, pieces, policy=policy, workers=processes, advance=advance
    ):
        scans[piece.source].records[piece.indices] = records
        scans[piece.source].reasons |= reasons
    return scans


def records_with_looks(source: Source, policy: DecodePolicy, indices: np.ndarray) -> tuple[np.ndarray, dict[int, str]]:
    """Records of some images, with what finds copies that are not exact."""
    return _records(source, policy, indices, looks=True)


def records_without_looks(
    source: Source, policy: DecodePolicy, indices: np.ndarray
) -> tuple[np.ndarray, dict[int, str]]:
    """Records of some images, for exact copies only."""
    return _records(source, policy, indices, looks=False)


def reason(error: BaseException) -> str:
    """Why a file cannot be used, without its name."""
    if isinstance(error, VitrailError):
        return f"{error.came}; wanted {error.wanted}" if error.wanted else error.came
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _records(
    source: Source, policy: DecodePolicy, indices: np.ndarray, *, looks: bool
) -> tuple[np.ndarray, dict[int, str]]:
    records = np.zeros(len(indices), RECORD)
    reasons: dict[int, str] = {}
    with warnings.catch_warnings():
        # Pillow warns about oddities of files that it reads all the same.
        warnings.simplefilter("ignore")
        for record, index in zip(records, map(int, indices), strict=True):
            try:
                _fill(record, source, index, policy, looks)
            except Exception as error:
                # A file that makes a decoder fail in an unforeseen way would stop training too, so it is listed.
                reasons[index] = reason(error)
    return records, reasons


def _fill(record: np.void, source: Source, index: int, policy: DecodePolicy, looks: bool) -> None:
    decoded = decode(source.read(index), where=source.where(index), policy=policy)
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
