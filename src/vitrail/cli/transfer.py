"""`vitrail transfer`: models fine-tuned on a list of data sets, and one table under the paper's (Tables 2 and 5)."""

import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from vitrail.cli.finetuning import carry_out, refuse_other, told_once
from vitrail.cli.launch import launch, split_processes
from vitrail.cli.trackers import ensure_tracker
from vitrail.cli.train import Resume
from vitrail.cli.training import Track
from vitrail.cli.transfer_look import Look, measured_source
from vitrail.cli.transfer_words import say_failure, say_pair, say_pairs, say_table, say_table_files
from vitrail.cli.words import ensure_plain_name, in_front, is_resume, refuse_changes, refuse_derived, with_short_names
from vitrail.config.training import Parallel
from vitrail.errors import DataError, DiskError, UsageError, VitrailError

if TYPE_CHECKING:
    import torch

    from vitrail.evaluation.real import RealLabels
    from vitrail.experiments.finetune_folder import FinetuneFolder
    from vitrail.experiments.finetune_plan import Plan
    from vitrail.experiments.transfer_pairs import Pair, TransferFolder, TransferRecord
    from vitrail.runtime.processes import Processes
    from vitrail.training.spreading import Placement
    from vitrail.training.start import Allowed

_HELP = """Any other option is one of `vitrail finetune` and holds for every fine-tuning: --data-root, --image-size,
--steps, --rates, --seeds, --preprocessing, --batch-size, --recipe ... NAME=VALUE holds for one data set alone:
--steps cifar10=1000 oxford-pets=500, --rates cifar10=0.003,0.01. What is not said is the recipe's (Table 4).

The same command again, or `vitrail transfer --resume FOLDER`, goes on where it stopped."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Fine-tune each MODEL on each data set by the paper's protocol, and print one table under the paper's."""

    data: tuple[str, ...]
    """Known names such as cifar10, oxford-pets, flowers102, imagenet; or folders, as for `vitrail finetune`."""
    name: str = "transfer"
    """Of the folder."""
    out: Path = Path("runs")
    """The folder that holds the folders of runs."""
    skip_missing: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Do the others where data is absent or cannot be read; the table and the exit code say what is missing."""
    real_labels: Path | None = None
    """ReaL labels of ImageNet's validation images (real.json), to count by as well."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    processes: int | None = None
    """Train in so many processes on this machine, each with its own GPU where there are GPUs; torchrun does as well."""
    parallel: Parallel = "auto"
    """A copy of the network in each process (ddp), a part of it in each (fsdp), or the one that suits its size."""
    track: Track = None
    """Also tell TensorBoard or Weights & Biases, run by run."""


Came = Literal["new", "known", "apart"]
"""A new finding; one from before; or one that tears the processes of a run apart, so that they must end."""


