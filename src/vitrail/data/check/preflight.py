"""Is every file readable? The cheap part of a check, which training runs before its first step."""

import warnings
from pathlib import Path

import numpy as np
import PIL

from vitrail.config.decoding import DecodePolicy
from vitrail.data.check.origin import UNKNOWN, identities, is_known_good
from vitrail.data.check.pool import Advance, over_images, pieces_of, worker_count
from vitrail.data.check.scan import reason
from vitrail.data.decoding.decode import decode, open_image
from vitrail.data.sources.parts import without
from vitrail.data.sources.source import Encoded, Source
from vitrail.errors import DataError, DiskError, notice
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.cache import cache_folder, cache_key

_SHOWN = 3
_SHRINK = 8


def preflight(
    source: Source,
    *,
    policy: DecodePolicy,
    workers: int | None = None,
    skip_bad: bool = False,
    fix: str = "--skip-bad leaves them out",
    progress: Advance | None = None,
) -> Source:
    """Read every file and stop at bad ones, or leave them out; what was fine and has not changed is not read again.

    `fix` says what a person can do about bad ones.
    """
    if is_known_good(source):
        return source
    cache = _cache(source, policy)
    images, known = identities(source), _load(cache)
    fresh = np.flatnonzero((images == UNKNOWN) | ~np.isin(images, known))
    if progress:
        progress(len(source) - len(fresh))
    bad: dict[int, str] = {}
    fine: list[np.ndarray] = [known]
    try:
        for piece, failures in over_images(
            verify_images,
            [source],
            pieces_of(0, fresh),
            policy=policy,
            workers=worker_count(workers, len(fresh)),
            advance=progress,
        ):
            bad |= failures
            fine.append(images[np.setdiff1d(piece.indices, list(failures))])
    finally:
        # Also when stopped half-way: what was read need not be read again.
        if len(fine) > 1:
            _store(cache, np.concatenate(fine))
    if not bad:
        return source
    if not skip_bad:
        raise _error(source, bad, fix)
    notice(_skipped(source, bad))
    return without(source, sorted(bad), "they cannot be read (--skip-bad)")


def remember_fine(source: Source, policy: DecodePolicy, images: np.ndarray) -> None:
    """Spare `preflight` the images, by identity, that something else has read to their end."""
    cache = _cache(source, policy)
    _store(cache, np.concatenate([_load(cache), images]))


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


def verify_images(source: Source, policy: DecodePolicy, indices: np.ndarray) -> dict[int, str]:
    """Why images cannot be used, by place; the good ones are left out."""
    failures = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for index in map(int, indices):
            try:
                verify(source.read(index), where=source.where(index), policy=policy)
            except Exception as error:
                # Whatever a file does to a decoder, it would do again in the middle of training.
                failures[index] = reason(error)
    return failures


def _cache(source: Source, policy: DecodePolicy) -> Path:
    return cache_folder("checked") / f"{cache_key(1, source.name, policy, PIL.__version__)}.npy"


def _load(cache: Path) -> np.ndarray:
    """Images that were fine; a file that is missing or damaged only means that they are read again."""
    try:
        known = np.load(cache, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return np.empty(0, np.uint64)
    return known if known.dtype == np.uint64 and known.ndim == 1 else np.empty(0, np.uint64)


def _store(cache: Path, known: np.ndarray) -> None:
    try:
        with atomic_file(cache) as temporary:
            np.save(temporary, np.setdiff1d(known, [UNKNOWN]), allow_pickle=False)
    except DiskError as error:
        notice(f"The files will be checked again next time: {error}")


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
