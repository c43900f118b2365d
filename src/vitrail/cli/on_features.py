"""What `vitrail fewshot`, `knn` and `probe` share: models and data in, features from the cache, results out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import tyro
from rich.markup import escape

from vitrail.cli.launch import launch, split_processes
from vitrail.cli.terminal import console, printable
from vitrail.cli.words import in_front
from vitrail.config.checks import count, positive
from vitrail.errors import DataError, UsageError, VitrailError, marked, notice
from vitrail.runtime.progress import duration, progress

if TYPE_CHECKING:
    import torch

    from vitrail.data import Source
    from vitrail.evaluation.feature_cache import Features
    from vitrail.evaluation.feature_sets import FeatureSets
    from vitrail.evaluation.subject import Subject
    from vitrail.runtime.processes import Processes

Row = TypeVar("Row")
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Models = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="MODEL [MODEL ...]")]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where features come from."""

    data: tuple[str, ...]
    """A folder, a .csv, a known name, hf:NAME or wds:SHARDS; or several."""
    train_split: str = "train"
    """What is learnt from; a part such as train[:1000] may be named."""
    test_split: str = "test"
    """What is measured on."""
    root: Annotated[Path | None, tyro.conf.arg(aliases=("--data-root",))] = None
    """Where the files of known data sets are."""
    download: Flag = False
    """Fetch a known data set that is not there."""
    skip_bad: Flag = False
    """Read every image first and leave out those that cannot be read, instead of stopping there."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    processes: int | None = None
    """Extract features in so many processes on this machine, each with its own GPU where there are GPUs."""
    image_size: int | None = None
    """Side of the input in pixels, if not the model's."""
    preprocessing: str | None = None
    """google, augreg or imagenet, where the model does not say or says it wrong."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the network; what follows is float64."""
    batch_size: int | None = None
    """Images at a time: 64 on a CPU and 256 on a GPU if not said; fewer where memory runs out."""
    workers: int | None = None
    """Processes that read images; chosen from the number of cores if not said, 0 for none."""
    fresh: Flag = False
    """Compute features again that are in the cache."""
    json: Flag = False
    """Print everything as JSON."""


@dataclass(frozen=True)
class Case:
    """A model on a data set."""

    model: str
    data: str
    train: "Features"
    test: "Features"
    device: "torch.device"
    """Where to solve: a CUDA GPU, else the CPU, because others have no float64."""

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.source.classes

    def sets(self) -> "FeatureSets":
        """The features with their classes."""
        from vitrail.evaluation.feature_sets import FeatureSets

        train, test = self.train, self.test
        return FeatureSets.of(train.values, train.source.labels.values, test.values, test.source.labels.values)

    def facts(self) -> dict[str, object]:
        """What was learnt from and measured on, for programs."""
        return {
            "model": self.model,
            "data": self.data,
            "classes": len(self.classes),
            "features": int(self.train.values.shape[1]),
            "train": _facts(self.train),
            "test": _facts(self.test),
        }


def run_verb(verb: str, run: Callable[..., None], words: Sequence[str]) -> None:
    """Parse the words of a verb and run it, in several processes where they are asked for."""
    processes, words = split_processes(words)
    if processes is not None and not {"-h", "--help"} & set(words):
        launch(verb, words, processes)
        return
    tyro.cli(run, args=in_front(run, words), prog=f"vitrail {verb}")


def on_features(
    models: Sequence[str],
    options: Options,
    measure: Callable[[Case], Iterator[Row]],
    show: Callable[[list[Row]], None],
) -> None:
    """Measure every model on every data set; what fails is told at the end, after everything that was found."""
    from vitrail.runtime.device import find_device
    from vitrail.runtime.processes import joined, own_device

    if not models:
        raise UsageError("there is no model", wanted="a model folder, a run, a file or a name with published weights")
    if options.batch_size is not None:
        positive("batch-size", options.batch_size)
    if options.workers is not None:
        count("workers", options.workers)
    device = own_device(find_device(options.device))
    found: list[Row] = []
    problems: list[VitrailError] = []
    with joined(device) as processes:
        try:
            for case in _cases(models, options, device, processes, problems):
                _measure(case, measure, found, problems)
        finally:
            # Also when it was stopped half-way.
            if found:
                show(found)
    for problem in problems[1:]:
        notice(marked(problem))
    if problems:
        raise problems[0]


def _measure(
    case: Case, measure: Callable[[Case], Iterator[Row]], found: list[Row], problems: list[VitrailError]
) -> None:
    try:
        for row in measure(case):
            found.append(row)
    except (DataError, UsageError) as error:
        where = error.where or f"{case.model} on {case.data}"
        problems.append(type(error)(error.came, wanted=error.wanted, where=where, fix=error.fix))


