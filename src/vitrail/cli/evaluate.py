"""`vitrail evaluate`: how good models are, on which images, and how far their word can be trusted."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from vitrail.cli.launch import launch, split_processes
from vitrail.cli.terminal import print_json, printable
from vitrail.cli.words import in_front
from vitrail.config.checks import positive
from vitrail.config.decoding import DecodePolicy
from vitrail.config.spelling import as_typed
from vitrail.data.check.preflight import preflight
from vitrail.data.open import OpenOptions, open_data
from vitrail.data.sources.files import user_path
from vitrail.data.sources.parts import splits_of
from vitrail.data.sources.source import Source
from vitrail.data.sources.splits import MissingSplit
from vitrail.errors import DataError, Notice, UsageError, VitrailError, marked, notice
from vitrail.experiments.kinds import kind_of, known_data, started_from
from vitrail.runtime.progress import progress
from vitrail.runtime.threads import is_tiny, one_thread
from vitrail.weights.folder import sidecar

if TYPE_CHECKING:
    import torch

    from vitrail.evaluation import Evaluation, Measured, MultiLabelEvaluation
    from vitrail.evaluation.labels import Matched
    from vitrail.evaluation.real import RealLabels
    from vitrail.evaluation.subject import Subject
    from vitrail.reports.evaluation_folder import EvaluationFolder
    from vitrail.runtime.processes import Processes

Size = int | tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure models on images: accuracy with its interval, class by class, confusions, calibration.

    Every image is counted once. Several models are shown beside each other, with mean and standard deviation.
    """

    models: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="MODEL [MODEL ...]")]
    """Run folders, model folders, files of any known layout, hf-hub:OWNER/NAME, or names with published weights."""
    data: str
    """A folder, a .csv, a packed copy, a known name, hf:NAME or wds:SHARDS."""
    split: str | None = None
    """test, val, train, or a part such as train[90%:]; test if not said, or val, or all that was not learnt from."""
    root: Annotated[Path | None, tyro.conf.arg(aliases=("--data-root",))] = None
    """Where the files of a known data set are."""
    download: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Fetch a known data set that is not there."""
    skip_bad: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave files out that cannot be read, count them, and say so."""
    allow_empty: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Take a class folder without images as a class."""
    classes: Path | None = None
    """A file with the class names of the model, one per line, in the order of its outputs; or imagenet, whose classes
    the data may call by WordNet number, by name or by class number; or data-order, if they are those of the data."""
    real: Path | None = None
    """ReaL labels of ImageNet's validation images (real.json), to count by as well."""
    image_size: Size | None = None
    """Pixels per side, or height and width, if not the model's own."""
    preprocessing: str | None = None
    """google, augreg or imagenet: how the images of the model were prepared, if its file does not say."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the arithmetic."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    batch_size: int = 64
    """Images at a time; it changes no number that is counted."""
    workers: int | None = None
    """Processes that read images; chosen from the number of cores if not said, 0 for none."""
    processes: int | None = None
    """Measure in so many processes on this machine, each with its own GPU where there are any; or use torchrun."""
    out: Path | None = None
    """A folder to write result.json, predictions.npz, report.html and pictures to."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON document instead of tables."""


