"""Data is never touched: what is written lies outside it."""

import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from vitrail.data.check.origin import holders
from vitrail.data.open import OpenOptions, open_data
from vitrail.data.sources.arrow_rows import ArrowRows
from vitrail.data.sources.files import Files, shown, user_path
from vitrail.data.sources.folder import folders_in, has_images, split_folders
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.named_rows import NAMED
from vitrail.data.sources.source import Source, whole_of
from vitrail.data.sources.splits import SPLITS
from vitrail.data.vtab.open import data_root
from vitrail.errors import DataError, Notice, UsageError, VitrailError


def ensure_outside(sources: Iterable[Source], target: Path) -> None:
    """Refuse to write where data lies: in a folder of class folders, of shards, of Parquet files, of images.

    The folder of a table is the user's, and so is the root of known data sets: one may write beside them, but not into
    the folders of their images.
    """
    for source in sources:
        for home in sorted(set(_homes(source))):
            _ensure_not_in(home, target)


def ensure_outside_named(data: str, root: str | None, target: Path) -> None:
    """The same for data by its name, as a run or a model remembers it; what has gone cannot be written into."""
    try:
        path = user_path(data)
    except DataError:
        return
    if path.is_dir():
        _ensure_not_in(path.resolve(), target)
        return
    # What comes from a hub lies in a cache, and looking for it would go to the network.
    if "://" in data or (data.startswith("hf:") and not user_path(data.removeprefix("hf:")).exists()):
        return
    kind, _, task = data.partition(":")
    if kind == "vtab" and "=" in task:
        ensure_outside_named(task.partition("=")[2], root, target)
        return
    given = None if root is None else user_path(root)
    home = data_root(given)
    if data in NAMED and NAMED[data].folder:
        _ensure_not_in((home / NAMED[data].folder).resolve(), target)
    if (kind == "vtab" or data in NAMED) and not _is_in(target, home):
        # All its files are there, and reading them takes its time.
        return
    options = OpenOptions(root=given, allow_empty=True)
    with warnings.catch_warnings():
        # What is odd about the images was told when they were used.
        warnings.simplefilter("ignore", Notice)
        for split in SPLITS:
            try:
                source = open_data(data, split, options=options)
            except VitrailError:
                continue
            ensure_outside([source], target)


def ensure_apart(target: Path, own: str, *, asked: bool = False) -> None:
    """Refuse to make a folder of pictures among images, where it would be taken for more of them, or for a class.

    The folder that it would be made in may neither hold images nor be one of class folders or splits. Folders with a
    file called `own` are such folders of pictures themselves. A place that a user `asked` for is only refused in data,
    among class folders or splits, or in one of them: an image that lies in a working folder does not make it data.
    """
    place = target.expanduser().resolve()
    made = next((above for above in (*reversed(place.parents), place) if not above.exists()), place)
    home = made.parent
    if _is_tree(home, own) or (_is_class_of_tree(home, own) if asked else has_images(home)):
        raise UsageError(
            f"it would lie among the images in {shown(str(home))}",
            where=shown(str(target)),
            fix="Choose a place outside: data is never touched.",
        )


def _is_class_of_tree(folder: Path, own: str) -> bool:
    """Whether a folder has images and no folders, and all beside it have images, too."""
    return has_images(folder) and not folders_in(folder) and _is_tree(folder.parent, own)


def _is_tree(folder: Path, own: str) -> bool:
    """Whether images lie in every folder of a folder as in class folders, or in splits."""
    try:
        inner = [one for one in folders_in(folder) if not (one / own).is_file() and any(one.iterdir())]
        homes = split_folders(folder)
    except DataError:
        # Classes and splits that cannot be told apart are images, too.
        return folder.is_dir() and os.access(folder, os.R_OK)
    except OSError:
        return False
    if any(_is_class(one) for home in homes.values() for one in folders_in(home)):
        return True
    return len(inner) > 1 and all(map(_is_class, inner))


def _is_class(folder: Path) -> bool:
    return has_images(folder) or any(map(has_images, folders_in(folder)))


def _is_in(target: Path, home: Path) -> bool:
    return target.expanduser().resolve().is_relative_to(home.resolve())


def _ensure_not_in(home: Path, target: Path) -> None:
    if _is_in(target, home):
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