def _passed(error: VitrailError) -> VitrailError:
    """An error that leaves other models and data to measure; any other ends the command."""
    from vitrail.runtime.processes import Elsewhere

    if isinstance(error, DataError | UsageError | Elsewhere):
        return error
    raise error


def _cases(
    models: Sequence[str],
    options: Options,
    device: "torch.device",
    processes: "Processes",
    problems: list[VitrailError],
) -> Iterator[Case]:
    """Every model with every data set, in the first process; the others help with the features and get nothing."""
    import torch

    from vitrail.evaluation.subject import open_subject

    solver = device if device.type == "cuda" else torch.device("cpu")
    for model in models:
        try:
            subject = processes.in_turn(
                lambda model=model: open_subject(
                    model,
                    image_size=options.image_size,
                    preprocessing=options.preprocessing,
                    device=device,
                    bfloat16=options.precision == "bfloat16",
                )
            )
        except VitrailError as error:
            problems.append(_passed(error))
            continue
        for data in options.data:
            try:
                train, test = processes.in_turn(lambda data=data: open_both(data, options))
                first, second = (_features(subject, source, options, processes) for source in (train, test))
            except VitrailError as error:
                problems.append(_passed(error))
                continue
            if processes.is_first:
                yield Case(model, data, first, second, solver)


def open_both(data: str, options: Options) -> tuple["Source", "Source"]:
    """What is learnt from and what is measured on, with the same classes and no image in common."""
    from vitrail.config import DecodePolicy
    from vitrail.data import OpenOptions, open_data
    from vitrail.data.check.preflight import preflight
    from vitrail.data.sources.classes import ensure_trainable
    from vitrail.data.sources.splits import MissingSplit

    opened: list[Source] = []
    for split, option in ((options.train_split, "--train-split"), (options.test_split, "--test-split")):
        classes = opened[0].classes if opened else None
        where = OpenOptions(root=options.root, download=options.download, classes=classes)
        try:
            opened.append(open_data(data, split, options=where))
        except MissingSplit as error:
            fix = f"{error.fix} {option} says which; what is measured on must not be learnt from."
            raise DataError(error.came, where=error.where, fix=fix) from None
    if options.skip_bad:
        for place, source in enumerate(opened):
            with progress(f"reading {source.name}, {source.split}", len(source)) as advance:
                opened[place] = preflight(source, policy=DecodePolicy(), skip_bad=True, progress=advance)
    train, test = opened
    ensure_trainable(train)
    if train.labels.is_multi:
        raise DataError("the images have several classes each", wanted="one", where=train.name)
    _ensure_apart(train, test, options)
    return train, test


def _ensure_apart(train: "Source", test: "Source", options: Options) -> None:
    """Refuse to measure on what was learnt from, where both are parts of one split."""
    import numpy as np

    from vitrail.data.sources.parts import splits_of

    asked = (options.train_split, options.test_split)
    first, second = map(splits_of, asked)
    if not first & second:
        return
    if first != second:
        raise UsageError(
            f"{options.train_split} and {options.test_split} have a split in common",
            wanted="none that is learnt from and measured on",
            where=train.name,
        )
    learnt, measured = (source.ids(np.arange(len(source))) for source in (train, test))
    if shared := len(np.intersect1d(learnt, measured)):
        name = "+".join(sorted(first))
        raise UsageError(
            f"{shared:,} images are in both {options.train_split} and {options.test_split}",
            wanted="none that is learnt from and measured on",
            where=train.name,
            fix=f"Say --train-split '{name}[:80%]' --test-split '{name}[80%:]'.",
        )


def _features(subject: "Subject", source: "Source", options: Options, processes: "Processes") -> "Features":
    from vitrail.data.loading.reading import reading_workers
    from vitrail.evaluation.feature_cache import cached_features

    on_gpu = subject.device.type == "cuda"
    features = cached_features(
        subject,
        source,
        batch_size=options.batch_size or (256 if on_gpu else 64),
        workers=reading_workers(options.workers, source, on_gpu=on_gpu, processes=processes.local_ranks),
        is_fresh=options.fresh,
        watch=progress,
        processes=processes,
    )
    if processes.is_first and not options.json:
        say = f"{printable(source.name)}, {source.split}: features of {len(source):,} images"
        rate = len(source) / max(features.seconds, 1e-9)
        how = "from the cache" if features.is_cached else f"in {duration(features.seconds)}, {rate:,.0f} images/s"
        console().print(escape(f"{say} by {printable(subject.name)} {how}"), soft_wrap=True)
    return features


def _facts(features: "Features") -> dict[str, object]:
    source = features.source
    return {
        "split": source.split,
        "images": len(source),
        "from_cache": features.is_cached,
        "seconds": round(features.seconds, 3),
        "file": None if features.path is None else str(features.path),
    }
