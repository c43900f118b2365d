"""Data is never touched: what is written lies outside it."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from vitrail.data.check.origin import holders
from vitrail.data.sources.arrow_rows import ArrowRows
from vitrail.data.sources.files import Files, shown
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.source import Source, whole_of
from vitrail.errors import UsageError


def ensure_outside(sources: Iterable[Source], target: Path) -> None:
    """Refuse to write where data lies: in a folder of class folders, of shards, of Parquet files, of images.

    The folder of a table is the user's, and so is the root of known data sets: one may write beside them, but not into
    the folders of their images.
    """
    place = target.expanduser().resolve()
    for source in sources:
        for home in sorted(set(_homes(source))):
            if place.is_relative_to(home):
                raise UsageError(
                    f"it would lie inside the data, {shown(str(home))}",
                    where=str(target),
                    fix="Choose a place outside: data is never touched.",
                )


def _homes(source: Source) -> Iterator[Path]:
    whole = whole_of(source)
    if isinstance(whole, Joined):
        for part in whole.sources:
            yield from _homes(part)
    elif isinstance(whole, Files):
        yield from _homes_of_files(whole)
    elif isinstance(whole, ArrowRows):
        # What comes from the hub lies in a cache.
        home = Path(whole.name).expanduser().resolve()
        yield from [] if whole.name.startswith("hf:") else [home if home.is_dir() else home.parent]
    else:
        yield from {path.parent.resolve() for path in holders(whole)}


def _homes_of_files(files: Files) -> Iterator[Path]:
    root = Path(files._root).resolve()
    if files.name == shown(files._root):
        yield root
    # Many images share few folders.
    for folder in {os.path.dirname(path) for path in files.paths}:  # noqa: PTH120
        home = (root / folder).resolve()
        if not home.is_relative_to(root):
            yield home
        elif home != root:
            yield root / home.relative_to(root).parts[0]
