"""Open every split that a data set has, forgiving what a check should rather tell."""

import warnings
from dataclasses import replace
from pathlib import Path

from vitrail.data.open import OpenOptions, open_data
from vitrail.data.sources.folder import open_folder, split_folders
from vitrail.data.sources.source import Source
from vitrail.data.sources.splits import SPLITS, MissingSplit
from vitrail.errors import DataError, Notice


def open_splits(data: str | Path, split: str = "all", *, options: OpenOptions | None = None) -> dict[str, Source]:
    """The splits by name: the one asked for, or for "all" those of train, val and test that are there.

    What a source says on the way stays in its notes, and an empty class is no error here.
    """
    options = replace(options or OpenOptions(), allow_empty=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        if split != "all":
            return {split: open_data(data, split, options=options)}
        return _open_all(data, options)


def _open_all(data: str | Path, options: OpenOptions) -> dict[str, Source]:
    found: dict[str, Source] = {}
    missing: list[DataError] = []
    for split in SPLITS:
        try:
            found[split] = _open_alone(data, split, options)
        except MissingSplit as error:
            missing.append(error)
    if not found:
        raise missing[0]
    return found


def _open_alone(data: str | Path, split: str, options: OpenOptions) -> Source:
    """Open a split; one with classes that training does not know is opened by itself, so that they can be listed."""
    try:
        return open_data(data, split, options=options)
    except DataError:
        root = Path(data).expanduser()
        if split == "train" or not root.is_dir() or split not in split_folders(root):
            raise
    source = open_folder(split_folders(root)[split], allow_empty=True)
    source.split = split
    return source
