"""Data sets by name: `digits` is embedded, others are read by torchvision or as class folders."""

import difflib
import os
from pathlib import Path

from vitrail.data.sources.files import shown, user_path
from vitrail.data.sources.named_readers import READERS
from vitrail.data.sources.named_rows import NAMED, NamedSet
from vitrail.data.sources.source import Source
from vitrail.data.sources.splits import canonical_split, missing_split
from vitrail.errors import DataError, choose, notice
from vitrail.runtime.cache import cache_folder

__all__ = ["NAMED", "NamedSet", "open_named"]

_TAKES = "a folder of class folders, a .csv, a .parquet, hf:owner/name, wds:path/*.tar"


def open_named(name: str, split: str = "train", *, root: Path | None = None, download: bool = False) -> Source:
    """Open one split, or "train+val", of a data set below `root`: else $VITRAIL_DATA, else the cache."""
    row = _row(name)
    splits = [canonical_split(part) for part in split.split("+")]
    joins = splits == ["train", "val"] and row.kind in ("files", "unsplit")
    if not set(splits) <= set(row.images) or (len(splits) > 1 and not joins):
        raise missing_split("+".join(splits), row.images, name)
    place = root or Path(os.environ.get("VITRAIL_DATA") or cache_folder("datasets"))
    source = READERS[row.kind](row, splits, user_path(place), download)
    whole = sum(row.images[part] for part in splits)
    if len(source) != whole:
        note = f"{name}, {source.split}: {len(source):,} images are here, of {whole:,} in {row.name}."
        notice(note)
        source.notes = (*source.notes, note)
    return source


def _row(name: str) -> NamedSet:
    if name in NAMED:
        return NAMED[name]
    near = difflib.get_close_matches(name.lower(), NAMED, n=1)
    if not near or any(mark in name for mark in "/\\."):
        wanted = f"{_TAKES}, or a name that `vitrail list datasets` shows"
        raise DataError("there is no such folder or file", wanted=wanted, where=shown(name[:200]))
    return NAMED[choose("data set", name, NAMED)]
