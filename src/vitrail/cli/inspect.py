"""`vitrail inspect`: what a model has learnt, as the figures of the paper and as numbers."""

import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vitrail.cli.terminal import console, print_json, printable, table
from vitrail.cli.words import in_front
from vitrail.config import DecodePolicy
from vitrail.config.checks import positive
from vitrail.config.figures import FIGURES, WITHOUT_IMAGES
from vitrail.config.spelling import as_typed
from vitrail.data.check.preflight import preflight
from vitrail.data.open import OpenOptions, open_data
from vitrail.data.outside import ensure_apart, ensure_outside, ensure_outside_named
from vitrail.data.sources.files import user_path
from vitrail.data.sources.loose import ensure_not_beside, open_images
from vitrail.data.sources.parts import evenly
from vitrail.data.sources.source import Part, Source
from vitrail.data.sources.splits import MissingSplit
from vitrail.errors import DataError, Notice, UsageError, choose, marked, notice
from vitrail.experiments.kinds import ensure_outside_known, kind_of
from vitrail.runtime.progress import progress

if TYPE_CHECKING:
    import torch

    from vitrail.data import Preparation
    from vitrail.models import Classifier
    from vitrail.reports.figures import Figure
    from vitrail.reports.inspection import LeftOut
    from vitrail.reports.inspection_folder import InspectionFolder

Size = int | tuple[int, int]

# At 300 a figure is some thousand pixels wide, and no printer does better than this.
_MOST_DPI = 1200


