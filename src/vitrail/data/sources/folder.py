"""Class folders: one sub-folder per class, either at the top or inside train/, val/ and test/."""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from vitrail.data.sources.files import Files, as_text, in_one_spelling, shown
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.splits import SPLITS, MissingSplit
from vitrail.errors import DataError, command, notice, setting

LAYOUT = "sub-folders named after the classes (cats/1.jpg, dogs/2.jpg), or train/, val/ and test/ with such sub-folders"

# What archives, desktops and notebooks leave behind; a folder of this kind is no class.
_LITTER_FOLDERS = {"__MACOSX", "__pycache__", "@eaDir", "lost+found", "$RECYCLE.BIN", "System Volume Information"}
_LITTER_FILES = {"thumbs.db", "desktop.ini"}
_IMAGE_ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".heic", ".avif"),
)
_IMAGE_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"II*\0", b"MM\0*")
_BMP_HEADER_SIZES = (12, 16, 40, 52, 56, 64, 108, 124)


def open_folder(root: Path, split: str = "train", *, allow_empty: bool = False) -> Files:
    """Open one split of a folder of class folders.

    Class numbers follow the sorted class names of the training split, and every split is mapped onto them by name: a
    class that training does not know is an error, never another class.
    """
    notes: list[str] = []
    homes = split_folders(root)
    folder = _split_folder(root, homes, split)
    if homes:
        notes += _unread(root, homes)
    found = _class_folders(folder, notes)
    if not found:
        learn = f"`{command('train', 'mae-folder', data=shown(str(root)))}` learns from images without classes."
        fix = learn if _has_images(folder) else ""
        raise DataError(_flat(folder), wanted=LAYOUT, where=shown(str(folder)), fix=fix)
    train = homes.get("train", folder)
    known = in_order(found if train == folder else _class_folders(train, []))
    strangers = [name for name in in_order(found) if name not in set(known)]
    if strangers:
        raise DataError(
            f"the class {strangers[0]!r} is not one of the {len(known)} known ones",
            wanted=f"classes among {_few(known)}",
            where=shown(str(folder)),
            fix="Rename the folder, or move it away.",
        )
    numbers = {name: number for number, name in enumerate(known)}
    paths: list[str] = []
    labels: list[int] = []
    ignored: list[str] = []
    for name in sorted(found, key=numbers.__getitem__):
        inside = sorted(_images(found[name], root, ignored, notes), key=lambda path: (in_one_spelling(path), path))
        if not inside and not allow_empty:
            raise DataError(
                f"the class {name!r} has no images",
                wanted="at least one",
                where=", ".join(shown(part) for part in found[name]),
                fix=f"Add some, remove the folder, or pass {setting('data.allow_empty', True)}.",
            )
        paths += inside
        labels += [numbers[name]] * len(inside)
    if ignored:
        rest = "" if len(ignored) == 1 else f" and {len(ignored) - 1:,} more files"
        notes.append(f"{shown(ignored[0])}{rest} ignored: no image by name or content.")
    for note in notes:
        notice(note)
    return Files(shown(str(root)), split, known, Labels.of(labels, len(known)), root, paths, tuple(notes))


def split_folders(root: Path) -> dict[str, Path]:
    """The folders of `root` that are splits by name; none when the classes are at the top.

    One folder called "test" among classes is a class: splits come with a training part or fill the folder. A folder
    called "train" among classes is a class when it holds images and no folders, and an error when it holds folders.
    """
    folders = folders_in(root)
    homes = {}
    for split, names in SPLITS.items():
        found = [folder for name in names for folder in folders if folder.name.lower() == name]
        # Of train/ and Train/, the plain one.
        exact = [folder for folder in found if folder.name in names]
        if found:
            homes[split] = (exact or found)[0]
    known = {name for names in SPLITS.values() for name in names}
    others = [folder for folder in folders if folder.name.lower() not in known]
    if "train" not in homes:
        return {} if others else homes
    classes = [folder for folder in others if has_images(folder)]
    if not classes:
        return homes
    if not folders_in(homes["train"]):
        return {} if has_images(homes["train"]) else homes
    if len(homes) == 1:
        train, beside = homes["train"].name, _few(tuple(folder.name for folder in classes))
        raise DataError(
            f"{shown(train)!r} holds folders and may be the training split, or a class beside {beside}",
            wanted="one reading",
            where=shown(str(root)),
            fix=f"Move {shown(train)}/ or the others to a folder of their own.",
        )
    return homes


