"""Images that a teacher labelled, beside those that people did: `taught:FOLDER`, as `vitrail selftrain` writes it."""

import copy
import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.config.values import from_json, to_json
from vitrail.data.open import OpenOptions, open_data
from vitrail.data.sources.files import shown, user_path
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.parts import splits_of
from vitrail.data.sources.source import Part, Source, whole_of
from vitrail.data.sources.splits import missing_split
from vitrail.errors import DataError
from vitrail.runtime.archives import open_npz
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text

FORMAT = "vitrail-taught/1"
RECORD, ARRAYS = "taught.json", "taught.npz"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where images come from."""

    data: str
    split: str
    root: str | None = None
    allow_empty: bool = False
    digest: str
    """Of the whole source that the numbers of images count in."""


@dataclass(frozen=True, kw_only=True)
class TaughtRecord:
    """`taught.json`."""

    format: str = FORMAT
    classes: tuple[str, ...]
    labelled: Origin
    unlabelled: Origin
    lineage: dict[str, Any]
    """Who taught, how images were chosen, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """`taught.npz`: which images, as numbers in their whole sources, and what the teacher says of each."""

    learnt: np.ndarray
    """Labelled images to learn from."""
    held_out: np.ndarray
    """Labelled images to measure on; none where there is a val split, or where nothing is held out."""
    taught: np.ndarray
    """Unlabelled images; one that stands there twice is learnt from twice."""
    classes: np.ndarray
    """The teacher's first guess for each of them."""
    shares: np.ndarray | None = None
    """What it says of every class: (images, classes), where labels are soft."""


class Taught(Joined):
    """Labelled images, then those that a teacher labelled."""

    def __init__(self, name: str, labelled: Source, taught: Source, lineage: dict[str, Any]) -> None:
        super().__init__([labelled, taught], "train")
        self.name, self.lineage = name, lineage


def lineage_of(source: Source) -> dict[str, Any] | None:
    """Who taught what is in a source; none for labels of people."""
    whole = whole_of(source)
    return whole.lineage if isinstance(whole, Taught) else None


def open_taught(text: str, split: str, options: OpenOptions) -> Source:
    """Open train (labelled and taught images), val (the held-out ones, or the labelled val split) or test."""
    folder, name = user_path(text), f"taught:{shown(text)}"
    record = read_record(folder)
    if split == "train":
        lesson = read_lesson(folder, record)
        labelled = _part(_opened(record.labelled, options), lesson.learnt, record.labelled, folder)
        images = blind(_opened(record.unlabelled, options, labelled=False))
        seen = _part(images, lesson.taught, record.unlabelled, folder)
        labels = Labels(lesson.classes, len(record.classes), shares=lesson.shares)
        return Taught(name, labelled, relabelled(seen, record.classes, labels), record.lineage)
    if split == "val" and len((lesson := read_lesson(folder, record)).held_out):
        return _part(_opened(record.labelled, options), lesson.held_out, record.labelled, folder, "held-out")
    learnt = splits_of(record.labelled.split)
    if split not in ("val", "test") or split in learnt:
        raise missing_split(split, ["train"], name)
    return _opened(replace(record.labelled, split=split), options)


def blind(source: Source) -> Source:
    """The same images, of which nothing is known."""
    whole = whole_of(source)
    unknown = relabelled(whole, ("image",), Labels.of(np.zeros(len(whole), np.int64), 1))
    return unknown if whole is source else Part(unknown, source.ids(np.arange(len(source))), source.split)


def relabelled(source: Source, classes: tuple[str, ...], labels: Labels) -> Source:
    """The same images with other labels."""
    other = copy.copy(source)
    other.classes, other.labels = classes, labels
    return other


def write_taught(folder: Path, record: TaughtRecord, lesson: Lesson) -> None:
    """Write the arrays, and then the record without which they do not count."""
    arrays = {name: value for name, value in vars(lesson).items() if value is not None}
    with atomic_file(folder / ARRAYS) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
    with atomic_file(folder / RECORD) as temporary:
        temporary.write_text(json_text(to_json(record), indent=2) + "\n", encoding="utf-8")


def read_record(folder: Path) -> TaughtRecord:
    """Read `taught.json`."""
    path = folder / RECORD
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"there is no {RECORD}", wanted="a folder that `vitrail selftrain` wrote", where=shown(str(folder))
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", where=shown(str(path))) from None
    record = from_json(TaughtRecord, values, where=shown(str(path)))
    if record.format != FORMAT:
        raise DataError(f"the format is {record.format!r}", wanted=repr(FORMAT), where=shown(str(path)))
    return record


def read_lesson(folder: Path, record: TaughtRecord) -> Lesson:
    """Read `taught.npz`, whose numbers have to fit together."""
    path = folder / ARRAYS
    try:
        with open_npz(path) as stored:
            arrays = {name: stored[name] for name in stored.files}
        lesson = Lesson(**arrays)
        classes, shares = len(record.classes), lesson.shares
        numbers = (lesson.learnt, lesson.held_out, lesson.taught, lesson.classes)
        fits = all(array.ndim == 1 and array.dtype == np.int64 for array in numbers)
        fits = fits and len(lesson.classes) == len(lesson.taught)
        fits = fits and not ((lesson.classes < 0) | (lesson.classes >= classes)).any()
        fits = fits and (shares is None or shares.shape == (len(lesson.taught), classes))
    except Exception as error:
        # A damaged archive fails in many ways, and none of them is worth a traceback.
        raise DataError(f"cannot be read ({error})", where=shown(str(path))) from None
    if not fits:
        raise DataError("its arrays do not fit together", where=shown(str(path)))
    return lesson


def ensure_there(data: str) -> None:
    """Refuse to go on without the files that a self-training was begun with; they are named by their whole path."""
    path = user_path(data)
    if path.is_absolute() and not path.exists():
        raise DataError(
            "the images of this self-training are not there any more",
            wanted="the same files in the same place",
            where=shown(data),
            fix=f"Move them back, or lead there by a link: ln -s NEW_PLACE {shlex.quote(shown(data))}",
        )


def _opened(origin: Origin, options: OpenOptions, *, labelled: bool = True) -> Source:
    ensure_there(origin.data)
    root = options.root or (Path(origin.root) if origin.root else None)
    how = OpenOptions(
        root=root,
        download=options.download,
        allow_empty=origin.allow_empty or options.allow_empty,
        labelled=labelled,
        # Images are numbers in the whole, whatever part of it was named.
        copies="apart",
    )
    return open_data(origin.data, origin.split, options=how)


def _part(source: Source, places: np.ndarray, origin: Origin, folder: Path, what: str = "") -> Source:
    """Some images of what was there when the teacher labelled it."""
    whole = whole_of(source)
    if whole.digest() != origin.digest:
        raise DataError(
            f"the images are no longer those of {shown(str(folder))}",
            wanted="the same files and labels as when the teacher labelled them",
            where=f"{source.name}, {source.split}",
            fix="Put them back, or begin anew with `vitrail selftrain`.",
        )
    if len(places) and not 0 <= places.min() <= places.max() < len(whole):
        raise DataError(f"it names images beyond the {len(whole):,} there are", where=shown(str(folder / ARRAYS)))
    return Part(whole, places, f"{origin.split}, {what}" if what else origin.split)
