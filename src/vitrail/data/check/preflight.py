"""Is every file readable? The cheap part of a check, which training runs before its first step."""

from pathlib import Path

import numpy as np
import PIL

from vitrail.config.decoding import DecodePolicy
from vitrail.data.check.kept import load_rows, rows_of, store_rows
from vitrail.data.check.origin import UNKNOWN, identities, is_known_good
from vitrail.data.check.pool import Advance, over_images, pieces_of, worker_count
from vitrail.data.check.scan import checksum, reason
from vitrail.data.decoding.decode import decode, open_image
from vitrail.data.sources.files import Files
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.parts import without
from vitrail.data.sources.source import Encoded, Part, Source, whole_of
from vitrail.errors import DataError, notice, setting
from vitrail.runtime.cache import cache_folder, cache_key

_SHOWN = 3
_SHRINK = 8
_LEAVE_OUT = f"{setting('data.skip_bad', True)} leaves them out"
_AGAIN = "The files will be checked again next time"
FINE = np.dtype([("image", "u8"), ("content", "u4")])
"""An image that was read to its end: its identity, and the CRC-32 of its file, or 0."""


def preflight(
    source: Source,
    *,
    policy: DecodePolicy,
    workers: int | None = None,
    skip_bad: bool = False,
    fix: str = _LEAVE_OUT,
    progress: Advance | None = None,
) -> Source:
    """Read every file and stop at bad ones, or leave them out; what was fine and has not changed is not read again.

    `fix` says what a person can do about bad ones.
    """
    if is_known_good(source):
        return source
    cache = _cache(source, policy)
    images, known = identities(source), load_rows(cache, FINE)
    fresh = np.flatnonzero((images == UNKNOWN) | ~np.isin(images, known["image"]))
    if progress:
        progress(len(source) - len(fresh))
    bad: dict[int, str] = {}
    fine: list[np.ndarray] = [known]
    try:
        for piece, (failures, contents) in over_images(
            verify_images,
            [source],
            pieces_of(0, fresh),
            policy=policy,
            workers=worker_count(workers, len(fresh)),
            advance=progress,
        ):
            bad |= failures
            good = ~np.isin(piece.indices, list(failures))
            fine.append(fine_images(images[piece.indices[good]], contents[good]))
    finally:
        # Also when stopped half-way: what was read need not be read again.
        if len(fine) > 1:
            store_rows(cache, np.concatenate(fine), _AGAIN)
    _recall(source, rows_of(images, np.concatenate(fine)))
    if not bad:
        return source
    if not skip_bad:
        raise _error(source, bad, fix)
    notice(_skipped(source, bad))
    return without(source, sorted(bad), "they cannot be read (--skip-bad)")


def remember_fine(source: Source, policy: DecodePolicy, fine: np.ndarray) -> None:
    """Spare `preflight` the images (see `FINE`) that something else has read to their end."""
    cache = _cache(source, policy)
    store_rows(cache, np.concatenate([fine, load_rows(cache, FINE)]), _AGAIN)


def fine_images(images: np.ndarray, contents: np.ndarray) -> np.ndarray:
    """What is kept (`FINE`) of images that were read to their end."""
    fine = np.empty(len(images), FINE)
    fine["image"], fine["content"] = images, contents
    return fine


def _recall(source: Source, fine: np.ndarray) -> None:
    """Tell the files of a source what they held, so that one which is touched later is not taken for another."""
    whole, ids = whole_of(source), source.ids(np.arange(len(source)))
    if isinstance(whole, Joined):
        start = 0
        for part in whole.sources:
            mine = (ids >= start) & (ids < start + len(part))
            _recall(Part(part, ids[mine] - start, part.split), fine[mine])
            start += len(part)
    if isinstance(whole, Files):
        known = fine["image"] != UNKNOWN
        whole.recall(ids[known], fine["content"][known])


def verify(encoded: Encoded, *, where: str, policy: DecodePolicy) -> None:
    """Raise what decoding would raise, at less cost: a JPEG is read to its end but drawn at an eighth of its size."""
    if isinstance(encoded, bytes) and encoded.startswith(b"\xff\xd8"):
        image = open_image(encoded, where=where, policy=policy)
        if image.format == "JPEG":
            image.draft("L", (image.width // _SHRINK, image.height // _SHRINK))
            try:
                image.load()
            except Exception:
                # The reference has the last word, and says what is wrong.
                decode(encoded, where=where, policy=policy)
            return
    decode(encoded, where=where, policy=policy)


def verify_images(source: Source, policy: DecodePolicy, indices: np.ndarray) -> tuple[dict[int, str], np.ndarray]:
    """Why images cannot be used, by place, without the good ones; and the checksums of all that could be read."""
    failures, contents = {}, np.zeros(len(indices), np.uint32)
    for place, index in enumerate(map(int, indices)):
        try:
            encoded = source.read(index)
            contents[place] = checksum(encoded)
            verify(encoded, where=source.where(index), policy=policy)
        except Exception as error:
            # Whatever a file does to a decoder, it would do again in the middle of training.
            failures[index] = reason(error)
    return failures, contents


def _cache(source: Source, policy: DecodePolicy) -> Path:
    return cache_folder("checked") / f"{cache_key(2, source.name, policy, PIL.__version__)}.npy"


def _error(source: Source, bad: dict[int, str], fix: str) -> DataError:
    listed = [f"{source.where(index)}: {bad[index]}" for index in sorted(bad)[:_SHOWN]]
    more = f" (and {len(bad) - _SHOWN:,} more)" if len(bad) > _SHOWN else ""
    return DataError(
        f"{len(bad):,} of {len(source):,} images cannot be read: {'; '.join(listed)}{more}",
        where=f"{source.name}, {source.split}",
        fix=f"`vitrail data check {source.name}` lists them all; {fix}.",
    )


def _skipped(source: Source, bad: dict[int, str]) -> str:
    first = min(bad)
    more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
    return (
        f"{source.name}, {source.split}: {len(bad):,} of {len(source):,} images are left out because they cannot be "
        f"read: {source.where(first)} ({bad[first]}){more}."
    )
