"""`vitrail export`: a model as a file for other runtimes, compared with torch before it is called good."""

import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vitrail.cli.terminal import console, folded, megabytes, print_json, printable
from vitrail.config.checks import positive
from vitrail.data.open import OpenOptions, open_data
from vitrail.data.outside import ensure_outside
from vitrail.data.sources.class_names import ensure_named, read_class_names
from vitrail.data.sources.files import user_path
from vitrail.data.sources.folder import is_flat
from vitrail.data.sources.loose import ensure_not_beside, open_images
from vitrail.data.sources.source import Source
from vitrail.data.sources.splits import MissingSplit
from vitrail.errors import UsageError, choose
from vitrail.experiments.kinds import ensure_outside_known, kind_of
from vitrail.runtime.progress import progress

if TYPE_CHECKING:
    from vitrail.evaluation.subject import Subject
    from vitrail.exporting.compare import Comparison

Size = int | tuple[int, int]

_SUFFIXES = {"onnx": ".onnx", "openvino": ".xml", "torch": ".pt2"}
_FEWEST = 64
# Folders that keep a model.
_RUNS = ("vitrail-run", "vitrail-finetune", "vitrail-selftrain")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write a model as a file for other runtimes, with its class names and preprocessing inside.

    The file is opened anew and must say what torch says on 64 or more real images, in batches of 1, 2 and 7; one that
    does not is deleted.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run, a model folder, a file of any known layout, hf-hub:OWNER/NAME or a name with published weights."""
    to: str
    """onnx, openvino or torch."""
    out: Path | None = None
    """The file to write; exports/model.onnx (.xml, .pt2) in the folder of the model, if not said."""
    any_size: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Take images of any height and width: positions are resized in the file as the paper resizes them."""
    data: str | None = None
    """Images to compare on: a folder, a .csv, a packed copy, a known name, hf:NAME or wds:SHARDS."""
    split: str | None = None
    """Of the data; test if not said, or val, or train where there is nothing else."""
    root: Annotated[Path | None, tyro.conf.arg(aliases=("--data-root",))] = None
    """Where the files of a known data set are."""
    images: tuple[str, ...] = ()
    """Images or folders of images to compare on, instead of data."""
    count: int = _FEWEST
    """Images to compare on, 64 or more."""
    image_size: Size | None = None
    """Pixels per side, or height and width, if not the model's own."""
    preprocessing: str | None = None
    """google, augreg or imagenet: how the images of the model were prepared, if its file does not say."""
    classes: Path | None = None
    """A file with the class names to write, one per line, if the model came without; or imagenet."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace a file that is there already."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON document instead of sentences."""


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail export MODEL --to KIND ...`."""
    run(tyro.cli(Options, args=list(words), prog="vitrail export"))


def run(options: Options) -> None:
    """Check the words and the place, then open, write, compare and tell."""
    kind = choose("kind of export", options.to, _SUFFIXES)
    if options.data is not None and options.images:
        raise UsageError("there are --data and --images", wanted="one of them")
    positive("count", options.count)
    if options.count < _FEWEST:
        raise UsageError(f"count is {options.count}", wanted=f"{_FEWEST} or more images")
    target = _target(options, kind)
    _ensure_installed(kind)
    given = _given(options)
    _ensure_allowed(target, options, given)
    _export(options, kind, target, given)


def _export(options: Options, kind: str, target: Path, given: Source | None) -> None:
    from vitrail.evaluation.subject import open_subject
    from vitrail.exporting.card import write_cards
    from vitrail.exporting.compare import passes
    from vitrail.exporting.samples import gather_samples
    from vitrail.exporting.write import ensure_target, export_model
    from vitrail.training.held_out import data_of_run
    from vitrail.weights.checkpoint import from_model

    ensure_target(target, kind, options.overwrite)
    began = time.monotonic()
    subject = open_subject(options.model, image_size=options.image_size, preprocessing=options.preprocessing)
    model = subject.model
    # It goes into the file, which then needs no option.
    model.preprocessing = subject.preparation.preprocessing
    if options.classes is not None:
        names = read_class_names(options.classes)
        ensure_named(names, model.config.num_classes, options.classes, options.model)
        model.labels = names
    source = given if given is not None else data_of_run(user_path(options.model))
    samples = gather_samples(
        model, source, labelled=_is_labelled(options), skip_bad=not options.images, count=options.count
    )
    print(f"writing {printable(str(target))} ...", file=sys.stderr)
    with ExitStack() as stack:
        bar: list[Callable[[int], None]] = []
        comparison = export_model(
            model,
            target,
            kind,
            subject.preparation,
            samples,
            any_size=options.any_size,
            overwrite=options.overwrite,
            written=lambda: bar.append(
                stack.enter_context(progress("comparing with torch", passes(samples.count, options.any_size)))
            ),
            advance=lambda done: bar[0](done),
        )
    cards = write_cards(from_model(model), target, _model_folder(options.model))
    _tell(options, kind, target, subject, comparison, cards, time.monotonic() - began)


def _target(options: Options, kind: str) -> Path:
    """--out; else in the folder of a run or a model of ours; else in a folder here."""
    if options.out is not None:
        return options.out.expanduser()
    path = user_path(options.model)
    name = f"model{_SUFFIXES[kind]}"
    if kind_of(path) in (*_RUNS, "vitrail"):
        return path / "exports" / name
    stem = path.stem if path.is_file() else Path(options.model).name
    short = re.sub(r"[^\w.-]+", "-", stem)[:60].strip(".-") or "model"
    return Path(f"{short}-exports") / name


def _model_folder(model: str) -> Path | None:
    """The model folder whose card tells about the export, where the model is one or a run that has one."""
    path = user_path(model)
    folder = path / "model" if kind_of(path) in _RUNS else path
    return folder if kind_of(folder) == "vitrail" else None


def _ensure_installed(kind: str) -> None:
    """Say what is missing before any work is done."""
    import importlib.util

    packages = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("onnx", "onnxscript", "openvino")}
    for package in packages.get(kind, ()):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"{package} is needed for --to {kind} and not installed", fix="pip install 'vitrail[export]'"
            )


def _given(options: Options) -> Source | None:
    """The images that were asked for."""
    if options.images:
        return open_images(options.images)
    if options.data is None:
        if options.split is not None or options.root is not None:
            raise UsageError("there is --split or --data-root without --data", fix="Name the data with --data.")
        return None
    opening = OpenOptions(root=options.root, labelled=_is_labelled(options))
    if options.split is not None:
        return open_data(options.data, options.split, options=opening)
    for split in ("test", "val"):
        try:
            return open_data(options.data, split, options=opening)
        except MissingSplit:
            continue
    return open_data(options.data, "train", options=opening)


def _is_labelled(options: Options) -> bool:
    """Whether anything says what the images that were asked for show."""
    return not options.images and (options.data is None or not is_flat(user_path(options.data)))


def _ensure_allowed(target: Path, options: Options, given: Source | None) -> None:
    """Never among images, nor into the data that the model was trained on."""
    if options.images:
        # As in `vitrail predict --embed`: a file that was named beside a photo is wanted there.
        folders = [name for name in options.images if options.out is None or user_path(name).is_dir()]
        ensure_not_beside(folders, target)
    elif given is not None:
        ensure_outside([given], target)
    path = user_path(options.model)
    for folder in (path, path / "model", path.parent):
        ensure_outside_known(folder, target)


def _tell(
    options: Options,
    kind: str,
    target: Path,
    subject: "Subject",
    comparison: "Comparison",
    cards: list[Path],
    seconds: float,
) -> None:
    from vitrail.exporting.card import accuracies
    from vitrail.exporting.write import files_of

    files = files_of(target)
    size = sum(file.stat().st_size for file in files)
    if options.json:
        print_json(
            {
                "model": options.model,
                "kind": kind,
                "files": [str(file) for file in files],
                "bytes": size,
                "any_size": options.any_size,
                "compared": asdict(comparison),
                "cards": [str(card) for card in cards],
                "seconds": round(seconds, 2),
            }
        )
        return
    c = comparison
    shown = printable(str(target))
    also = f" and {files[1].name}" if len(files) > 1 else ""
    _say(f"{shown}{also}: {kind}, {megabytes(size)}, from {printable(options.model)}, in {seconds:.0f} s")
    _say(folded(f"compared with torch: {printable(c.images)}"))
    batches, sizes = ", ".join(map(str, c.batch_sizes)), ", ".join(c.sizes)
    _say(folded(f"  in batches of {batches}, at {sizes} pixels, by {c.runtime}"))
    classes = subject.model.config.num_classes
    what = "logit" if classes else "feature"
    _say(f"  largest difference of a {what} {c.difference:.1e}, of {what}s up to {c.largest_logit:.3g}")
    if classes:
        _say(f"  the same first class for {c.same_top1:,} of {c.count:,}")
    if told := accuracies(asdict(c)):
        _say(f"  accuracy {told}")
    for card in cards:
        _say(f"told in {printable(str(card))}")
    embed = "" if classes else " --embed features.npz"
    _say(f"\nnext: vitrail predict {shlex.quote(str(target))} photo.jpg{embed}")


def _say(text: str) -> None:
    console().print(text, markup=False, soft_wrap=True)
