"""`vitrail.transfer`: models fine-tuned on a list of data sets, and one table under the paper's (Tables 2 and 5).

An experiment of experiments: each pair of a model and a data set is a fine-tuning that goes on by itself, and none
takes with it what another has found. The table in the folder grows with every command of the same name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vitrail.config import Settings, to_json
from vitrail.config.spelling import as_typed
from vitrail.data.sources.files import user_path
from vitrail.errors import DataError, UsageError, VitrailError, choose, command, marked, notice, setting
from vitrail.experiments import finetune
from vitrail.experiments.ask import Ask
from vitrail.experiments.experiment import Experiment, Part, Steps, Work
from vitrail.experiments.finetune import FinetuneFolder, Plan, final_runs, first_runs, plan_finetuning, read_finetuning
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text
from vitrail.training.folder import IN_MEMORY, NamedFolder, is_vacant, processes_again, read_record, versions

if TYPE_CHECKING:
    from vitrail.data import Source
    from vitrail.evaluation.real import RealLabels
    from vitrail.experiments.calling import Finished
    from vitrail.experiments.driver import Driver
    from vitrail.experiments.start import Start
    from vitrail.experiments.transfer_table import Table
    from vitrail.training.events import OnEvent

FORMAT = "vitrail-transfer/1"


@dataclass(frozen=True, kw_only=True)
class Options(finetune.Options):
    """Fine-tune each MODEL on each data set by the paper's protocol, and print one table under the paper's."""

    data: tuple[str, ...] = ()
    """Known names such as cifar10, oxford-pets, flowers102, imagenet; or folders, as for `vitrail finetune`."""
    name: str = "transfer"
    """Of the folder."""
    skip_missing: bool = False
    """Do the others where data is absent or cannot be read; the table and the exit code say what is missing."""
    real_labels: str | None = None
    """ReaL labels of ImageNet's validation images (real.json), to count by as well."""


NOT_HERE = {"or_resume": "the same command goes on anyway"}
EACH = ("recipe", "rates", "seeds", "image_size", "preprocessing")
"""What may be said for one data set alone, beside settings of runs."""
TAKES_SEVERAL = True
"""Models, one after the other."""


class Incomplete(VitrailError):
    """Some fine-tunings have no number."""

    is_shared = True

    def __init__(self, came: str, exit_code: int, *, fix: str) -> None:
        super().__init__(came, fix=fix)
        self.exit_code = exit_code


# What it is made of.


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A model and a data set, by the names they have in the table."""

    model: str
    data: str
    pretraining: str
    """What is known of where the model comes from."""
    plan: Plan | None
    """None where the data was not there."""
    problem: str = ""
    """Why there is no plan."""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.model} on {self.data}"


@dataclass(frozen=True, kw_only=True)
class TransferRecord:
    """`config.json`: everything that was asked for, and how to do it again."""

    format: str = FORMAT
    pairs: tuple[Pair, ...]
    real_labels: str | None
    """ReaL labels of ImageNet to count by as well."""
    command: str
    """What a person typed."""
    versions: dict[str, Any]


@dataclass(frozen=True)
class TransferFolder(NamedFolder):
    """`runs/<name>/<model>/<data>/` for each pair, and the table of all."""

    @property
    def page(self) -> Path:
        """The table for people."""
        return self.path / "table.md"

    @property
    def numbers(self) -> Path:
        """The table for programs."""
        return self.path / "table.json"

    @property
    def resume_command(self) -> str:
        """What to type to go on."""
        return command("transfer", resume=str(self.path), **processes_again())

    def pair(self, pair: Pair) -> FinetuneFolder:
        """The fine-tuning of a pair, which `vitrail finetune --resume` goes on with as well."""
        return FinetuneFolder(self.path / pair.model / pair.data, whole=self.resume_command)


def write_pairs(folder: TransferFolder, pairs: Sequence[Pair], real_labels: str | None, asked: str = "") -> None:
    """Write `config.json`, whole or not at all; `asked` is how it was asked for."""
    record = TransferRecord(pairs=tuple(pairs), real_labels=real_labels, command=asked, versions=versions())
    with atomic_file(folder.config) as temporary:
        temporary.write_text(json_text(to_json(record), indent=2) + "\n", encoding="utf-8")


def read_pairs(folder: TransferFolder) -> TransferRecord:
    """Read `config.json`."""
    return read_record(folder, TransferRecord, FORMAT, "a transfer")


def joined_pairs(before: Sequence[Pair], now: Sequence[Pair]) -> tuple[Pair, ...]:
    """A table may grow: what was asked for before stays, and what is asked for again is as it is asked for now."""
    pairs = {(pair.model, pair.data): pair for pair in (*before, *now)}
    return tuple(pairs.values())


def as_named_before(before: Sequence[Pair], now: Sequence[Pair]) -> tuple[Pair, ...]:
    """A model keeps the name that it has in a table, whatever other models are asked for beside it this time."""
    names = {pair.plan.config.start: pair.model for pair in reversed(before) if pair.plan is not None}
    return tuple(
        pair if pair.plan is None else replace(pair, model=names.get(pair.plan.config.start, pair.model))
        for pair in now
    )


def has_real(pair: Pair) -> bool:
    """Whether ReaL labels can be counted by."""
    return pair.plan is not None and is_imagenet(pair.plan)


def is_imagenet(plan: Plan) -> bool:
    """Whether the data is ImageNet, also where it is a folder of the user's that is given the recipe for it."""
    return plan.config.recipe == "finetune-imagenet"