class Incomplete(VitrailError):
    """Some fine-tunings have no number."""

    is_shared = True

    def __init__(self, came: str, exit_code: int, *, fix: str) -> None:
        super().__init__(came, fix=fix)
        self.exit_code = exit_code


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail transfer MODEL [MODEL ...] --data D [D ...]`, or `vitrail transfer --resume FOLDER`."""
    processes, words = split_processes(words)
    is_help = bool({"-h", "--help"} & set(words))
    if processes is not None and not is_help:
        launch("transfer", words, processes)
        return
    if is_resume(words):
        refuse_changes(words)
        with told_once():
            _resume(tyro.cli(Resume, args=list(words), prog="vitrail transfer"))
        return
    # Of the options of a fine-tuning it is not known here how many words each takes.
    words = in_front(Options, words, others=math.inf)
    models = _models(words)
    rest = with_short_names(words[len(models) :])
    refuse_derived(rest)
    options, others = tyro.cli(
        Options,
        args=rest,
        prog="vitrail transfer MODEL [MODEL ...]",
        description=f"{inspect.getdoc(Options)}\n\n{_HELP}",
        return_unknown_args=True,
    )
    if not models or not options.data:
        raise UsageError(
            f"there is no {'data' if models else 'model to start from'}",
            wanted="vitrail transfer MODEL [MODEL ...] --data DATA [DATA ...]",
            fix="`vitrail list models` shows names with published weights; a file, a folder or a run works as well.",
        )
    with told_once():
        _start(models, options, others)


def _models(words: Sequence[str]) -> list[str]:
    """The words before the first option."""
    end = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    return list(words[:end])


def _start(models: list[str], options: Options, words: list[str]) -> None:
    from vitrail.data.outside import ensure_outside
    from vitrail.evaluation.real import read_real
    from vitrail.experiments.transfer_pairs import TransferFolder, read_pairs
    from vitrail.runtime.device import find_device
    from vitrail.runtime.processes import joined, own_device
    from vitrail.training.spreading import Placement

    ensure_plain_name(options.name)
    ensure_tracker(options.track)
    device = own_device(find_device(options.device))
    folder = TransferFolder(options.out.expanduser() / options.name)
    with joined(device) as processes:
        with processes.together():
            real = None if options.real_labels is None else read_real(options.real_labels)
            before = read_pairs(folder).pairs if folder.config.is_file() else ()
            look = Look(options.data, [*words, "--device", options.device], device, before)
        pairs = processes.in_turn(lambda: look.pairs(models, skip_missing=options.skip_missing, real=real))
        with processes.together():
            ensure_outside(look.sources, folder.path)
            _ensure_ours(folder)
        with _held(folder, processes):
            models = processes.first_says(lambda: _join_folder(folder, pairs, options.real_labels, words))
            pairs = [replace(pair, model=model) for pair, model in zip(pairs, models, strict=True)]
            # Some hold all their images in memory.
            look.sources.clear()
            say_pairs(pairs, folder)
            placement = Placement(processes=processes, parallel=options.parallel)
            _Work(folder, device, placement, options.track).all({(pair.model, pair.data) for pair in pairs})


def _ensure_ours(folder: "TransferFolder") -> None:
    """What holds something else is not written into, not even a lock."""
    from vitrail.training.folder import is_vacant

    path = folder.path
    if not folder.config.is_file() and (path.is_symlink() or (path.exists() and not is_vacant(path))):
        raise UsageError("is there already and holds something else", where=str(path), fix="Choose another --name.")


@contextmanager
def _held(folder: "TransferFolder", processes: "Processes") -> Iterator[None]:
    """The lock of the whole, before anything is written; a folder that stays empty is not left behind."""
    from vitrail.training.whole import held

    try:
        with held(folder, processes):
            yield
    finally:
        if processes.is_first:
            with suppress(OSError):
                folder.path.rmdir()


def _join_folder(
    folder: "TransferFolder", pairs: "Sequence[Pair]", real_labels: Path | None, words: Sequence[str]
) -> list[str]:
    """Write down what will be done, and say what each model is called in the table.

    A table that is there grows, and fine-tunings that are there must be the same.
    """
    from vitrail.experiments.transfer_pairs import as_named_before, joined_pairs, read_pairs, write_pairs

    _ensure_ours(folder)
    before: Sequence[Pair] = ()
    real = None if real_labels is None else str(real_labels.expanduser().absolute())
    if folder.config.is_file():
        record = read_pairs(folder)
        before, real = record.pairs, real or record.real_labels
    pairs = as_named_before(before, pairs)
    for pair in pairs:
        if pair.plan is not None and folder.pair(pair).config.is_file():
            refuse_other(folder.pair(pair), pair.plan, words)
    write_pairs(folder, joined_pairs(before, pairs), real)
    return [pair.model for pair in pairs]


def _resume(options: Resume) -> None:
    from vitrail.experiments.transfer_pairs import TransferFolder, read_pairs
    from vitrail.runtime.device import find_device
    from vitrail.runtime.processes import joined, own_device
    from vitrail.training.spreading import Placement
    from vitrail.training.start import Allowed

    ensure_tracker(options.track)
    device = own_device(find_device(options.device))
    folder = TransferFolder(options.resume)
    allowed = Allowed(
        changed=options.allow_changed, workers=options.workers, root=options.root, micro_batch=options.micro_batch
    )
    with joined(device) as processes:
        with processes.together():
            pairs = read_pairs(folder).pairs
        say_pairs(pairs, folder)
        placement = Placement(processes=processes, parallel=options.parallel)
        _Work(folder, device, placement, options.track, allowed).all({(pair.model, pair.data) for pair in pairs})


class _Work:
    """Fine-tunings, one after the other; each resumes by itself, and none takes what another found with it."""

    def __init__(
        self,
        folder: "TransferFolder",
        device: "torch.device",
        placement: "Placement",
        track: Track,
        allowed: "Allowed | None" = None,
    ) -> None:
        from vitrail.training.stopping import Stopping

        self._folder, self._device, self._placement = folder, device, placement
        self._track: Track = track
        self._allowed = allowed
        self._processes: Processes = placement.processes
        self._stopping = Stopping(is_alone=self._processes.ranks == 1)
        self._failures: dict[str, VitrailError] = {}

    def all(self, wanted: set[tuple[str, str]]) -> None:
        """Do those of the folder that are wanted, show the table as it fills, and say in the end what is missing."""
        from vitrail.evaluation.real import read_real
        from vitrail.experiments.transfer_pairs import read_pairs
        from vitrail.training.whole import ensure_in_place, held, stoppable

        with (
            held(self._folder, self._processes),
            self._nothing_left_of_nothing(),
            stoppable(self._stopping, self._folder.resume_command, between="fine-tunings"),
        ):
            with self._processes.together():
                record = read_pairs(self._folder)
                real = None if record.real_labels is None else read_real(Path(record.real_labels))
            pairs = [pair for pair in record.pairs if (pair.model, pair.data) in wanted]
            for number, pair in enumerate(pairs, start=1):
                self._stopping.obey(self._processes)
                with self._stopping.interruptible():
                    pass
                with self._processes.together():
                    ensure_in_place(self._folder)
                came = self._one(pair, real, f"{number} of {len(pairs)}")
                is_last = number == len(pairs) or came == "apart"
                if came != "known" or is_last:
                    self._tell(record, is_last=is_last, is_in_step=came != "apart")
                if is_last:
                    break
            self._end(pairs, record.command)

    def _one(self, pair: "Pair", real: "RealLabels | None", place: str) -> Came:
        """Carry out the fine-tuning of a pair, if it is not known what comes of it."""
        from vitrail.runtime.processes import Elsewhere, LostProcess
        from vitrail.training.stopping import Stopped

        if pair.plan is None:
            self._fail(pair, DataError(pair.problem))
            return "known"
        folder = self._folder.pair(pair)
        is_done = self._processes.first_says(lambda: folder.result.is_file() and folder.config.is_file())
        say_pair(pair, place, is_done=is_done)
        try:
            self._finetuned(pair.plan, folder, real, is_done=is_done)
        except (Stopped, DiskError, Elsewhere, LostProcess):
            raise
        except VitrailError as error:
            self._fail(pair, error)
            return "new" if self._processes.ranks == 1 or error.is_shared else "apart"
        return "known" if is_done else "new"

    def _finetuned(self, plan: "Plan", folder: "FinetuneFolder", real: "RealLabels | None", *, is_done: bool) -> None:
        from vitrail.experiments.finetune_folder import read_plan
        from vitrail.experiments.finetune_result import read_result
        from vitrail.experiments.transfer_pairs import is_imagenet
        from vitrail.experiments.transfer_real import measure_seeds, read_seeds

        processes = self._processes
        with processes.together():
            plan = read_plan(folder) if folder.config.is_file() else plan
        if not is_done:
            carry_out(plan, folder, self._device, self._track, self._allowed, placement=self._placement)
        if real is None or not is_imagenet(plan):
            return
        with processes.together():
            before = read_seeds(folder) if processes.is_first else None
            if processes.is_first and (before is None or before.digest != real.digest):
                measure_seeds(folder, read_result(folder.result), measured_source(plan, self._device), real)

    def _fail(self, pair: "Pair", error: VitrailError) -> None:
        self._failures[pair.title] = error
        say_failure(pair, str(error))

    def _tell(self, record: "TransferRecord", *, is_last: bool, is_in_step: bool) -> None:
        """Write the table and show it."""
        from vitrail.experiments.transfer_page import transfer_page
        from vitrail.experiments.transfer_table import make_table, write_table
        from vitrail.reports.write import write_page
        from vitrail.training.whole import ensure_in_place

        with self._processes.together() if is_in_step else nullcontext():
            if self._processes.is_first:
                ensure_in_place(self._folder)
                failures = {title: str(error) for title, error in self._failures.items()}
                table = make_table(self._folder, record, failures)
                write_table(self._folder, table)
                write_page(self._folder.report, transfer_page(table, self._folder.path.resolve().name))
                say_table(table, is_last=is_last)
                if is_last:
                    say_table_files(self._folder)

    def _end(self, pairs: "Sequence[Pair]", command: str) -> None:
        if not self._failures:
            return
        first = next(iter(self._failures.values()))
        if not self._has_begun():
            raise first
        # Data that was absent has no plan to resume.
        is_planned = all(pair.plan is not None for pair in pairs)
        raise Incomplete(
            f"{len(self._failures)} of {len(pairs)} fine-tunings failed ({', '.join(self._failures)}); "
            "the others are kept",
            first.exit_code,
            fix=f"To try again: {self._folder.resume_command if is_planned else command}",
        )

    def _has_begun(self) -> bool:
        return any(self._folder.path.glob("*/*/config.json"))

    @contextmanager
    def _nothing_left_of_nothing(self) -> Iterator[None]:
        """A mistake that is found before any run has begun leaves no folder."""
        folder = self._folder
        try:
            yield
        except BaseException:
            if self._processes.is_first and not self._has_begun():
                for file in (folder.lock, folder.config, folder.page, folder.numbers, folder.report):
                    file.unlink(missing_ok=True)
                with suppress(OSError):
                    for path in (*folder.path.glob("*/"), folder.path):
                        path.rmdir()
            raise
