"""What DDP and FSDP2 cost before there is a second process: a step in each, beside a plain one, on one device."""

import argparse
import os
import socket
import statistics
import time
from pathlib import Path

import torch
from machine import describe_machine, describe_versions
from noise_session import noise_config, noise_session

import vitrail
from vitrail.config import replace
from vitrail.runtime.processes import Processes, joined
from vitrail.training.session import Session
from vitrail.training.spread import Placement
from vitrail.training.step import GraphedStep
from vitrail.zoo import zoo_row

_CLASSES = 1000
_WARM = 5


def main() -> None:
    """Measure in turns, and write Markdown."""
    options = _options()
    device = torch.device(options.device)
    _pretend_to_be_launched()
    lines = [
        "# What DDP and FSDP2 cost with one process",
        "",
        f"- machine: {describe_machine(device)}",
        f"- versions: {describe_versions([])}",
        f"- a step of `vitrail train`: with clipping and Adam, {_precision(device)}; one batch, on the device",
        "- plain: without wrapper and without CUDA graphs; graphs: what one process uses by itself when it is compiled",
        "",
        "| network | batch | step | | images/s | against plain | quartiles |",
        "|---|---:|---|---|---:|---:|---:|",
    ]
    with joined(device) as processes:
        for model, batch in zip(options.models, options.batches, strict=True):
            for step in options.steps:
                lines += _rows(model, batch, step == "compiled", device, processes, options)
                print("\n".join(lines[-4:]), flush=True)
                torch._dynamo.reset()
                Path(options.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines += ["", f"Medians over {options.rounds} rounds of {options.iterations} steps each, in turn."]
    Path(options.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _rows(
    model: str, batch: int, compiled: bool, device: torch.device, processes: Processes, options: argparse.Namespace
) -> list[str]:
    config = noise_config(
        replace(zoo_row(model).config, {"num_classes": _CLASSES}, kind="model"),
        batch=batch,
        steps=10**6,
        precision=_precision(device),
        compile=compiled,
    )
    placements = {
        "plain": None,
        "DDP": Placement(processes=processes, parallel="ddp"),
        "FSDP2": Placement(processes=processes, parallel="fsdp"),
    }
    sessions = {name: _session(config, device, placement) for name, placement in placements.items()}
    if isinstance(sessions["plain"].step, GraphedStep):
        sessions["graphs"] = sessions["plain"]
        sessions["plain"] = _session(config, device, None, captured=False)
    images = torch.randn(batch, 3, *config.model.image_size, device=device)
    targets = torch.randint(_CLASSES, (batch,), device=device)
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for number in range(options.rounds + 1):
        for name, session in sessions.items():
            taken = _seconds(session, images, targets, options.iterations if number else _WARM)
            if number:
                seconds[name].append(taken)
    return [_row(model, batch, compiled, name, seconds, options.iterations) for name in seconds]


def _session(
    config: vitrail.config.RunConfig, device: torch.device, placement: Placement | None, captured: bool = True
) -> Session:
    with torch.device(device):
        network = vitrail.create_model(config.model)
    session = noise_session(config, network, device, placement)
    if not captured:
        session.spread.can_be_captured = False
        session.rebuild_step()
    return session


def _seconds(session: Session, images: torch.Tensor, targets: torch.Tensor, iterations: int) -> float:
    _wait(session.device)
    begin = time.perf_counter()
    for _ in range(iterations):
        session.step.accumulate(images, targets)
        session.set_numbers()
        session.step.update()
    _wait(session.device)
    return time.perf_counter() - begin


def _row(model: str, batch: int, compiled: bool, name: str, seconds: dict[str, list[float]], iterations: int) -> str:
    rate = batch * iterations / statistics.median(seconds[name])
    ratios = [plain / mine for plain, mine in zip(seconds["plain"], seconds[name], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    step = "compiled" if compiled else "eager"
    return f"| {model} | {batch} | {step} | {name} | {rate:,.1f} | {middle:.4f} | {low:.4f} to {high:.4f} |"


def _precision(device: torch.device) -> str:
    return "bfloat16" if device.type == "cuda" else "float32"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _pretend_to_be_launched() -> None:
    """The variables that torchrun sets for one process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    names = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--models", nargs="+", default=["vit-b16", "vit-l16"])
    parser.add_argument("--batches", nargs="+", type=int, default=[256, 128], help="one for each model")
    parser.add_argument("--steps", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=10, help="steps in a round")
    parser.add_argument("--output", default="wrappers.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
