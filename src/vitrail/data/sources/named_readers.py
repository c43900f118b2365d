"""torchvision finds the files, the class names and the official splits; the pixels come through our own decoding."""

import errno
import os
import sys
import unicodedata
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.data.sources.digits import open_digits
from vitrail.data.sources.files import Files, in_one_spelling, shown
from vitrail.data.sources.folder import open_folder, split_folders
from vitrail.data.sources.hdf5 import Hdf5Images, open_hdf5, require_h5py
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.named_rows import NamedSet
from vitrail.data.sources.parts import spread_order
from vitrail.data.sources.source import Arrays, Part, Source
from vitrail.errors import DataError, DiskError, VitrailError, notice, setting

_SYNSETS = "LOC_synset_mapping.txt"


def read_embedded(row: NamedSet, splits: list[str], root: Path, download: bool) -> Source:
    """The digits of scikit-learn, which need no files."""
    return open_digits(splits[0])


def read_arrays(row: NamedSet, splits: list[str], root: Path, download: bool) -> Source:
    """A small set that torchvision holds in memory; its pixels are turned to (images, height, width, 3)."""
    reader = _reader(row, root, download, splits[0])
    pixels = np.asarray(reader.data)
    if pixels.ndim == 4 and pixels.shape[1] == 3:
        pixels = pixels.transpose(0, 2, 3, 1)
    numbers = reader.targets if hasattr(reader, "targets") else reader.labels
    classes = _classes(row, reader, root)
    labels = _labels(row, np.asarray(numbers), len(classes), root)
    if len(labels) != len(pixels):
        raise DataError(f"{len(pixels)} images and {len(labels)} labels", wanted="as many", where=_home(row, root))
    return Arrays(row.key, splits[0], classes, labels, np.ascontiguousarray(pixels))


def read_files(row: NamedSet, splits: list[str], root: Path, download: bool) -> Source:
    """Files in the splits that the authors list; several splits follow each other."""
    readers = [_reader(row, root, download, split, **({} if row.lists else {"loader": str})) for split in splits]
    samples = [sample for reader in readers for sample in _samples(row, reader)]
    classes = _classes(row, readers[0], root)
    if any(_classes(row, reader, root) != classes for reader in readers[1:]):
        raise DataError(f"the classes differ between {' and '.join(splits)}", where=_home(row, root))
    return _files(row, "+".join(splits), classes, samples, root)


def read_unsplit(row: NamedSet, splits: list[str], root: Path, download: bool) -> Source:
    """Files that come without an official split: a share of an order in which every class is spread evenly."""
    reader = _reader(row, root, download, None, **({} if row.reader == "Caltech101" else {"loader": str}))
    samples = _caltech(reader) if row.reader == "Caltech101" else _samples(row, reader)
    whole = _files(row, "all", _classes(row, reader, root), sorted(samples, key=_in_order), root)
    order = spread_order(whole)
    cuts = {split: [round(end * len(whole) / 100) for end in row.shares[split]] for split in splits}
    chosen = np.sort(np.concatenate([order[start:stop] for start, stop in cuts.values()]))
    shares = ", ".join(f"{stop - start} % {split}" for split, (start, stop) in row.shares.items())
    note = f"{row.name} has no official split; this is our own: {shares}, every class in proportion."
    notice(note)
    return Part(whole, chosen, "+".join(splits), notes=(note,))


def read_hdf5(row: NamedSet, splits: list[str], root: Path, download: bool) -> Source:
    """PatchCamelyon: two HDF5 files a split, with the pixels in x and the labels in y."""
    require_h5py()
    (split,) = splits
    _reader(row, root, download, split)
    stem = f"camelyonpatch_level_2_split_{'valid' if split == 'val' else split}"
    folder = root / row.folder
    with open_hdf5(folder / f"{stem}_y.h5") as file:
        numbers = np.asarray(file["y"]).reshape(-1)
    classes = row.class_names or ()
    labels = _labels(row, numbers, len(classes), root)
    return Hdf5Images(row.key, split, classes, labels, folder / f"{stem}_x.h5", "x")


def read_folders(row: NamedSet, splits: list[str], root: Path, download: bool) -> Source:
    """ImageNet as class folders, in imagenet/ below the root or in the root itself; nothing is unpickled."""
    home = next((place for place in (root / row.folder, root) if place.is_dir() and split_folders(place)), None)
    if home is None or splits[0] not in split_folders(home):
        raise _absent(row, root, splits[0])
    source = open_folder(home, splits[0])
    _check_count(row, len(source.classes), str(home))
    source.name = row.key
    if (home / _SYNSETS).is_file():
        source.classes = _synset_names(home / _SYNSETS, source.classes)
    return source


READERS = {
    "embedded": read_embedded,
    "arrays": read_arrays,
    "files": read_files,
    "unsplit": read_unsplit,
    "hdf5": read_hdf5,
    "folders": read_folders,
}


