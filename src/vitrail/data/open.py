"""From what a person types after --data to a source of images."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from vitrail.config.data import CopiesKept
from vitrail.data.sources.classes import with_classes
from vitrail.data.sources.files import user_path
from vitrail.data.sources.parts import PartSpec, parse_part, take_part
from vitrail.data.sources.source import Source
from vitrail.data.sources.splits import canonical_split
from vitrail.errors import DataError, UsageError, notice

Watch = Callable[[Source], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """What some kinds of sources need to know, and others ignore."""

    root: Path | None = None
    """Where the files of a named data set are, or go."""
    download: bool = False
    """Fetch a named data set that is not there."""
    classes: tuple[str, ...] | None = None
    """The classes of a model, by name: labels are mapped onto them."""
    allow_empty: bool = False
    """Take a class folder without images as a class."""
    labelled: bool = True
    """Whether a folder is read as class folders, or as images of which nothing is known."""
    copies: CopiesKept = "together"
    """Whether a part such as "train[:98%]" has all copies of an image or none of them."""
    watch: Watch | None = None
    """Shows how far the search for copies has come."""


def open_data(data: str | Path, split: str = "train", *, options: OpenOptions | None = None) -> Source:
    """Open a folder, a CSV, a packed copy, a known name, hf:NAME, wds:SHARDS, vtab:TASK or taught:FOLDER.

    `split` may be a part such as "train[:98%]".
    """
    options = options or OpenOptions()
    if not str(data).removeprefix("hf:").removeprefix("wds:").removeprefix("vtab:").removeprefix("taught:").strip():
        raise UsageError(f"the data is {str(data)!r}", wanted="a path or a name")
    part = parse_part(split)
    part = replace(part, split="+".join(map(canonical_split, part.split.split("+"))))
    source = _open_split(str(data), part.split, options)
    if not part.is_whole:
        source = _taken(source, part, options)
    return source if options.classes is None else with_classes(source, options.classes)


def _taken(source: Source, part: PartSpec, options: OpenOptions) -> Source:
    if options.copies == "apart" or not part.cuts(len(source)):
        return take_part(source, part)
    from vitrail.data.copies import copies_of

    with nullcontext() if options.watch is None else options.watch(source) as advance:
        copies = copies_of(source, advance)
    for note in copies.notes:
        notice(note)
    return take_part(source, part, copies.groups, copies.notes)


def _open_split(data: str, split: str, options: OpenOptions) -> Source:
    # Each kind is imported when it is asked for: Hugging Face's library alone takes a second.
    if data.startswith("hf:"):
        from vitrail.data.sources.huggingface import open_huggingface

        return open_huggingface(data.removeprefix("hf:"), split)
    if data.startswith("wds:"):
        from vitrail.data.sources.shards import open_shards

        return open_shards(data.removeprefix("wds:"), split)
    if data.startswith("vtab:"):
        from vitrail.data.vtab.open import open_task

        return open_task(data.removeprefix("vtab:"), split, root=options.root, download=options.download)
    if data.startswith("taught:"):
        from vitrail.data.sources.taught import open_taught

        return open_taught(data.removeprefix("taught:"), split, options)
    path = user_path(data)
    if path.exists():
        return _open_path(path, split, options)
    from vitrail.data.sources.named import open_named

    return open_named(data, split, root=options.root, download=options.download)


def _open_path(path: Path, split: str, options: OpenOptions) -> Source:
    from vitrail.data.sources import folder, huggingface, loose, packed, table

    if path.is_dir():
        if packed.is_packed(path):
            names = {canonical_split(name): name for name in packed.read_record(path).digests}
            return packed.open_packed(path, names.get(split, split))
        if huggingface.is_saved(path):
            return huggingface.open_huggingface(str(path), split)
        if not options.labelled:
            return loose.open_unlabelled(path, split)
        return folder.open_folder(path, split, allow_empty=options.allow_empty)
    if path.suffix.lower() in (".csv", ".tsv"):
        return table.open_table(path, split)
    if path.suffix.lower() == ".parquet":
        return huggingface.open_huggingface(str(path), split)
    raise DataError(
        "this is a single file",
        wanted="a folder of class folders, a .csv or a .parquet",
        where=str(path),
        fix=f"For tar shards write wds:{path}." if path.suffix == ".tar" else "",
    )
