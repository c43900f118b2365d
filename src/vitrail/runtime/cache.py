"""Where what can be computed again is kept, outside of every data folder."""

import hashlib
import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """A folder for one kind of file: below $VITRAIL_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("VITRAIL_CACHE"):
        return Path(chosen) / kind
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitrail" / kind


def cache_key(*parts: object) -> str:
    """A short file name for whatever `parts` describe."""
    record = hashlib.sha256()
    for part in parts:
        record.update(repr(part).encode("utf-8", "surrogateescape") + b"\0")
    return record.hexdigest()[:32]