def _reader(row: NamedSet, root: Path, download: bool, split: str | None, **arguments: Any) -> Any:
    """torchvision's reader of one split; it fetches what is not there only when asked to."""
    from torchvision import datasets

    download = download and row.can_download
    # Looked for here, since some readers make the folder that they do not find.
    if not download and not Path(_home(row, root, split)).exists():
        raise _absent(row, root, split)
    if split is not None:
        arguments[row.argument] = row.words.get(split, split)
    try:
        # Progress and remarks are for people, and standard output may be for programs.
        with redirect_stdout(sys.stderr):
            return getattr(datasets, row.reader)(str(root), download=download, **arguments)
    except Exception as error:
        # torchvision raises almost anything when files are missing, damaged or not to be had.
        raise _failed(row, root, split, download, error) from error


def _samples(row: NamedSet, reader: Any) -> list[tuple[str, int]]:
    if not row.lists:
        # With `str` as its loader, a reader gives paths instead of pixels.
        return [reader[index] for index in range(len(reader))]
    try:
        lists: list[Any] = [getattr(reader, name) for name in row.lists]
    except AttributeError:
        import torchvision

        raise DataError(
            f"torchvision {torchvision.__version__} no longer says which files {row.name} has",
            fix="Install an earlier release of torchvision, or open the files as a CSV of paths and labels.",
        ) from None
    pairs = lists[0] if len(lists) == 1 else zip(*lists, strict=True)
    return [(str(path), int(number)) for path, number in pairs]


def _in_order(sample: tuple[str, int]) -> tuple[str, str]:
    return in_one_spelling(sample[0]), sample[0]


def _caltech(reader: Any) -> list[tuple[str, int]]:
    folder = Path(reader.root) / "101_ObjectCategories"
    return [
        (str(folder / reader.categories[number] / f"image_{index:04d}.jpg"), number)
        for index, number in zip(reader.index, reader.y, strict=True)
    ]


def _files(row: NamedSet, split: str, classes: tuple[str, ...], samples: list[tuple[str, int]], root: Path) -> Files:
    labels = _labels(row, np.array([number for _, number in samples], dtype=np.int64), len(classes), root)
    paths = (os.path.relpath(path, root) for path, _ in samples)
    return Files(row.key, split, classes, labels, root, paths)


def _classes(row: NamedSet, reader: Any, root: Path) -> tuple[str, ...]:
    found = row.class_names or getattr(reader, "classes", None) or getattr(reader, "categories", None) or ()
    _check_count(row, len(found), _home(row, root))
    return tuple(unicodedata.normalize("NFC", str(name)) for name in found)


def _check_count(row: NamedSet, classes: int, where: str) -> None:
    if classes != row.classes:
        fix = "Fetch it again, or open a selection of your own as a folder."
        raise DataError(f"there are {classes:,} classes", wanted=f"{row.classes:,}", where=shown(where), fix=fix)


def _labels(row: NamedSet, numbers: np.ndarray, num_classes: int, root: Path) -> Labels:
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < num_classes:
        came = f"the labels go from {numbers.min()} to {numbers.max()}"
        raise DataError(came, wanted=f"0 to {num_classes - 1}", where=_home(row, root))
    return Labels.of(numbers, num_classes)


def _synset_names(path: Path, wnids: tuple[str, ...]) -> tuple[str, ...]:
    """Names for people, by WordNet id; of two classes with one name, as both kinds of crane, each keeps its id."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the class names could not be read ({error})", where=shown(str(path))) from None
    names = dict(line.strip().split(" ", 1) for line in lines if " " in line.strip())
    missing = [wnid for wnid in wnids if wnid not in names]
    if missing:
        raise DataError(f"there is no name for the class {missing[0]!r}", where=shown(str(path)))
    found = [unicodedata.normalize("NFC", names[wnid]) for wnid in wnids]
    return tuple(f"{name} ({wnid})" if found.count(name) > 1 else name for name, wnid in zip(found, wnids, strict=True))


def _home(row: NamedSet, root: Path, split: str | None = None) -> str:
    return str(root / row.folder.format(split=split or "train"))


def _absent(row: NamedSet, root: Path, split: str | None) -> DataError:
    size = f" (about {row.megabytes:,} MB)" if row.megabytes else ""
    passed = f"Pass {setting('data.download', True)} to fetch it{size}, or"
    fetch = passed if row.can_download else "It cannot be fetched from here;"
    return DataError(
        f"{row.name} is not there",
        wanted="the files of " + (repr(split) if split else "all splits"),
        where=shown(_home(row, root, split)),
        fix=f"{fetch} say with {setting('data.root')} where it is.",
    )


def _failed(row: NamedSet, root: Path, split: str | None, download: bool, error: Exception) -> VitrailError:
    where = shown(_home(row, root, split))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskError(f"{row.name} could not be written ({error.strerror})", where=where, fix="Free some space.")
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[-1].removesuffix("You can use download=True to download it").strip("<>. ")[:160]
    if download:
        fix = f"Check the network, or bring its files to {shown(str(root))}."
        return DataError(f"{row.name} could not be fetched or read ({reason})", where=where, fix=fix)
    again = f"Remove it and fetch it again with {setting('data.download', True)}."
    fix = again if row.can_download else "Copy it there again."
    return DataError(f"{row.name} is incomplete or damaged ({reason})", where=where, fix=fix)