@dataclass(frozen=True)
class Done:
    """What is kept of a model that was measured."""

    name: str
    outputs: int
    evaluation: "Evaluation | MultiLabelEvaluation"
    record: dict[str, Any]


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail evaluate MODEL [MODEL ...] --data D ...`."""
    processes, words = split_processes(words)
    if processes is not None and not {"-h", "--help"} & set(words):
        launch("evaluate", words, processes)
        return
    run(tyro.cli(Options, args=in_front(Options, words), prog="vitrail evaluate"))


def run(options: Options) -> None:
    """Open the data, measure one model after the other, and show what was found, also when one of them fails."""
    from vitrail.cli.asking import command_line
    from vitrail.data.sources.class_names import read_class_names
    from vitrail.evaluation.real import read_real
    from vitrail.reports.evaluation_folder import EvaluationFolder
    from vitrail.runtime.device import find_device
    from vitrail.runtime.processes import joined, own_device

    if not options.models:
        raise UsageError("there is no model", wanted="vitrail evaluate MODEL --data DATA")
    positive("batch-size", options.batch_size)
    device = own_device(find_device(options.device))
    with joined(device) as processes:
        with processes.together():
            real = None if options.real is None else read_real(options.real)
            names = None if options.classes is None or _is_in_order(options) else read_class_names(options.classes)
        work = _Work(options, device, processes, real, names)
        # What is wrong with a model is told before any image is read.
        looks = work.look()
        source = processes.in_turn(lambda: open_source(options, looks))
        folder = None
        with processes.together():
            if options.out is not None:
                folder = EvaluationFolder(options.out.expanduser(), options.models)
                folder.ensure_free(source, command_line())
        work.all(source, folder)


@dataclass(frozen=True)
class Look:
    """A model before it is measured: whether the data is something for it, and whether it learnt from it."""

    name: str
    provenance: dict[str, Any]
    match: "Callable[[Source], Matched]"


def open_source(options: Options, looks: Sequence[Look] = ()) -> Source:
    """The images to measure on, each of them readable; never what a model learnt from, unless it is asked for."""
    opening = OpenOptions(root=options.root, download=options.download, allow_empty=options.allow_empty)
    if options.split is not None:
        source = open_data(options.data, options.split, options=opening)
        learners = _learners(looks, options.data, splits_of(options.split))
        if learners:
            notice(f"{learners[0]} has learnt from this part of the data, so maybe from these very images.")
    else:
        source = _held_back(options.data, opening, looks)
    _ensure_measurable(source)
    _ensure_matching(source, looks)
    with progress(f"reading {source.name}, {source.split}", len(source)) as advance:
        fine = preflight(source, policy=DecodePolicy(), skip_bad=options.skip_bad, progress=advance)
    _ensure_measurable(fine)
    return fine


def _is_in_order(options: Options) -> bool:
    from vitrail.data.sources.class_names import DATA_ORDER

    return str(options.classes) == DATA_ORDER


def _held_back(data: str, opening: OpenOptions, looks: Sequence[Look]) -> Source:
    """The test split, or the val split of data that has none, or all of what has neither and was not learnt from."""
    for split in ("test", "val"):
        if not _learners(looks, data, {split}):
            try:
                return open_data(data, split, options=opening)
            except MissingSplit:
                pass
    learners = _learners(looks, data)
    if not learners:
        try:
            source = open_data(data, "train", options=opening)
        except MissingSplit:
            raise MissingSplit("there is no 'test', 'val' or 'train' part", where=data, fix="Say --split.") from None
        notice(
            f"{data} has neither a 'test' nor a 'val' part, and as far as is known no model here has learnt from it: "
            f"all {len(source):,} images are measured."
        )
        return source
    parts = [_left_out(name) for name in learners]
    there = [part for part in parts if part is not None]
    if len(there) == len(parts) and len({part.digest() for part in there}) == 1:
        notice(
            f"{data} has no 'test' or 'val' part of its own, and {learners[0]} has learnt from it: the "
            f"{len(there[0]):,} images that were held out then are measured."
        )
        return there[0]
    others = f", as has {learners[1]}, which held out others" if len(there) == len(parts) > 1 else ""
    raise MissingSplit(
        f"there is no 'test' or 'val' part of its own, and {learners[0]} has learnt from these images{others}",
        where=data,
        fix="Measure on a folder that it has not seen; --split train measures on what it has, "
        "--split 'train[90%:]' on a tenth of that.",
    )


def _left_out(model: str) -> Source | None:
    """What the run of a model held out of its training images; none where it left nothing out, or is not here."""
    from vitrail.training.held_out import held_out_of, run_of

    path = user_path(model)
    folder = path.parent if path.name == "model" else path
    match kind_of(folder):
        case "vitrail-run":
            data = sidecar(folder).get("config", {}).get("data", {})
            # Of what a teacher labelled, nothing is held out here.
            leaves_out = data.get("held_out") != 0 and not str(data.get("data")).startswith("taught:")
        case "vitrail-finetune":
            # Where rates were tried on what was held out, the model itself has learnt from all.
            leaves_out = sidecar(folder, "result.json").get("measured_on") == "held_out"
        case _:
            leaves_out = False
    run = run_of(folder) if leaves_out else None
    return None if run is None else held_out_of(run)


def _learners(looks: Sequence[Look], data: str, splits: set[str] | None = None) -> list[str]:
    """The models, and those that they started from, that were trained on this data, or on these splits of it."""
    from vitrail.config import DataConfig
    from vitrail.experiments.resolve import located

    place, found = located(DataConfig(data=data)).data, []
    for look in looks:
        is_of_splits = splits is None or bool(splits & _learnt_splits(look.provenance))
        if is_of_splits and place in _places(look.provenance.get("data")):
            found.append(look.name)
        start = look.provenance.get("start")
        if isinstance(start, str) and (splits is None or "train" in splits):
            starts = (user_path(start), *started_from(user_path(start)))
            found += [str(path) for path in starts if place in (name for name, _ in known_data(path))]
    return found


def _learnt_splits(provenance: dict[str, Any]) -> set[str]:
    """Which splits a model says it learnt from; what other programs wrote there may be anything."""
    try:
        return splits_of(str(provenance.get("split", "train")))
    except VitrailError:
        return {"train"}


def _places(data: object) -> Iterator[str]:
    """The data that a model names as its own; of what a teacher labelled, also the images themselves."""
    from vitrail.data.sources.taught import read_record

    if not isinstance(data, str):
        return
    yield data
    if data.startswith("taught:"):
        with suppress(VitrailError):
            record = read_record(user_path(data.removeprefix("taught:")))
            yield from (record.labelled.data, record.unlabelled.data)


def _ensure_matching(source: Source, looks: Sequence[Look]) -> None:
    """Refuse data that is for none of the models; what is for some of them is told in their turn."""
    failures: list[VitrailError] = []
    for look in looks:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Notice)
            try:
                look.match(source)
                return
            except VitrailError as error:
                failures.append(error)
    if failures:
        raise failures[0]


def _ensure_measurable(source: Source) -> None:
    """Refuse what gives no number, or one that says nothing: no images, or images of one class."""
    where = f"{source.name}, {source.split}"
    if not len(source):
        raise DataError("there are no images", wanted="at least one per class", where=where)
    there = source.labels.counts().nonzero()[0]
    if not source.labels.is_multi and len(there) < 2:
        raise DataError(
            f"all {len(source):,} images are of one class, {source.classes[int(there[0])]!r}",
            wanted="two or more: a model that always says the same would be right here",
            where=where,
            fix="Add images of something else.",
        )


@dataclass
class _Work:
    """Models, one after the other, and what is shown and written of them."""

    options: Options
    device: "torch.device"
    processes: "Processes"
    real: "RealLabels | None"
    names: tuple[str, ...] | None
    source: Source = field(init=False)
    folder: "EvaluationFolder | None" = field(init=False)
    only: "Subject | None" = field(init=False, default=None)
    """The one model, where there is one; several may not fit into memory together."""

    def look(self) -> list[Look]:
        """Open every model once; if none can be, that is the error."""
        from functools import partial

        looks: list[Look] = []
        failures: list[tuple[str, VitrailError]] = []
        is_alone = len(self.options.models) == 1
        for name in self.options.models:
            with warnings.catch_warnings():
                if not is_alone:
                    # It will say the same in its turn.
                    warnings.simplefilter("ignore", Notice)
                try:
                    subject = self._open(name)
                except (DataError, UsageError) as error:
                    failures.append((name, error))
                    if self.processes.ranks > 1:
                        break
                    continue
            self.only = subject if is_alone else None
            config, labels = subject.model.config, subject.model.labels
            match = partial(self._match, labels=labels, outputs=config.num_classes, name=name)
            looks.append(Look(name, subject.model.provenance, match))
        if failures and (not looks or self.processes.ranks > 1):
            _tell_others(failures[1:])
            raise failures[0][1]
        return looks

    def all(self, source: Source, folder: "EvaluationFolder | None") -> None:
        """Measure all; what one of them cannot keeps the others, and is the error in the end."""
        self.source, self.folder = source, folder
        done: list[Done] = []
        failures: list[tuple[str, VitrailError]] = []
        context = self._context()
        try:
            for place, name in enumerate(self.options.models, start=1):
                try:
                    self._one(place, name, done, failures, context)
                except VitrailError as error:
                    failures.append((name, error))
                    # Processes that did not fail together are no longer in step; a full disk is full for all.
                    if self.processes.ranks > 1 or not isinstance(error, DataError | UsageError):
                        break
        finally:
            # Also what was measured before Ctrl-C.
            self._show(done, failures, context)
        _tell_others(failures[1:])
        if failures:
            raise failures[0][1]

    def _open(self, name: str) -> "Subject":
        from vitrail.evaluation.subject import open_subject

        options = self.options
        return self.processes.in_turn(
            lambda: open_subject(
                name,
                image_size=options.image_size,
                preprocessing=options.preprocessing,
                device=self.device,
                bfloat16=options.precision == "bfloat16",
            )
        )

    def _match(self, source: Source, *, labels: tuple[str, ...] | None, outputs: int, name: str) -> "Matched":
        """Which output of the model is which class of the data."""
        from vitrail.data.sources.class_names import ensure_named
        from vitrail.evaluation.labels import match_classes

        if self.names is not None and self.options.classes is not None:
            ensure_named(self.names, outputs, self.options.classes, name)
        is_said, is_in_order = self.names is not None, _is_in_order(self.options)
        return match_classes(source, self.names or labels, outputs, name, is_said=is_said, is_in_order=is_in_order)

    def _one(
        self,
        place: int,
        name: str,
        done: list[Done],
        failures: list[tuple[str, VitrailError]],
        context: dict[str, Any],
    ) -> None:
        """Measure a model, add it to what is done, and write it down."""
        measured, device = self._measure(name)
        done.append(_kept(place, measured, device))
        with self.processes.together():
            if self.folder is not None and self.processes.is_first:
                # The numbers first: whatever happens to the pictures, they are kept.
                self.folder.write_whole(_whole(done, failures, context))
                self.folder.write_model(place - 1, measured, done[-1].record, context)

    def _measure(self, name: str) -> tuple["Measured", str]:
        """One model, and on what it was computed."""
        from vitrail.data.loading.reading import reading_workers
        from vitrail.evaluation import evaluate_subject
        from vitrail.training.start import device_name

        options, processes = self.options, self.processes
        subject = self.only or self._open(name)
        with processes.together():
            model = subject.model
            matched = self._match(self.source, labels=model.labels, outputs=model.config.num_classes, name=name)
        mine = len(range(processes.rank, len(self.source), processes.ranks))
        with progress(f"measuring {printable(name)}", mine) as advance, one_thread(is_tiny(subject.model, self.device)):
            measured = evaluate_subject(
                subject,
                matched,
                batch_size=options.batch_size,
                workers=reading_workers(
                    options.workers,
                    self.source,
                    on_gpu=self.device.type == "cuda",
                    processes=processes.local_ranks,
                ),
                real=self.real,
                advance=advance,
                processes=processes,
            )
            return measured, device_name(self.device, subject.model)

    def _context(self) -> dict[str, Any]:
        """What holds for all models."""
        from vitrail.cli.asking import command_line
        from vitrail.training.folder import versions

        source = self.source
        return {
            "command": command_line(),
            "data": {
                "data": self.options.data,
                "split": source.split,
                "images": len(source),
                "classes": len(source.classes),
                "digest": source.digest(),
                "notes": list(source.notes),
            },
            "processes": self.processes.ranks,
            "batch_size": self.options.batch_size,
            "versions": versions(),
        }

    def _show(self, done: list[Done], failures: list[tuple[str, VitrailError]], context: dict[str, Any]) -> None:
        if not self.processes.is_first or not done:
            return
        from vitrail.cli.evaluate_words import say_files, say_one, say_several

        whole = _whole(done, failures, context)
        if self.options.json:
            print_json(whole)
        elif len(self.options.models) == 1:
            say_one(done[0], whole)
        else:
            say_several(done, whole)
        if self.folder is not None:
            if failures:
                self.folder.write_whole(whole)
            if not self.options.json:
                say_files(self.folder)


def _tell_others(failures: Sequence[tuple[str, VitrailError]]) -> None:
    for name, error in failures:
        notice(f"{name} was not measured either: {marked(error)}")


def _kept(place: int, measured: "Measured", device: str) -> Done:
    """What is needed later; the network itself is let go."""
    from vitrail.evaluation.evaluation import record_of
    from vitrail.runtime.json_text import finite

    subject = measured.subject
    record = {"place": place, **finite(record_of(measured)), "device": device}
    return Done(subject.name, subject.model.config.num_classes, measured.evaluation, record)


def _whole(done: list[Done], failures: list[tuple[str, VitrailError]], context: dict[str, Any]) -> dict[str, Any]:
    """The document that programs get."""
    from vitrail.reports.evaluation_folder import FORMAT

    return {
        "format": FORMAT,
        **context,
        "models": [one.record for one in done],
        "summary": summarised([one.record for one in done]),
        "errors": [{"model": name, "error": as_typed(error)} for name, error in failures],
    }


def summarised(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]] | None:
    """Mean and standard deviation of a sample over models; none for one model alone."""
    from vitrail.experiments.finetune import mean_and_std
    from vitrail.reports.comparison import COLUMNS, value_of

    if len(records) < 2:
        return None
    found: dict[str, dict[str, float | None]] = {}
    for key in COLUMNS:
        values = [value for record in records if (value := value_of(record, key)) is not None]
        if len(values) == len(records):
            mean, std = mean_and_std(values)
            found[key] = {"mean": mean, "std": std}
    return found
