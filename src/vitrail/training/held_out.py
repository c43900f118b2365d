"""What a run held out of its training images: the list in its folder, and the images opened again.

Data grows and is tidied up, and splitting it anew would hold out images that the run has learnt from.
"""

import csv
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch

from vitrail.config import DataConfig, DecodePolicy
from vitrail.data import OpenOptions, Part, Source, open_data
from vitrail.data.check import preflight
from vitrail.data.sources.parts import parse_part, splits_of
from vitrail.data.sources.source import read_patiently, whole_of
from vitrail.data.sources.splits import MissingSplit
from vitrail.errors import DataError, VitrailError, marked, notice, setting
from vitrail.runtime.atomic import atomic_file
from vitrail.training.folder import RunFolder, read_run
from vitrail.training.session import digest
from vitrail.training.sources import RunData, open_run_data
from vitrail.weights.folder import sidecar

_FIX = (
    "Put the data back as it was, or measure on a folder that the run has not seen; "
    f"{setting('split', 'train')} measures on what it may have learnt from."
)


@dataclass(frozen=True)
class HeldOut:
    """A line of `held_out.csv`."""

    where: str
    label: str
    sha256: str
    """Of what is stored there: another image may come to bear this name."""


def list_held_out(folder: RunFolder, data: RunData, *, is_begun: bool, is_same: bool) -> None:
    """Write which images are held out, where it is not written yet.

    A run that has begun and goes on with other data may have learnt from what is held out now: listed stays what was
    never learnt from.
    """
    if is_begun and not is_same:
        known = set(read_held_out(folder) or ())
        _write(folder, [row for row in _rows(data) if row in known])
    elif data.held_out is not None and not (is_begun and folder.held_out.exists()):
        _write(folder, _rows(data))


def read_held_out(folder: RunFolder) -> list[HeldOut] | None:
    """Read `held_out.csv`; none where there is none, or one without hashes."""
    try:
        with folder.held_out.open(encoding="utf-8", newline="") as file:
            names, *rows = csv.reader(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot be read ({error})", where=str(folder.held_out)) from None
    wanted = [field.name for field in fields(HeldOut)]
    if any(len(row) != len(wanted) for row in rows):
        raise DataError("has lines that are not whole", wanted=", ".join(wanted), where=str(folder.held_out))
    return [HeldOut(*row) for row in rows] if names == wanted else None


def _rows(data: RunData) -> list[HeldOut]:
    source = data.held_out
    if source is None:
        return []
    # A split of its own is found again by its name.
    is_split_off = whole_of(source) is whole_of(data.train)
    return [
        HeldOut(
            source.where(index),
            "|".join(source.classes[number] for number in source.labels.classes_of(index)),
            _content_hash(source, index) if is_split_off else "",
        )
        for index in range(len(source))
    ]


def _content_hash(source: Source, index: int) -> str:
    stored = read_patiently(source, index)
    return hashlib.sha256(stored if isinstance(stored, bytes) else np.ascontiguousarray(stored).data).hexdigest()


def _write(folder: RunFolder, rows: Iterable[HeldOut]) -> None:
    """Whole or not at all."""
    with atomic_file(folder.held_out) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(HeldOut))
        writer.writerows(astuple(row) for row in rows)


def held_out_of(folder: RunFolder) -> Source:
    """What a run held out of its training images; a DataError where nothing was, or where that cannot be told."""
    record = read_run(folder)
    data, where = replace(record.config.data, download=False, few_shot=None), str(folder.path)
    if data.held_out == 0:
        raise DataError("the run held nothing out", where=where, fix=_FIX)
    if (rows := read_held_out(folder)) is not None:
        return _listed(data, rows, where)
    # A run from before this list: its split can be made again, of the very same images alone.
    opened = open_run_data(data, torch.device("cpu"), silently)
    if opened.held_out is None or digest(opened) != record.digest:
        raise DataError(
            "the data has changed since, and the run has no list of what it held out, so that this cannot be told",
            where=where,
            fix=_FIX,
        )
    return opened.held_out


def data_of_run(model: Path) -> Source | None:
    """Images of the run in a folder to compare on: of its test or val split, or held out, or else any of them."""
    for folder in (model, model.parent):
        try:
            if (run := run_of(folder)) is not None:
                return _to_compare(run)
        except VitrailError as error:
            notice(f"The data of the run cannot be opened ({marked(error)})")
    return None


def run_of(folder: Path) -> RunFolder | None:
    """The run in a folder, or the first of several that belong together; none where it is no such folder."""
    kind = str(sidecar(folder).get("format", "")) if folder.is_dir() else ""
    if kind.startswith("vitrail-") and not kind.startswith("vitrail-run/"):
        inside = sorted(path.parent for path in folder.glob("*/config.json") if path.parent.name != "model")
        return next((found for path in inside if (found := run_of(path)) is not None), None)
    return RunFolder(folder) if kind.startswith("vitrail-run/") else None


def _to_compare(run: RunFolder) -> Source:
    config = replace(read_run(run).config.data, download=False)
    for split in ("test", "val"):
        if split not in splits_of(config.split):
            try:
                return open_split(config, split)
            except MissingSplit:
                continue
    try:
        return held_out_of(run)
    except DataError:
        return open_split(config, config.split)


def open_split(config: DataConfig, split: str) -> Source:
    """A split of the data of a run, without what the run went on without."""
    options = OpenOptions(
        root=Path(config.root) if config.root else None,
        allow_empty=config.allow_empty,
        labelled=config.labelled,
        copies=config.copies,
    )
    source = open_data(config.data, split, options=options)
    # Only then can images have been left out; to read all of them for a few would be a waste.
    return preflight(source, policy=DecodePolicy(), skip_bad=True) if config.skip_bad else source


def _listed(config: DataConfig, rows: Sequence[HeldOut], run: str) -> Source:
    """The images of a list, each where it was and as it was."""
    # Which images are in a part of a split may have changed with the others.
    source = open_split(replace(config, skip_bad=False), parse_part(config.split).split)
    wanted = {row.where for row in rows}
    places = {where: place for place in range(len(source)) if (where := source.where(place)) in wanted}
    lost = [row for row in rows if row.where not in places or _content_hash(source, places[row.where]) != row.sha256]
    if not rows:
        raise DataError("there is no image that the run never learnt from", where=run, fix=_FIX)
    if lost:
        raise DataError(
            f"{len(lost):,} of the {len(rows):,} images that the run held out are not there any more, or are others",
            wanted=f"{lost[0].where} as it was",
            where=run,
            fix=_FIX,
        )
    return Part(source, np.sort([places[row.where] for row in rows]), f"{source.split}, held-out")


@contextmanager
def silently(_source: Source) -> Iterator[Callable[[int], None]]:
    """Read images without a word about how far that is."""
    yield lambda images: None
