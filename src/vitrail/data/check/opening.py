"""Open every split that a data set has: as training does, or forgiving what a check should rather tell."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from vitrail.data.open import OpenOptions, open_data
from vitrail.data.sources.files import user_path
from vitrail.data.sources.folder import open_folder, split_folders
from vitrail.data.sources.source import Source
from vitrail.data.sources.splits import SPLITS, MissingSplit, canonical_split
from vitrail.errors import DataError, Notice


class _Opener(Protocol):
    def __call__(self, data: str | Path, split: str, *, options: OpenOptions) -> Source: ...


def open_splits(data: str | Path, split: str = "all", *, options: OpenOptions | None = None) -> dict[str, Source]:
    """The splits by name: the one asked for, or for "all" those of train, val and test that are there.

    What a source says on the way stays in its notes, and an empty class is no error here. A split with classes that
    training does not know is numbered by itself, so what is opened here is for looking at, never for labels.
    """
    options = replace(options or OpenOptions(), allow_empty=True)
    return _opened(data, split, options, _open_alone if split == "all" else open_data)


def open_splits_strictly(
    data: str | Path, split: str = "all", *, options: OpenOptions | None = None
) -> dict[str, Source]:
    """The same splits as training opens them: an unknown class is an error, and so is an empty one if not allowed."""
    found = _opened(data, split, options or OpenOptions(), open_data)
    return {canonical_split(name): source for name, source in found.items()}


def _opened(data: str | Path, split: str, options: OpenOptions, opener: _Opener) -> dict[str, Source]:
    found: dict[str, Source] = {}
    missing: list[MissingSplit] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        if split != "all":
            return {split: opener(data, split, options=options)}
        for name in SPLITS:
            try:
                found[name] = opener(data, name, options=options)
            except MissingSplit as error:
                missing.append(error)
    if not found:
        raise missing[0]
    return found


def _open_alone(data: str | Path, split: str, *, options: OpenOptions) -> Source:
    """Open a split; one with classes that training does not know is opened by itself, so that they can be listed."""
    try:
        return open_data(data, split, options=options)
    except DataError:
        root = user_path(data)
        if not options.labelled or split == "train" or not root.is_dir() or split not in split_folders(root):
            raise
    source = open_folder(split_folders(root)[split], allow_empty=True)
    source.split = split
    return source
