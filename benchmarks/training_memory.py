"""Peak memory of training on a GPU, beside what `vitrail info --train` says it will be."""

import argparse
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from machine import describe_machine, describe_versions
from noise_session import noise_config, noise_session

import vitrail
from vitrail.config import RunConfig
from vitrail.training.footprint import BATCHES_HELD, footprint
from vitrail.training.session import Session
from vitrail.training.step import GraphedStep
from vitrail.zoo import zoo_row

_WANTED = 0.1
# A graph is captured after three plain steps.
_STEPS, _STEPS_OF_GRAPHS = 3, 5


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    model: str
    batch: int
    compiled: bool
    recomputed: bool

    def __str__(self) -> str:
        return " | ".join(
            [
                self.model,
                str(self.batch),
                "compiled" if self.compiled else "eager",
                "computed again" if self.recomputed else "kept",
            ]
        )


def main() -> None:
    """Measure, and write Markdown after every case: a run that is cut short leaves what it measured."""
    options = _options()
    device = torch.device(options.device)
    lines = [
        "# Memory of training: measured and estimated",
        "",
        f"- machine: {describe_machine(device)}",
        f"- versions: {describe_versions([])}",
        f"- a step of `vitrail train`: bfloat16, Adam, clipping{', Polyak average' if options.average else ''}; "
        f"{BATCHES_HELD} batches of random images on the device, as the loader holds them",
        "- measured: torch.cuda.max_memory_allocated, from an empty device to the last step",
        "",
        "| network | batch | step | activations | measured | estimated | estimated / measured | within 10 % |",
        "|---|---:|---|---|---:|---:|---:|---|",
    ]
    for case in _cases(options):
        config = _config(case, options.average)
        estimated = footprint(config.model, config.train, config.optim).total
        measured = _measure(config, case, device)
        lines.append(f"| {case} | {_row(measured, estimated)} |")
        print(lines[-1], flush=True)
        Path(options.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def _row(measured: int | None, estimated: int) -> str:
    if measured is None:
        return f"not on a GPU | {estimated / 1e9:.3f} GB | | "
    ratio = estimated / measured
    verdict = "yes" if abs(ratio - 1) <= _WANTED else "**no**"
    return f"{measured / 1e9:.3f} GB | {estimated / 1e9:.3f} GB | {ratio:.3f} | {verdict}"


def _measure(config: RunConfig, case: Case, device: torch.device) -> int | None:
    """The most that was allocated at once while a fresh session made a few updates."""
    _forget(device)
    session = _session(config, device)
    size = (case.batch, config.model.channels, *config.model.image_size)
    batches = [torch.randn(size, device=device) for _ in range(BATCHES_HELD)]
    targets = torch.randint(config.model.num_classes, (case.batch,), device=device)
    for step in range(_STEPS_OF_GRAPHS if isinstance(session.step, GraphedStep) else _STEPS):
        session.step.accumulate(batches[step % BATCHES_HELD], targets)
        session.set_numbers()
        session.step.update()
    (happened, *_) = session.engine.read(1)
    assert happened.was_finite
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def _forget(device: torch.device) -> None:
    """Leave nothing of the last case on the device, the workspaces of its streams neither."""
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _session(config: RunConfig, device: torch.device) -> Session:
    with torch.device(device):
        network = vitrail.create_model(config.model)
    return noise_session(config, network, device)


def _config(case: Case, average: bool) -> RunConfig:
    return noise_config(
        zoo_row(case.model).config,
        batch=case.batch,
        steps=100,
        average=0.9999 if average else 0.0,
        precision="bfloat16",
        compile=case.compiled,
        checkpoint_activations=case.recomputed,
    )


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    """Eager ones first: they take seconds, and compiling takes a minute."""
    for step in options.steps:
        for model, batch in zip(options.models, options.batches, strict=True):
            for activations in options.activations:
                yield Case(model, batch, step == "compiled", activations == "again")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu runs every step and measures nothing")
    parser.add_argument("--models", nargs="+", default=["vit-b16", "vit-l16", "vit-h14"])
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 32, 16], help="one for each model")
    parser.add_argument("--steps", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"])
    parser.add_argument("--activations", nargs="+", choices=["kept", "again"], default=["kept", "again"])
    parser.add_argument("--average", action="store_true", help="with a Polyak average")
    parser.add_argument("--output", default="training-memory.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
