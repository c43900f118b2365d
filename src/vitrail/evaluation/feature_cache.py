"""Features on disk: what one command computed, the next one reads.

A file is found by what decides its content: the network and its weights, the images and their labels, and how they were
prepared. It says all of that itself, with the version that made it and a checksum; where something does not fit, the
features are computed again and a notice says why.
"""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitrail import __version__
from vitrail.config import to_json
from vitrail.data import Source
from vitrail.data.check.origin import UNKNOWN, identities
from vitrail.errors import DataError, DiskError, marked, notice
from vitrail.evaluation.features import extract_features
from vitrail.evaluation.subject import Subject
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.cache import cache_folder, cache_key
from vitrail.runtime.processes import ALONE, Processes
from vitrail.weights.safetensors_file import read_safetensors, write_safetensors

FORMAT = "vitrail-features/1"

Watch = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows how far some work has come; it is told what it is and how many images it has."""


@dataclass(frozen=True)
class Features:
    """The features of a source by a model."""

    source: Source
    values: np.ndarray
    """float32 (images, dim) in the order of the source; without rows in every process but the first."""
    is_cached: bool
    """Whether they were there already."""
    seconds: float
    """What it took to compute or to read them."""
    path: Path | None
    """The file that keeps them; none where it could not be written."""


def cached_features(
    subject: Subject,
    source: Source,
    *,
    batch_size: int,
    workers: int = 0,
    is_fresh: bool = False,
    watch: Watch,
    processes: Processes = ALONE,
) -> Features:
    """The features of every image, from the cache where they are there; `is_fresh` computes them all the same."""
    started = time.perf_counter()
    described: dict[str, Any] = {}
    stored: list[np.ndarray] = []

    def look() -> tuple[str, bool]:
        """The file, and whether it has them, are the business of one process."""
        images = identities(source)
        if (images == UNKNOWN).any():
            notice(
                f"{source.name}, {source.split}: nothing tells whether these images have changed since, so their "
                "features are computed now and not kept."
            )
            return "", False
        described.update(_describe(subject, source, images))
        path = cache_folder("features") / f"{cache_key(json.dumps(described, sort_keys=True))}.safetensors"
        stored.extend([] if is_fresh else _read(path, described, len(source)))
        return str(path), bool(stored)

    place, is_there = processes.first_says(look)
    if is_there:
        found = stored[0] if stored else np.empty((0, 0), np.float32)
        return Features(source, found, True, time.perf_counter() - started, Path(place))
    mine = len(range(processes.rank, len(source), processes.ranks))
    with watch(f"features of {source.name}, {source.split}", mine) as advance:
        values = extract_features(
            subject, source, batch_size=batch_size, workers=workers, advance=advance, processes=processes
        )
    if not processes.is_first:
        return Features(source, values[:0], False, time.perf_counter() - started, None)
    kept = bool(place) and _write(Path(place), described, values, source)
    return Features(source, values, False, time.perf_counter() - started, Path(place) if kept else None)


def _describe(subject: Subject, source: Source, images: np.ndarray) -> dict[str, Any]:
    """Everything that decides the features."""
    preparation = subject.preparation
    return {
        "model": subject.fingerprint,
        "data": source.digest(),
        "split": source.split,
        # Names and sizes are not enough: another folder may hold other images under them.
        "images": hashlib.sha256(images.tobytes()).hexdigest(),
        "preprocessing": to_json(preparation.preprocessing),
        "image_size": list(preparation.size),
        "channels": preparation.channels,
        "decoding": to_json(preparation.policy),
        "precision": "bfloat16" if subject.bfloat16 else "float32",
    }


def _read(path: Path, described: dict[str, Any], images: int) -> list[np.ndarray]:
    """The features of a file that is whole and ours, else none; a notice says what was wrong with it."""
    if not path.exists():
        return []
    try:
        tensors, metadata = read_safetensors(path)
        record = json.loads(metadata["record"])
        made_by = f"{record['format']} of vitrail {record['vitrail']}"
        if made_by != f"{FORMAT} of vitrail {__version__}":
            notice(f"{path} was made by another version ({made_by}), so the features are computed again.")
            return []
        values = tensors["features"].numpy()
        is_ours = record["of"] == described and record["checksum"] == _checksum(values) and len(values) == images
    except (DataError, KeyError, TypeError, ValueError):
        is_ours, values = False, np.empty((0, 0))
    if not is_ours:
        notice(f"{path} is damaged, so the features are computed again.")
        return []
    return [values]


def _write(path: Path, described: dict[str, Any], values: np.ndarray, source: Source) -> bool:
    """Keep the features; a disk that is full costs the next command time and this one nothing."""
    record = {
        "format": FORMAT,
        "vitrail": __version__,
        "of": described,
        "source": source.name,
        "split": source.split,
        "images": len(values),
        "dim": values.shape[1],
        "checksum": _checksum(values),
    }
    try:
        with atomic_file(path) as temporary:
            write_safetensors(temporary, {"features": torch.from_numpy(values)}, {"record": json.dumps(record)})
    except DiskError as error:
        notice(f"The features are not kept for the next time. {marked(error)}")
        return False
    return True


def _checksum(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()
