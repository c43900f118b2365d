"""Attention rollout and distance at 224 and 1024 pixels: seconds and peak memory, of all layers and of chosen ones."""

import argparse
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from machine import describe_machine, describe_versions
from torch import Tensor

from vitrail import create_model
from vitrail.inspection import attention_distance, attention_maps, attention_rollout
from vitrail.models import VisionTransformer

_FEW = (-4, -3, -2, -1)
# The plain way keeps every matrix of every layer; beyond this many gigabytes it is not tried.
_MOST_GIGABYTES = 4.0


def forward_alone(model: VisionTransformer, images: Tensor) -> Tensor:
    """The network without a look inside."""
    with torch.no_grad():
        return model(images)


def plain_rollout(model: VisionTransformer, images: Tensor) -> Tensor:
    """As it is usually written: the attention of all layers is kept, then one matrix is multiplied by the next."""
    with torch.no_grad():
        _, attention = model.forward_tapped(images, range(model.config.depth))
        one = torch.eye(model.config.tokens)
        product = one.expand(len(images), -1, -1)
        for weights in attention.values():
            mixed = weights.mean(dim=1) + one
            product = mixed / mixed.sum(dim=-1, keepdim=True) @ product
    return product[:, 0, 1:]


Way = Callable[[VisionTransformer, Tensor], Tensor]
WAYS: dict[str, Way] = {
    "forward pass alone": forward_alone,
    "rollout, all 12 layers": attention_rollout,
    "rollout, last 4 layers": lambda model, images: attention_rollout(model, images, _FEW),
    "distance, all 12 layers": attention_distance,
    "distance, layer 0": lambda model, images: attention_distance(model, images, [0]),
    "maps, layer 0": lambda model, images: attention_maps(model, images, [0]),
    "plain rollout: all matrices kept": plain_rollout,
}


def matrices(model_size: int, options: argparse.Namespace) -> float:
    """Gigabytes of the attention of all layers for one image."""
    with torch.device("meta"):
        config = create_model(options.model, image_size=model_size).config
    return config.depth * config.num_heads * config.tokens**2 * 4 / 1e9


def run_one(name: str, size: int, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds per image, and peak megabytes above the network and its image: in a process of its own."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(there, name, size, options))
    process.start()
    seconds, megabytes = here.recv()
    process.join()
    return seconds, megabytes


def _work(connection: Connection, name: str, size: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = create_model(options.model, image_size=size).eval()
    images = torch.randn(1, 3, size, size)
    # A small network first, so that libraries have what they allocate once.
    WAYS[name](create_model("vit-test", depth=12, image_size=32).eval(), torch.randn(1, 3, 32, 32))  # type: ignore[arg-type]
    before = _peak()
    started = time.perf_counter()
    WAYS[name](model, images)  # type: ignore[arg-type]
    connection.send((time.perf_counter() - started, _peak() - before))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure in turns, and write Markdown."""
    options = _options()
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for number in range(options.rounds):
        for size in options.sizes:
            for name in WAYS:
                if name.startswith("plain") and matrices(size, options) > _MOST_GIGABYTES:
                    continue
                found.setdefault((name, size), []).append(run_one(name, size, options))
                told = f"round {number + 1} of {options.rounds}, {size} px: {name}, {found[name, size][-1][0]:.1f} s"
                print(told, file=sys.stderr, flush=True)
    text = report(options, found)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


def report(options: argparse.Namespace, found: dict[tuple[str, int], list[tuple[float, float]]]) -> str:
    """Markdown."""
    torch.set_num_threads(options.threads)
    lines = [
        f"# Looking inside {options.model}: {' and '.join(map(str, options.sizes))} px, one image",
        "",
        f"- machine: {describe_machine(torch.device('cpu'))}{'; ' + options.note if options.note else ''}",
        f"- versions: {describe_versions([])}",
        f"- float32, eager; medians of {options.rounds} rounds in turns, each in a process of its own",
        "- memory: peak of the process above the network and its image",
    ]
    for size in options.sizes:
        lines += [
            "",
            f"## {size} px ({_tokens(options.model, size):,} tokens; the attention of all layers would be "
            f"{matrices(size, options):.2f} GB)",
            "",
            "| what | seconds | peak memory |",
            "|---|---:|---:|",
        ]
        for name in WAYS:
            if (name, size) in found:
                seconds = statistics.median(value for value, _ in found[name, size])
                megabytes = statistics.median(value for _, value in found[name, size])
                lines.append(f"| {name} | {seconds:,.2f} | {megabytes:,.0f} MB |")
            else:
                lines.append(f"| {name} | not tried | over {_MOST_GIGABYTES:g} GB |")
    return "\n".join(lines)


def _tokens(model: str, size: int) -> int:
    with torch.device("meta"):
        return create_model(model, image_size=size).config.tokens


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="vit-b16")
    parser.add_argument("--sizes", type=int, nargs="+", default=[224, 1024])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--note", default="")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