def images_below(folder: Path, ignored: list[str], notes: list[str]) -> list[str]:
    """Every image in a folder and the folders in it, as paths relative to it, in order; other files go to `ignored`."""
    found = _images([str(folder)], folder, ignored, notes)
    return sorted((os.path.normpath(path) for path in found), key=lambda path: (in_one_spelling(path), path))


def folders_in(root: Path) -> list[Path]:
    """The folders of a folder in order, without what archives and desktops leave behind."""
    try:
        return [entry for entry in sorted(root.iterdir()) if entry.is_dir() and not _is_litter(entry.name)]
    except OSError as error:
        raise DataError(f"the folder could not be read ({error.strerror})", where=shown(str(root))) from None


def has_images(folder: Path) -> bool:
    """Whether an image lies in the folder itself, judged by names alone."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.lower().endswith(_IMAGE_ENDINGS) and entry.is_file() for entry in entries)
    except OSError:
        return False


def is_flat(root: Path) -> bool:
    """Whether images lie in the folder itself, or in its first split, beside no folder that could be a class."""
    if not root.is_dir():
        return False
    home = next(iter(split_folders(root).values()), root)
    return not _class_folders(home, []) and _has_images(home)


def _unread(root: Path, homes: dict[str, Path]) -> list[str]:
    unread = [f"{shown(folder.name)}/" for folder in folders_in(root) if folder not in homes.values()]
    used = ", ".join(f"{shown(folder.name)}/" for folder in homes.values())
    return [f"{shown(str(root))}: not read, beside {used}: {', '.join(unread)}."] if unread else []


def _split_folder(root: Path, homes: dict[str, Path], split: str) -> Path:
    if not homes and split == "train":
        return root
    if split in homes:
        return homes[split]
    there = f"it has {', '.join(homes)}" if homes else "its classes are at the top, so all of it is 'train'"
    part = next(iter(homes), "train")
    raise MissingSplit(
        f"there is no {split!r} part; {there}",
        where=shown(str(root)),
        fix=f"Take a part that is held out, such as '{part}[90%:]', or make the folder {split}/.",
    )


def _class_folders(folder: Path, notes: list[str]) -> dict[str, list[str]]:
    """Class names in NFC to the folders that carry them: a zip made on a Mac may bring one name in two spellings."""
    found: dict[str, list[str]] = defaultdict(list)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"the folder could not be read ({error.strerror})", where=shown(str(folder))) from None
    for entry in entries:
        kind = _kind(entry)
        if kind == "nothing":
            notes.append(f"{shown(entry.path)} was ignored: the link leads nowhere.")
        elif kind == "special":
            notes.append(_special(entry.path))
        elif kind == "folder" and _is_litter(entry.name):
            notes.append(f"{shown(entry.path)} was ignored: it is no class.")
        elif kind == "folder":
            found[unicodedata.normalize("NFC", as_text(entry.name))].append(entry.path)
    loose = [
        entry.path
        for entry in entries
        if Path(entry.name).suffix.lower() in _IMAGE_ENDINGS and _kind(entry) != "special"
    ]
    if found and loose:
        rest = f" and {len(loose) - 1:,} more" if len(loose) > 1 else ""
        notes.append(f"{shown(loose[0])}{rest} ignored: beside the class folders, so nothing says what it shows.")
    for name, parts in found.items():
        if len(parts) > 1:
            notes.append(f"the class {name!r} is in {len(parts)} folders spelled differently in Unicode; merged.")
    twins = defaultdict(list)
    for name in found:
        twins[name.casefold()].append(name)
    for names in twins.values():
        if len(names) > 1:
            notes.append(f"the classes {', '.join(map(repr, names))} differ only in capitals; they stay apart.")
    return dict(found)


def _images(folders: list[str], root: Path, ignored: list[str], notes: list[str]) -> Iterator[str]:
    """Every image below the folders of a class, as paths relative to `root`; links are followed, loops are not."""
    # A link to a folder above would make every other class a part of this one.
    home = Path(folders[0]).parent.resolve()
    visited = {_identity(above) for above in (home, *home.parents)}
    for folder in folders:
        start = os.path.relpath(folder, root)
        for entry in _walk(folder, visited, notes):
            if entry.name.startswith(".") or entry.name.lower() in _LITTER_FILES:
                continue
            if entry.name.lower().endswith(_IMAGE_ENDINGS) or _looks_like_an_image(entry.path):
                yield start + entry.path[len(folder) :]
            else:
                ignored.append(entry.path)


def _walk(top: str, visited: set[tuple[int, int]], notes: list[str]) -> Iterator[os.DirEntry[str]]:
    # A list of what is left, since functions that call themselves end at a thousand folders in each other.
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            identity = _identity(folder)
            entries = sorted(os.scandir(folder), key=lambda entry: (in_one_spelling(entry.name), entry.name))
        except OSError as error:
            raise DataError(f"the folder could not be read ({error.strerror})", where=shown(folder)) from None
        if identity in visited:
            notes.append(f"{shown(folder)} was ignored: the link leads back to a folder already read.")
            continue
        visited.add(identity)
        inner: list[str] = []
        for entry in entries:
            kind = _kind(entry)
            if kind == "folder" and _is_litter(entry.name):
                notes.append(f"{shown(entry.path)} was ignored: it is hidden, or no folder of images.")
            elif kind == "folder":
                inner.append(entry.path)
            elif kind == "special":
                notes.append(_special(entry.path))
            else:
                # A link that leads nowhere is listed, so that reading it says so.
                yield entry
        waiting += reversed(inner)


def _kind(entry: os.DirEntry[str]) -> Literal["folder", "file", "special", "nothing"]:
    """What an entry is or leads to; "special" is a pipe, a socket or a device, where reading may never end."""
    try:
        if entry.is_dir():
            return "folder"
        if entry.is_file():
            return "file"
        return "special" if Path(entry.path).exists() else "nothing"
    except OSError:
        return "nothing"


def _special(path: str) -> str:
    return f"{shown(path)} was ignored: it is a pipe, a socket or a device, and no file that can be read to its end."


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name in _LITTER_FOLDERS


def _identity(path: Path | str) -> tuple[int, int]:
    found = Path(path).stat()
    return found.st_dev, found.st_ino


def _looks_like_an_image(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            start = file.read(18)
    except OSError:
        return False
    # "BM" and "RIFF" alone begin many other files.
    if start.startswith(b"BM"):
        return int.from_bytes(start[14:], "little") in _BMP_HEADER_SIZES
    return start.startswith(_IMAGE_BEGINNINGS) or (start.startswith(b"RIFF") and start[8:12] == b"WEBP")


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted; folders that are all numbers are sorted as numbers, so that 2 comes before 100."""
    known = list(names)
    if all(name.isascii() and name.isdigit() for name in known):
        return tuple(sorted(known, key=_as_number))
    return tuple(sorted(known))


def _as_number(digits: str) -> tuple[int, str, str]:
    """The order of whole numbers without making them: Python refuses to read thousands of digits."""
    plain = digits.lstrip("0")
    return len(plain), plain, digits


def _has_images(folder: Path) -> bool:
    return any(path.suffix.lower() in _IMAGE_ENDINGS for path in folder.iterdir())


def _flat(folder: Path) -> str:
    if _has_images(folder):
        return "images lie in the folder itself, so nothing says what they show"
    return "there are no class folders"


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
