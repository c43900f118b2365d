"""How fast our networks are beside timm's, torchvision's, Hugging Face's and vit-pytorch's: `--help` lists the options.

The README beside this file says what is compared and why that is fair.
"""

import argparse
import datetime
import gc
import itertools
import shlex
import sys
from pathlib import Path

import torch
from agreement import Agreement
from contenders import Contenders, build_contenders
from machine import describe_machine, describe_versions
from peers import OURS, PEERS, comparable
from rounds import Case, Result, agreement_section, case_section, document, summary_section
from timing import STEPS, Batches, Plan, Step, interleave, make_batches, peak_memory, run_untimed

from vitrail.errors import UsageError, VitrailError
from vitrail.zoo import zoo_row

# Per device: batch, iterations, settle, warm_up. One step of a real network on a CPU is long enough to be timed alone.
_DEFAULTS = {"cpu": (8, 1, 0, 2), "cuda": (256, 10, 1, 3)}


def measure(case: Case, contenders: Contenders, batches: Batches, plan: Plan, options: argparse.Namespace) -> Result:
    """Warm every contender up, then time them in turns."""
    device = batches.images[0].device
    torch._dynamo.reset()
    steps: dict[str, Step] = {}
    memory: dict[str, int | None] = {}
    left_out = dict(contenders.left_out)
    for name, network in contenders.networks.items():
        network.train(case.mode == "training")
        runnable = torch.compile(network, mode=options.compile_mode) if case.compiled else network
        step = STEPS[case.mode](runnable, batches, options.dtype == "bf16")
        problem = _first_run(step, plan, device, may_fail=not name.startswith(OURS))
        if problem:
            left_out[name] = problem
            print(f"{case}: {name} is left out: {problem}.", flush=True)
            network.zero_grad(set_to_none=True)
            release_memory()
            continue
        memory[name] = peak_memory(step, network, device)
        steps[name] = step
    return Result(case=case, seconds=interleave(steps, plan, device), memory=memory, left_out=left_out)


def _first_run(step: Step, plan: Plan, device: torch.device, *, may_fail: bool) -> str:
    """Compile and warm up; a peer that cannot run, for want of memory say, costs its own row and not the others'."""
    try:
        run_untimed(step, plan.warm_up, device)
    except Exception as error:
        if not may_fail:
            raise
        lines = str(error).strip().splitlines() or ["no message"]
        return f"{type(error).__name__}: {lines[0][:200].rstrip('.')}"
    return ""


def release_memory() -> None:
    """Give back what the last case left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def describe_run(options: argparse.Namespace, plan: Plan, device: torch.device) -> dict[str, str]:
    """What stands above the results."""
    present = [name for name in options.peers if PEERS[name].installed]
    float32 = f"float32, matrix products at torch's {torch.get_float32_matmul_precision()!r} precision"
    numbers = "bf16 autocast over float32 weights" if options.dtype == "bf16" else float32
    return {
        "Machine": describe_machine(device),
        "Versions": describe_versions(present),
        "Date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Command": f"`python benchmarks/speed.py {shlex.join(sys.argv[1:])}`",
        "Numbers": numbers,
        "Rounds": f"{plan.rounds}, each of {plan.iterations} timed iterations per contender in a shuffled order",
        "Compile mode": options.compile_mode,
    }


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Time our networks beside those of other libraries.")
    add = parser.add_argument
    add("--device", choices=sorted(_DEFAULTS), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--models", nargs="+", default=["vit-s16", "vit-b16", "vit-l16"], metavar="KEY", help="class-token ViTs")
    add("--modes", nargs="+", choices=list(STEPS), default=list(STEPS))
    add("--compile", action=argparse.BooleanOptionalAction, help="compiled or eager alone; both if not given")
    add("--compile-mode", default="default", help="mode of torch.compile")
    add("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    add("--dtype", choices=["float32", "bf16"], default="float32", help="bf16 is autocast over float32 weights")
    add("--batch", type=_positive, help="images per step: 8 on CPU, 256 on CUDA")
    add("--rounds", type=_positive, default=15)
    add("--iterations", type=_positive, help="timed steps per contender and round: 1 on CPU, 10 on CUDA")
    add("--settle", type=int, help="untimed steps before them: 0 on CPU, 1 on CUDA")
    add("--warm-up", type=_positive, help="untimed steps before the first round: 2 on CPU, 3 on CUDA")
    add("--threads", type=_positive, default=2, help="threads on CPU")
    add("--again", action="store_true", help="time ours twice, to see the noise")
    add("--seed", type=int, default=0)
    add("--output", type=Path, help="Markdown file, written anew after every case")
    options = parser.parse_args(arguments)
    for name, value in zip(("batch", "iterations", "settle", "warm_up"), _DEFAULTS[options.device], strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def run(options: argparse.Namespace) -> None:
    """Measure every case and write what is known after each."""
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA device", fix="Use --device cpu.")
    if options.output is not None and not options.output.parent.is_dir():
        raise UsageError(f"there is no folder {str(options.output.parent)!r} for the results")
    if device.type == "cpu":
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    for model in options.models:
        comparable(model, zoo_row(model).config)
    plan = Plan(
        rounds=options.rounds,
        iterations=options.iterations,
        settle=options.settle,
        warm_up=options.warm_up,
        seed=options.seed,
    )
    facts = describe_run(options, plan, device)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    executions = [False, True] if options.compile is None else [options.compile]
    agreements: list[Agreement] = []
    results: list[Result] = []
    for model in options.models:
        contenders = build_contenders(model, options.peers, again=options.again, seed=options.seed)
        agreements += contenders.agreements
        for network in contenders.networks.values():
            network.to(device)
        config = comparable(model, zoo_row(model).config)
        batches = make_batches(
            options.batch, config.channels, config.image_size, config.num_classes, device, options.seed
        )
        for mode, compiled in itertools.product(options.modes, executions):
            case = Case(model=model, mode=mode, compiled=compiled, batch=options.batch)
            results.append(measure(case, contenders, batches, plan, options))
            print(f"\n{case_section(results[-1])}\n", flush=True)
            if options.output is not None:
                options.output.write_text(document(facts, agreements, results), encoding="utf-8")
            release_memory()
        del contenders, batches
        release_memory()
    print("\n\n".join([agreement_section(agreements), summary_section(results)]))


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too small; wanted 1 or more")
    return value


if __name__ == "__main__":
    try:
        run(read_options())
    except VitrailError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
