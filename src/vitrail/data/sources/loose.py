"""Images without labels: files and folders as a person names them."""

import os
from collections.abc import Sequence
from pathlib import Path

from vitrail.data.sources.files import Files, shown, user_path
from vitrail.data.sources.folder import images_below, split_folders
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.splits import missing_split
from vitrail.errors import DataError, UsageError, notice


def open_images(names: Sequence[str | Path]) -> Files:
    """Files in the order given, and for a folder every image below it; nothing says what they show."""
    paths: list[str] = []
    for name in names:
        path = user_path(name)
        if path.is_dir():
            paths += [os.path.abspath(found) for found in images_in(path)]  # noqa: PTH100
        elif path.exists() or path.is_symlink():
            paths.append(os.path.abspath(path))  # noqa: PTH100 - a link keeps its name
        else:
            raise DataError(
                "there is no such file or folder", wanted="an image, or a folder of images", where=shown(str(name))
            )
    label = shown(str(names[0])) if len(names) == 1 else f"{len(paths):,} images"
    return Files(label, "images", ("image",), Labels.of([0] * len(paths), 1), Path("/"), paths)


def open_unlabelled(root: Path, split: str) -> Files:
    """Every image below a folder, or below its train/, val/ or test/ where it has them; nothing says what they show."""
    homes = split_folders(root) or {"train": root}
    if split not in homes:
        raise missing_split(split, homes, shown(str(root)))
    found, notes = _images_in(homes[split])
    paths = [str(path.relative_to(root)) for path in found]
    for note in notes:
        notice(note)
    return Files(shown(str(root)), split, ("image",), Labels.of([0] * len(paths), 1), root, paths, notes)


def ensure_not_beside(names: Sequence[str | Path], target: Path) -> None:
    """Refuse to write into a folder of images, or right beside an image."""
    place = target.expanduser().resolve()
    # What would be made: the first of the folders above that is not there yet.
    made = next((above for above in (*reversed(place.parents), place) if not above.exists()), place)
    for name in names:
        path = user_path(name)
        home = path.resolve() if path.is_dir() else path.resolve().parent
        if place.is_relative_to(home) if path.is_dir() else made.parent == home:
            raise UsageError(
                f"it would lie beside your images in {shown(str(home))}",
                where=shown(str(target)),
                fix="Choose another place: data is never touched.",
            )


def images_in(folder: Path) -> list[Path]:
    """Every image below a folder, at least one; what is ignored there is told."""
    found, notes = _images_in(folder)
    for note in notes:
        notice(note)
    return found


def _images_in(folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Every image below a folder, and what to tell about the rest."""
    ignored: list[str] = []
    notes: list[str] = []
    found = images_below(folder, ignored, notes)
    if not found:
        raise DataError("there is no image in this folder", wanted="at least one", where=shown(str(folder)))
    rest = "" if len(ignored) == 1 else f" and {len(ignored) - 1:,} more files"
    if ignored:
        notes.append(f"{shown(ignored[0])}{rest} ignored: no image by name or content.")
    return [folder / path for path in found], tuple(notes)
