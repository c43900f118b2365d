"""`vitrail predict`: what a model says about images."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vitrail.cli.predict_words import Csv, Json, Lines, Shown
from vitrail.cli.words import in_front
from vitrail.config.checks import positive
from vitrail.config.spelling import as_typed
from vitrail.errors import DataError, UsageError

if TYPE_CHECKING:
    from vitrail.prediction.handed import Handed
    from vitrail.prediction.predictor import Answer, Predictor

Size = int | tuple[int, int]

_IMAGENET = 1000
_TOP, _IN_A_LINE = 5, 3
# They make a copy of the network, or compile it.
_SLOW_STARTS = ("compiled", "onnx", "openvino")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Name what images show, with probabilities: a table for people, --json or --csv for programs.

    An image that cannot be read is reported, and the others are answered. Nothing is written unless --embed says so.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run or model folder, a file of any known layout, hf-hub:OWNER/NAME, or a file of `vitrail export`."""
    images: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE [IMAGE ...]")] = ()
    """Files, folders, quoted patterns such as 'photos/**/*.jpg', or - for an image on standard input."""
    top: int | None = None
    """So many classes of each image: 5, or 3 in a line, if not said."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON document."""
    csv: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a table with commas, a row per image."""
    embed: Path | None = None
    """Write the features of all images to this .npz or .parquet, for search and clustering, and name nothing."""
    backend: str = "auto"
    """torch, compiled, onnx or openvino; auto takes the fastest that is at hand, all give the same answers."""
    image_size: Size | None = None
    """Pixels per side, or height and width, if not the model's own."""
    preprocessing: str | None = None
    """google, augreg or imagenet: how the images of the model were prepared, if its file does not say."""
    classes: Path | None = None
    """A file with the class names of the model, one per line, if it came without; or imagenet."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    batch_size: int = 32
    """Images at a time; it changes no answer."""


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail predict MODEL IMAGE [IMAGE ...] ...`."""
    run(tyro.cli(Options, args=in_front(Options, words), prog="vitrail predict"))


def run(options: Options) -> None:
    """Answer for every image in turn; what was answered is shown whatever happens later."""
    from vitrail.data.sources.loose import ensure_not_beside
    from vitrail.prediction.features_file import ensure_features_file
    from vitrail.prediction.handed import from_names

    _check(options)
    if options.embed is not None:
        # A file that was named beside a photo is wanted there; in a folder of images it could be taken for data.
        ensure_not_beside([name for name in options.images if Path(name).is_dir()], options.embed)
        ensure_features_file(options.embed)
    handed = from_names(options.images)
    predictor = _predictor(options, len(handed))
    if options.embed is not None:
        _embed(predictor, handed, options.embed)
    else:
        _name(predictor, handed, options)


def _check(options: Options) -> None:
    if not options.images:
        raise UsageError("there is no image", wanted="vitrail predict MODEL IMAGE [IMAGE ...]")
    if options.top is not None:
        positive("top", options.top)
    positive("batch-size", options.batch_size)
    asked = [name for name, on in (("--json", options.json), ("--csv", options.csv), ("--embed", options.embed)) if on]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} are asked for", wanted="one of them")


def _predictor(options: Options, images: int) -> "Predictor":
    from vitrail.prediction.predictor import Predictor

    if options.backend in _SLOW_STARTS:
        print(f"preparing {options.backend}, which takes a while the first time ...", file=sys.stderr)
    return Predictor(
        options.model,
        backend=options.backend,
        device=options.device,
        image_size=options.image_size,
        preprocessing=options.preprocessing,
        classes=options.classes,
        batch_size=options.batch_size,
        images=images,
    )


def _name(predictor: "Predictor", handed: "list[Handed]", options: Options) -> None:
    from vitrail.prediction.answers import ensure_classes

    ensure_classes(predictor.described, options.model)
    kind: type[Shown] = Json if options.json else Csv if options.csv else Lines
    top = options.top or (_IN_A_LINE if kind is Lines and len(handed) > 1 else _TOP)
    shown = kind(predictor, [one.name for one in handed], top)
    with _counted(predictor, handed, is_quiet=options.json or options.csv) as answers:
        try:
            for answer in answers:
                shown.add(answer)
        finally:
            shown.end()


def _embed(predictor: "Predictor", handed: "list[Handed]", path: Path) -> None:
    import numpy as np

    from vitrail.prediction.features_file import write_features
    from vitrail.runtime.progress import progress

    names: list[str] = []
    rows: list[np.ndarray] = []
    with _counted(predictor, handed) as answers, progress("computing features", len(handed)) as advance:
        try:
            for answer in answers:
                if answer.features is not None:
                    names.append(answer.name)
                    rows.append(answer.features)
                advance(1)
        finally:
            if rows:
                write_features(path, names, np.stack(rows))
                print(f"{path}  features of {len(rows):,} images, {len(rows[0]):,} numbers each")


@contextmanager
def _counted(predictor: "Predictor", handed: "list[Handed]", *, is_quiet: bool = False) -> "Iterator[Iterator[Answer]]":
    """Go through the answers, tell what could not be read, and in the end how long it took and by what means."""
    failed: list[str] = []
    done = moving = 0
    begin = time.perf_counter()

    def answers() -> "Iterator[Answer]":
        nonlocal done, moving
        for answer in predictor.answers(handed):
            if answer.error is not None:
                failed.append(answer.name)
                print(f"error: {as_typed(answer.error)}", file=sys.stderr)
            else:
                done += 1
                moving += answer.frames > 1
            yield answer

    yield answers()
    seconds = time.perf_counter() - begin
    if not is_quiet and done:
        rate = f", {done / seconds:,.0f} images/s" if done >= predictor.batch_size else ""
        print(f"computed by {predictor.backend.name}{rate}", file=sys.stderr)
        if predictor.labels is None and predictor.described.config.num_classes == _IMAGENET:
            print("The file has no class names; if it was trained on ImageNet: --classes imagenet.", file=sys.stderr)
    if moving:
        print(f"note: {moving:,} with several frames or pages: the first was used.", file=sys.stderr)
    if failed:
        which = "no image" if not done else f"{len(failed):,} of {len(handed):,} images"
        others = "; the others were answered" if done else ""
        raise DataError(
            f"{which} could {'' if not done else 'not '}be read",
            fix=f"The reason{'s are' if len(failed) > 1 else ' is'} above{others}.",
        )