def short_names(given: Sequence[str]) -> list[str]:
    """A name for each model or data set, fit for a folder: the end of its path, and more of it where two end alike."""
    if len(set(given)) < len(given):
        twice = next(one for one in given if given.count(one) > 1)
        raise UsageError(f"{twice!r} is given twice", wanted="each model and each data set once")
    parts = [_parts(one) for one in given]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["-".join(found[-length:]) for found in parts]
        if len({name.casefold() for name in names}) == len(names):
            return names
    return [f"{'-'.join(found)}-{number}" for number, found in enumerate(parts, start=1)]


def _parts(name: str) -> list[str]:
    path = user_path(name)
    if path.exists():
        path = path.resolve()
        if path.name == "model" and len(path.parts) > 2:
            # Of a run: its folder has the better name.
            path = path.parent
        name = str(path.with_suffix("") if path.is_file() else path)
    cleaned = [re.sub(r"[^\w.+-]+", "-", part).strip(".-") for part in re.split(r"[/\\:]", name)]
    return [part for part in cleaned if part] or ["data"]


# Its steps.


@dataclass(frozen=True, kw_only=True)
class Transfer(Experiment["Table | None"]):
    """Fine-tunings, one after the other; each resumes by itself."""

    verb: ClassVar[str] = "transfer"
    between: ClassVar[str] = "fine-tunings"
    pairs: tuple[Pair, ...]
    """Those that are asked for this time; the folder may know more."""
    real_labels: str | None = None

    def at(self, path: Path, whole: str = "") -> TransferFolder:
        """The folder of it."""
        return TransferFolder(path)

    def has_begun(self, folder: TransferFolder) -> bool:
        """Whether any run has."""
        return any(IN_MEMORY not in path.parts for path in folder.path.glob("*/*/config.json"))

    def written(self, folder: TransferFolder) -> list[Path]:
        """Besides the lock, the plan and a table of nothing."""
        return [folder.lock, folder.config, folder.page, folder.numbers, folder.report]

    def steps(self, folder: TransferFolder) -> "Steps[Table | None]":
        """Every pair, with the table as it fills, and in the end what is missing."""
        failures: dict[str, VitrailError] = {}
        table = None
        for number, pair in enumerate(self.pairs, start=1):
            ended = yield self._part(folder, pair, f"{number} of {len(self.pairs)}")
            if ended.failure is not None:
                failures[pair.title] = ended.failure
            is_last = number == len(self.pairs) or ended.is_apart
            if is_last or not (ended.is_old or pair.plan is None):
                told = {title: as_typed(error) for title, error in failures.items()}
                table = yield Work(
                    title="the table", do=_Telling(self, folder, told, is_last=is_last, in_step=not ended.is_apart)
                )
            if ended.is_apart:
                break
        if failures:
            raise self._missing(folder, failures)
        return table

    def _part(self, folder: TransferFolder, pair: Pair, place: str) -> Part:
        target = folder.pair(pair)

        def make(_driver: "Driver") -> Plan:
            if target.config.is_file():
                return read_finetuning(target).plan
            assert pair.plan is not None
            return pair.plan

        def count_real(driver: "Driver", plan: Experiment, result: finetune.Result) -> None:
            assert isinstance(plan, Plan)
            if self.real_labels is not None and is_imagenet(plan):
                _count_real(driver, target, plan, result, self.real_labels)

        return Part(
            folder=f"{pair.model}/{pair.data}",
            title=pair.title,
            place=place,
            make=make,
            after=count_real,
            forgives=(VitrailError,),
            problem=DataError(pair.problem) if pair.plan is None else None,
        )

    def _missing(self, folder: TransferFolder, failures: Mapping[str, VitrailError]) -> VitrailError:
        """One error for all that failed; the first itself where nothing has begun."""
        first = next(iter(failures.values()))
        if not self.has_begun(folder):
            return first
        # Data that was absent has no plan to resume.
        is_planned = all(pair.plan is not None for pair in self.pairs)
        return Incomplete(
            f"{len(failures)} of {len(self.pairs)} fine-tunings failed ({', '.join(failures)}); the others are kept",
            first.exit_code,
            fix=f"To try again: {folder.resume_command if is_planned else read_pairs(folder).command}",
        )