@dataclass(frozen=True, kw_only=True)
class Options:
    """See what a model has learnt: the figures of the paper from its weights and, with images, from its attention.

    Without images: filters and positions. All images count in the distances; a few of them are shown.
    """

    words: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="MODEL [IMAGES ...]")]
    """A run, a model folder, a file, hf-hub:OWNER/NAME or a name with published weights; then images or folders."""
    data: str | None = None
    """A data set instead of images: a folder, a .csv, a packed copy, a known name, hf:NAME or wds:SHARDS."""
    split: str | None = None
    """Of the data set; test if not said, or val, or train where there is nothing else."""
    root: Annotated[Path | None, tyro.conf.arg(aliases=("--data-root",))] = None
    """Where the files of a known data set are."""
    limit: int | None = None
    """Take so many images, evenly spread; the paper takes 128."""
    show: int = 6
    """Images that are drawn, evenly spread over all."""
    figures: tuple[str, ...] = ()
    """Of filters, positions, distance, figure-7, rollout, lens, maps, occlusion; all but the last two if not said."""
    layers: tuple[int, ...] = ()
    """Layers whose attention is taken, from 0, or from the end when negative (-1); all if not said."""
    image_size: Size | None = None
    """Pixels per side, or height and width, if not the model's own."""
    preprocessing: str | None = None
    """google, augreg or imagenet: how the images of the model were prepared, if its file does not say."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    out: Path | None = None
    """The folder to write to; if not said, inspection-NAME here, or in the folder of the run where images lie here."""
    dpi: int = 300
    """Dots per inch of the PNGs, at most 1200."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON document instead of a table."""


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail inspect MODEL [IMAGES ...] ...`."""
    run(tyro.cli(Options, args=in_front(Options, words), prog="vitrail inspect"))


def run(options: Options) -> None:
    """Open model and images, make one figure after the other, and keep each as soon as it is made.

    What can be wrong with a name or a place is told before torch and the model are loaded.
    """
    if not options.words:
        raise UsageError("there is no model", wanted="vitrail inspect MODEL [IMAGES ...]")
    positive("show", options.show)
    positive("dpi", options.dpi, at_most=_MOST_DPI)
    model_name, *images = options.words
    wanted = _wanted(options, bool(images) or options.data is not None)
    source = _source(images, options)
    place = _place(model_name, images, source, options)

    from vitrail.reports.inspection_folder import InspectionFolder
    from vitrail.runtime.device import find_device

    folder = InspectionFolder(place)
    folder.ensure_free()
    model, preparation = _opened(model_name, options, source is not None, find_device(options.device))
    if isinstance(data := model.provenance.get("data"), str):
        ensure_outside_named(data, None, place)
    _ensure_layers(model, options)
    # What is wrong with a model is told before any image is read.
    source = None if source is None else _readable(source)
    _Work(options, model, preparation, source, folder, wanted).all()


def _wanted(options: Options, has_images: bool) -> tuple[str, ...] | None:
    """The figures that were asked for; none when nothing was said."""
    wanted = tuple(dict.fromkeys(choose("figure", name, FIGURES) for name in options.figures))
    needy = [name for name in wanted if name not in WITHOUT_IMAGES]
    if needy and not has_images:
        raise UsageError(
            f"there are no images for the figure {needy[0]!r}",
            wanted="some to send through the network",
            fix="Name files or folders behind the model, or a data set with --data.",
        )
    return wanted or None


def _source(images: Sequence[str], options: Options) -> Source | None:
    """The images that are looked at, none of them read yet."""
    if images and options.data is not None:
        raise UsageError("there are images and --data", wanted="one of them")
    for name in ("split", "root"):
        if options.data is None and getattr(options, name) is not None:
            raise UsageError(f"--{name} is of a data set, and there is none", wanted="--data beside it")
    if images:
        source: Source = open_images(images)
    elif options.data is not None:
        source = _of_data(options.data, options)
    else:
        return None
    if not len(source):
        raise DataError("there are no images", wanted="at least one", where=f"{source.name}, {source.split}")
    if options.limit is not None:
        positive("limit", options.limit)
        source = Part(source, evenly(len(source), options.limit), source.split)
    return source


def _readable(source: Source) -> Source:
    """The images without those that cannot be read, which one note names; none left is an error."""
    with progress("reading the images", len(source)) as advance:
        try:
            return preflight(source, policy=DecodePolicy(), progress=advance)
        except DataError as error:
            bad = error.came
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        fine = preflight(source, policy=DecodePolicy(), skip_bad=True)
    if not len(fine):
        raise DataError(bad, wanted="at least one image")
    notice(f"{bad}. They are left out.")
    return fine


def _place(model: str, images: Sequence[str], source: Source | None, options: Options) -> Path:
    """Where the figures go: never among images, nor into the data that the model was trained on.

    That is --out; else a folder here; else, where images lie here, one in the run or beside the model folder, or in
    the user's home.
    """
    if options.out is None:
        refused = None
        for way in _ways(model):
            try:
                _ensure_allowed(way, model, images, source, asked=False)
                return way
            except UsageError as error:
                refused = refused or error
        assert refused is not None
        raise refused
    out = options.out.expanduser()
    try:
        _ensure_allowed(out, model, images, source, asked=True)
    except UsageError as error:
        other = _place(model, images, source, replace(options, out=None))
        raise UsageError(
            error.came,
            where=error.where,
            fix=f"Data is never touched. This works: --out {shlex.quote(str(other))}",
        ) from None
    return out


def _ways(model: str) -> Iterator[Path]:
    """Here; in the folder of a run, or beside a model folder of ours, but a file may lie anywhere; at home."""
    name = f"inspection-{_short(model)}"
    yield Path(name)
    path = user_path(model)
    run = path.parent if path.name == "model" else path
    if kind_of(run) in ("vitrail-run", "vitrail-finetune", "vitrail-selftrain"):
        way = run / "inspection"
    elif kind_of(path) == "vitrail":
        way = path.parent / name
    else:
        way = None
    if way is not None and os.access(way.parent, os.W_OK):
        yield way
    for home in (Path("~"), Path(tempfile.gettempdir())):
        with suppress(DataError):
            yield user_path(home) / name


def _ensure_allowed(place: Path, model: str, images: Sequence[str], source: Source | None, *, asked: bool) -> None:
    # A place that was asked for may lie beside a photo, though not in a folder of photos that was named.
    ensure_not_beside([name for name in images if user_path(name).is_dir()] if asked else images, place)
    if source is not None and not images:
        ensure_outside([source], place)
    path = user_path(model)
    for folder in (path, path / "model", path.parent):
        ensure_outside_known(folder, place)
    ensure_apart(place, "inspection.json", asked=asked)


def _of_data(data: str, options: Options) -> Source:
    opening = OpenOptions(root=options.root)
    if options.split is not None:
        return open_data(data, options.split, options=opening)
    for split in ("test", "val"):
        try:
            return open_data(data, split, options=opening)
        except MissingSplit:
            pass
    return open_data(data, "train", options=opening)


def _opened(
    name: str, options: Options, has_images: bool, device: "torch.device"
) -> "tuple[Classifier, Preparation | None]":
    """The model; how its images are prepared has to be known only where there are some."""
    from vitrail.evaluation.subject import open_subject
    from vitrail.reports.so_far import subject_so_far
    from vitrail.training.folder import RunFolder
    from vitrail.weights.load import load_model

    run = RunFolder(user_path(name))
    if kind_of(run.path) == "vitrail-run" and not run.model.is_dir():
        how = {"image_size": options.image_size, "preprocessing": options.preprocessing, "device": device}
        if (so_far := subject_so_far(run, **how)) is not None:
            step = so_far.model.provenance["step"]
            notice(f"{name}: this run has kept no model yet. Shown are its weights at step {step:,}.")
            return so_far.model, so_far.preparation
    if not has_images:
        return load_model(name, image_size=options.image_size), None
    subject = open_subject(name, image_size=options.image_size, preprocessing=options.preprocessing, device=device)
    return subject.model, subject.preparation


def _ensure_layers(model: "Classifier", options: Options) -> None:
    """Refuse a layer that is not there before anything is written."""
    from vitrail.inspection.looking import chosen_layers, transformer

    if options.layers:
        chosen_layers(transformer(model, "layer to choose"), options.layers)


def _short(model: str) -> str:
    """The name of a model without its folders and, of a file, without its ending."""
    path = Path(model)
    return re.sub(r"[^\w.-]+", "-", path.stem if path.is_file() else path.name)[:60].strip(".-") or "model"


def _looked_at(source: Source) -> dict[str, Any]:
    """All images that count in the figures, drawn or not, in the order of the numbers."""
    names = [source.where(place) for place in range(len(source))]
    return {"from": source.name, "split": source.split, "count": len(source), "names": names}


@dataclass(frozen=True)
class _Work:
    """Figures, one after the other, and what is written and said of them."""

    options: Options
    model: "Classifier"
    preparation: "Preparation | None"
    source: Source | None
    folder: "InspectionFolder"
    wanted: tuple[str, ...] | None

    def all(self) -> None:
        """Make all; what cannot be made is told, and is an error in the end where it was asked for."""
        from vitrail.reports.figures import Figure
        from vitrail.reports.inspection import grouped

        record: dict[str, Any] = {**self._context(), "figures": [], "left_out": []}
        numbers: dict[str, Any] = {}
        left_out: list[LeftOut] = []
        try:
            for made in self._figures():
                if isinstance(made, Figure):
                    if not record["figures"] and (replaced := self.folder.begin(record)):
                        notice(f"{self.folder.path}: the inspection of {replaced} is replaced.")
                    record["figures"].append(self.folder.write_figure(made, self.options.dpi))
                    numbers |= made.numbers
                else:
                    record["left_out"].append({"name": made.name, "reason": as_typed(made.error)})
                    left_out.append(made)
        finally:
            # Also what was made before Ctrl-C; without a figure nothing is written.
            if numbers:
                self.folder.write_numbers(numbers)
            if record["figures"]:
                self.folder.write_record(record)
            told = grouped(left_out)
            self._say(record, [] if self.wanted is not None else told)
        failed = [one.error for one in told if self.wanted is not None or isinstance(one.error, DataError)]
        for error in failed[1:]:
            notice(marked(error))
        if failed:
            raise failed[0]

    def _figures(self) -> "Iterator[Figure | LeftOut]":
        from vitrail.reports.inspection import each_figure

        return each_figure(
            self.model,
            self.preparation,
            self.source,
            self.wanted,  # type: ignore[arg-type]
            layers=self.options.layers or None,
            most_shown=self.options.show,
            progress=progress,
        )

    def _context(self) -> dict[str, Any]:
        """What the figures are of."""
        from vitrail.cli.asking import command_line
        from vitrail.config import to_json
        from vitrail.reports.inspection_folder import FORMAT
        from vitrail.training.folder import versions

        return {
            "format": FORMAT,
            "command": command_line(),
            "model": self.options.words[0],
            "config": to_json(self.model.config),
            "images": None if self.source is None else _looked_at(self.source),
            "folder": str(self.folder.path),
            "versions": versions(),
        }

    def _say(self, record: dict[str, Any], left_out: "Sequence[LeftOut]") -> None:
        if self.options.json:
            print_json(record)
            return
        from rich.markup import escape

        out = console()
        images = (
            "" if self.source is None else f" on {len(self.source):,} {'image' if len(self.source) == 1 else 'images'}"
        )
        out.print(f"[bold]{escape(printable(self.options.words[0]))}[/]{images}\n")
        if record["figures"]:
            shown = table("figure", "what was seen")
            for one in record["figures"]:
                shown.add_row(one["name"], escape(printable(one["seen"])))
            out.print(shown)
        for one in left_out:
            out.print(f"no {one.name}: {escape(printable(as_typed(one.error)))}")
        if record["figures"]:
            names = " ".join(one["name"] for one in record["figures"])
            place = escape(printable(str(self.folder.path)))
            out.print(f"{place}/: {names}, each as .png and .svg")
            out.print(f"{place}/{self.folder.captions.name}: what each shows and how it is computed")
            out.print(f"{place}/{self.folder.record.name}, {self.folder.numbers.name}: every number")
