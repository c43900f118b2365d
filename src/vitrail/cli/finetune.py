"""`vitrail finetune`: any model to your images, by the paper's protocol or by a rule for folders."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from vitrail.cli.finetune_words import say_files, say_recipe
from vitrail.cli.finetuning import Options, carry_out, parse, plan_finetuning, refuse_other, told_once
from vitrail.cli.launch import folder_of_this_launch, launch, split_processes
from vitrail.cli.train import Resume
from vitrail.cli.training import Destination, checking, claimed
from vitrail.cli.words import is_resume, positional, refuse_changes, refuse_derived, typed_value, with_short_names
from vitrail.errors import UsageError
from vitrail.recipes import folder_recipe
from vitrail.zoo import zoo_row

if TYPE_CHECKING:
    import torch

    from vitrail.experiments.finetune_plan import Plan
    from vitrail.runtime.processes import Processes


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail finetune SOURCE --data D ...`, or `vitrail finetune --resume FOLDER`."""
    processes, words = split_processes(words)
    if processes is not None and not {"-h", "--help"} & set(words):
        launch("finetune", words, processes)
        return
    if is_resume(words):
        refuse_changes(words)
        with told_once():
            _resume(tyro.cli(Resume, args=list(words), prog="vitrail finetune"))
        return
    source, rest = positional(Options, words)
    rest = with_short_names(rest)
    refuse_derived(rest)
    if {"-h", "--help"} & set(rest):
        parse(rest, zoo_row("vit-b16").config, folder_recipe(1000, 10, 224))
    if source is None:
        raise UsageError(
            "there is no model to start from",
            wanted="vitrail finetune SOURCE --data DATA",
            fix="`vitrail list models` shows names with published weights; a file, a folder or a run works as well.",
        )
    with told_once():
        _start(source, rest)


def _start(source: str, words: list[str]) -> None:
    from vitrail.experiments.finetune_folder import FinetuneFolder, ensure_new
    from vitrail.experiments.finetune_plan import final_runs, sweep_runs
    from vitrail.experiments.finetune_start import read_start
    from vitrail.runtime.device import find_device
    from vitrail.runtime.processes import joined, own_device
    from vitrail.training.sources import open_run_data
    from vitrail.training.spreading import Placement

    device = own_device(find_device(typed_value("--device", words) or "auto"))
    with joined(device) as processes:
        out = Path(typed_value("--out", words) or Options.out)
        if (before := processes.first_says(lambda: _begun(out))) is not None:
            # torchrun started this very command again.
            _go_on(Resume(resume=Path(before)), processes, device)
            return
        options, plan = processes.in_turn(lambda: plan_finetuning(read_start(source), words))
        if processes.first_says(lambda: _is_there(options, plan, words)):
            there = Resume(
                resume=options.out.expanduser() / str(options.name),
                parallel=options.parallel,
                workers=options.data.workers,
                micro_batch=options.train.micro_batch,
            )
            _go_on(there, processes, device)
            return
        # Every image of every split is read before the first step, so that no bad file is met hours later.
        first = [*sweep_runs(plan)[:1], *final_runs(plan, plan.rates[0])[:1]]
        data = processes.in_turn(lambda: [open_run_data(run.config.data, device, checking) for run in first])
        destination = Destination(options.out, options.name or plan.config.recipe, is_exact=bool(options.name))
        with claimed(destination, data[-1], processes) as target:
            folder = FinetuneFolder(target.path)
            with processes.together():
                if processes.is_first:
                    ensure_new(folder)
            say_recipe(plan, data, folder)
            placement = Placement(processes=processes, parallel=options.parallel)
            result = carry_out(plan, folder, device, options.track, placement=placement)
            say_files(plan, result, folder)


def _resume(options: Resume) -> None:
    from vitrail.runtime.device import find_device
    from vitrail.runtime.processes import joined, own_device

    device = own_device(find_device(options.device))
    with joined(device) as processes:
        _go_on(options, processes, device)


def _go_on(options: Resume, processes: "Processes", device: "torch.device") -> None:
    from vitrail.experiments.finetune_folder import FinetuneFolder, read_plan
    from vitrail.training.spreading import Placement
    from vitrail.training.start import Allowed
    from vitrail.training.whole import held

    folder = FinetuneFolder(options.resume)
    allowed = Allowed(
        changed=options.allow_changed, workers=options.workers, root=options.root, micro_batch=options.micro_batch
    )
    with processes.together():
        plan = read_plan(folder)
    placement = Placement(processes=processes, parallel=options.parallel)
    with held(folder, processes):
        result = carry_out(plan, folder, device, None, allowed, placement=placement)
    say_files(plan, result, folder)


def _is_there(options: Options, plan: "Plan", words: list[str]) -> bool:
    """Whether the same fine-tuning was begun before under this name; another one is refused."""
    from vitrail.experiments.finetune_folder import FinetuneFolder

    if not options.or_resume:
        return False
    if not options.name:
        raise UsageError("--or-resume is given without a name", wanted="--name NAME, to find it again")
    folder = FinetuneFolder(options.out.expanduser() / options.name)
    if not folder.config.is_file():
        return False
    refuse_other(folder, plan, words)
    return True


def _begun(out: Path) -> str | None:
    """The fine-tuning that this launch began, before torchrun restarted it."""
    before = folder_of_this_launch(out)
    return str(before) if before is not None and (before / "config.json").is_file() else None