@dataclass(frozen=True)
class _Telling:
    """Writes the table and shows it."""

    transfer: Transfer
    folder: TransferFolder
    failures: Mapping[str, str]
    is_last: bool
    in_step: bool
    """Whether the other processes are still there."""

    def __call__(self, driver: "Driver") -> "Table":
        from vitrail.experiments.transfer_table import make_table, write_all
        from vitrail.training.whole import ensure_in_place

        with driver.processes.together() if self.in_step else nullcontext():
            table = make_table(self.folder, read_pairs(self.folder), self.failures)
            if driver.processes.is_first:
                ensure_in_place(self.folder)
                write_all(self.folder, table)
                driver.audience.tell(self.transfer, table, folder=self.folder, is_last=self.is_last)
        return table


def _count_real(driver: "Driver", folder: FinetuneFolder, plan: Plan, result: finetune.Result, labels: str) -> None:
    """Count the answers of the final models by ReaL labels, where that was not done with these labels before."""
    from vitrail.evaluation.real import read_real
    from vitrail.experiments.transfer_table import measure_seeds, read_seeds

    with driver.processes.together():
        if driver.processes.is_first:
            real = read_real(Path(labels))
            before = read_seeds(folder)
            if before is None or before.digest != real.digest:
                measure_seeds(folder, result, _measured_source(plan, driver), real)


def _measured_source(plan: Plan, driver: "Driver") -> "Source":
    """The images that the final models were measured on."""
    from vitrail.training.sources import open_run_data

    data = final_runs(plan, plan.rates[0])[0].config.data
    opened = open_run_data(data, driver.how.device, driver.audience.reading)
    source = opened.test if opened.test is not None else opened.held_out
    if source is None:
        raise DataError("there are no images to count by ReaL labels", wanted="its val folder", where=opened.train.name)
    return source


# From what was asked for to its pairs.


def plan(ask: Ask, driver: "Driver") -> Transfer:
    """Read every model and open all data; nothing is written."""
    from vitrail.evaluation.real import read_real

    options = ask.options(Options)
    if not ask.subjects or not options.data:
        raise UsageError(
            f"there is no {'data' if ask.subjects else 'model to start from'}",
            wanted=command("transfer", "MODEL", data="DATA"),
            fix="`vitrail list models` shows names with published weights; a file, a folder or a run works as well.",
        )
    folder = _folder(options)

    def decided() -> Transfer:
        real = None if options.real_labels is None else read_real(Path(options.real_labels).expanduser())
        before = read_pairs(folder).pairs if folder.config.is_file() else ()
        found = _Looking(ask, driver, before).pairs(real)
        labels = options.real_labels
        return Transfer(
            pairs=tuple(found), real_labels=None if labels is None else str(Path(labels).expanduser().absolute())
        )

    return driver.decided(decided, Transfer)


def _folder(options: Options) -> TransferFolder:
    return TransferFolder(Path(options.out).expanduser() / options.name)


class _Looking:
    """What can be known before the first run: whether models can be read, and whether data is all there."""

    def __init__(self, ask: Ask, driver: "Driver", before: Sequence[Pair]) -> None:
        """`before` is in the table."""
        self._ask, self._driver = ask, driver
        data = ask.options(Options).data
        self._data = dict(zip(short_names(data), data, strict=True))
        for name in ask.each:
            choose("data set", name, self._data)
        self._copies = {pair.data: pair.plan.config.data.copies for pair in before if pair.plan is not None}

    def pairs(self, real: "RealLabels | None") -> list[Pair]:
        """A plan for each model on each data set; data that is absent is an error, or the problem of its pairs."""
        from vitrail.experiments.start import read_start

        found: list[Pair] = []
        problems: dict[str, DataError] = {}
        models = self._ask.subjects
        for source, label in zip(models, short_names(models), strict=True):
            start = read_start(source)
            for name in self._data:
                plan = None
                try:
                    if name not in problems:
                        plan = self._plan(start, name)
                        if not found or label == found[0].model:
                            self._open(plan, real)
                except DataError as error:
                    problems[name], plan = error, None
                problem = as_typed(problems[name]) if plan is None else ""
                found.append(Pair(model=label, data=name, pretraining=_pretraining(start), plan=plan, problem=problem))
        skips = self._ask.options(Options).skip_missing
        if problems and (not skips or len(problems) == len(self._data)):
            raise self._missing(problems)
        if real is not None and not any(map(has_real, found)):
            raise UsageError(f"{setting('real_labels')} is given without ImageNet", wanted=setting("data", "imagenet"))
        return found

    def _plan(self, start: "Start", name: str) -> Plan:
        given = self._ask.given | self._ask.each.get(name, {})
        settings = Settings({**given.of_runs(), "data.data": self._data[name]})
        if self._copies and "data.copies" not in settings:
            settings |= {"data.copies": self._kept(name)}
        return plan_finetuning(start, settings, given.without("data").filled(finetune.Options))

    def _kept(self, name: str) -> str:
        """How a table treats copies where it is not said: as it was begun, perhaps before they were looked for."""
        kept = self._copies.get(name, next(iter(self._copies.values())))
        if kept == "apart":
            notice(
                "This table was begun with images held out as if there were no copies "
                f"({setting('data.copies', 'apart')}), and the rest of it stays comparable; under another "
                f"{setting('name')} copies are kept together."
            )
        return kept

    def _open(self, plan: Plan, real: "RealLabels | None") -> None:
        """Every image of every split is read before the first step, so that no bad file is met hours later."""
        from vitrail.data.outside import ensure_outside
        from vitrail.evaluation.real import match_real
        from vitrail.training.sources import open_run_data

        for run in first_runs(plan):
            opened = open_run_data(run.config.data, self._driver.how.device, self._driver.audience.reading)
            sources = [source for source in (opened.train, opened.held_out, opened.test) if source is not None]
            ensure_outside(sources, _folder(self._ask.options(Options)).path)
        if real is not None and is_imagenet(plan):
            match_real(real, _measured_source(plan, self._driver))

    def _missing(self, problems: dict[str, DataError]) -> DataError:
        """All that is absent, at once."""
        told = "".join(f"\n  {name}: {marked(error)}" for name, error in problems.items())
        others = f", or add {setting('skip_missing', True)} to do the others" if len(problems) < len(self._data) else ""
        return DataError(
            f"{len(problems)} of {len(self._data)} data sets cannot be used:{told}",
            fix=f"\nNothing was trained. Bring what is missing{others}.",
        )


def _pretraining(start: "Start") -> str:
    """What travels with the weights about how they came to be."""
    known = start.checkpoint.provenance
    if "recipe" in known and "data" in known:
        return f"{known['recipe']} on {known['data']}, {known.get('step', '?')} steps"
    return f"see {known['hub']} on the hub" if "hub" in known else "not known, because its file does not say"


# Through it.


GROWS = True
"""The same name again, with other models or data, goes on in the same folder."""


def found(path: Path) -> "Table":
    """What is known in a folder; nothing is done."""
    from vitrail.experiments.transfer_table import make_table

    folder = TransferFolder(path)
    return make_table(folder, read_pairs(folder), {})


def begin(ask: Ask, driver: "Driver") -> "tuple[TransferFolder, Table]":
    """Fine-tune each model on each data set; a table that is there grows."""
    asked, folder = plan(ask, driver), _folder(ask.options(Options))
    with driver.processes.together():
        _ensure_ours(folder)
    with _held(folder, driver):
        copies_given = "data.copies" in ask.given
        transfer = driver.decided(lambda: _join_folder(folder, asked, ask.command, copies_given), Transfer)
        driver.audience.planned(transfer, folder)
        return folder, driver.drive(transfer, folder)


def go_on(path: Path, driver: "Driver") -> "tuple[TransferFolder, Table]":
    """Go on with a table where it stopped."""
    folder = TransferFolder(path)
    with driver.processes.together():
        record = read_pairs(folder)
    transfer = Transfer(pairs=record.pairs, real_labels=record.real_labels)
    driver.audience.planned(transfer, folder)
    return folder, driver.drive(transfer, folder)


def _ensure_ours(folder: TransferFolder) -> None:
    """What holds something else is not written into, not even a lock."""
    path = folder.path
    if not folder.config.is_file() and (path.is_symlink() or (path.exists() and not is_vacant(path))):
        raise UsageError(
            "is there already and holds something else", where=str(path), fix=f"Choose another {setting('name')}."
        )


@contextmanager
def _held(folder: TransferFolder, driver: "Driver") -> Iterator[None]:
    """The lock of the whole, before anything is written; a folder that stays empty is not left behind."""
    from vitrail.training.whole import held

    try:
        with held(folder, driver.processes):
            yield
    finally:
        if driver.processes.is_first:
            with suppress(OSError):
                folder.path.rmdir()


def _join_folder(folder: TransferFolder, asked: Transfer, command: str, copies_given: bool) -> Transfer:
    """Write down what will be done, with the names that models have in the table.

    A table that is there grows, and fine-tunings that are there must be the same.
    """
    _ensure_ours(folder)
    before: Sequence[Pair] = ()
    real = asked.real_labels
    if folder.config.is_file():
        record = read_pairs(folder)
        before, real = record.pairs, real or record.real_labels
    pairs = as_named_before(before, asked.pairs)
    for pair in pairs:
        if pair.plan is not None and folder.pair(pair).config.is_file():
            finetune.refuse_other(folder.pair(pair), pair.plan, copies_given=copies_given)
    write_pairs(folder, joined_pairs(before, pairs), real, command)
    return Transfer(pairs=pairs, real_labels=real)


def transfer(
    *models: Any,
    data: "Sequence[Any] | str | PathLike[str]" = (),
    settings: Mapping[str, Any] | None = None,
    on_event: "OnEvent | None" = None,
    **options: Any,
) -> "Finished":
    """Fine-tune models on a list of data sets by the paper's protocol; the result is one table under the paper's.

    Keywords are those of `finetune`, for every pair; a dictionary is for some data sets alone, as in
    `steps={"cifar10": 1000}`. The same call again goes on where it stopped, and with other models or data the table
    grows.

        table = vitrail.transfer("vit-b16", data=["cifar10", "oxford-pets"]).result
    """
    from vitrail.experiments.calling import call

    several = (data,) if isinstance(data, str | PathLike) else tuple(data)
    return call("transfer", models, {"data": several or None, **options}, settings, on_event)
