"""What a grid of l2 costs: one eigendecomposition beside a plain solve for each, in seconds and in peak memory."""

import argparse
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine, describe_versions

from vitrail.evaluation.closed_form import BIAS, decompose
from vitrail.evaluation.protocol import L2_GRID

_COMPARED = 2.0**10


def one_decomposition(x: np.ndarray, y: np.ndarray, classes: int) -> Iterator[tuple[float, np.ndarray]]:
    """Ours."""
    solved = decompose(x, y, classes)
    for l2 in L2_GRID:
        yield l2, solved.weights(l2).numpy()


def plain_solve(x: np.ndarray, y: np.ndarray, classes: int) -> Iterator[tuple[float, np.ndarray]]:
    """The formula as it stands, for each l2 anew."""
    for l2 in L2_GRID:
        whitened, targets = _whitened(x), _targets(y, classes)
        gram = whitened.T @ whitened + l2 * torch.eye(whitened.shape[1], dtype=torch.float64)
        yield l2, torch.linalg.solve(gram, whitened.T @ targets).numpy()


def solve_with_kept_products(x: np.ndarray, y: np.ndarray, classes: int) -> Iterator[tuple[float, np.ndarray]]:
    """XᵀX and XᵀY once, then a solve for each l2."""
    whitened, targets = _whitened(x), _targets(y, classes)
    gram, right = whitened.T @ whitened, whitened.T @ targets
    del whitened, targets
    for l2 in L2_GRID:
        yield l2, torch.linalg.solve(gram + l2 * torch.eye(len(gram), dtype=torch.float64), right).numpy()


def _whitened(x: np.ndarray) -> torch.Tensor:
    features = torch.tensor(x, dtype=torch.float64)
    features = (features - features.mean(0)) / (features.std(0, correction=0) + 1e-5)
    return torch.nn.functional.pad(features, (0, 1), value=BIAS)


def _targets(y: np.ndarray, classes: int) -> torch.Tensor:
    return 2 * torch.nn.functional.one_hot(torch.from_numpy(y), classes).double() - 1


Way = Callable[[np.ndarray, np.ndarray, int], Iterator[tuple[float, np.ndarray]]]
WAYS: dict[str, Way] = {
    "one eigendecomposition (vitrail)": one_decomposition,
    "a solve per l2, products kept": solve_with_kept_products,
    "a plain solve per l2": plain_solve,
}


def run_one(name: str, options: argparse.Namespace) -> tuple[float, float, np.ndarray]:
    """Seconds, peak megabytes above the features, and the weights at 2^10: in a process of its own."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(there, name, options))
    process.start()
    seconds, megabytes, weights = here.recv()
    process.join()
    return seconds, megabytes, weights


def _work(connection: Connection, name: str, options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(options.classes), options.shots)
    x = np.empty((len(y), options.dim), dtype=np.float32)
    # Class by class: what is made on the way must not be the peak that is measured.
    for number in range(options.classes):
        centre = generator.standard_normal(options.dim, dtype=np.float32)
        x[y == number] = centre + generator.standard_normal((options.shots, options.dim), dtype=np.float32)
    # A small one first, so that libraries have what they allocate once.
    list(WAYS[name](x[:20, :5], y[:20], options.classes))
    before, weights = _peak(), None
    started = time.perf_counter()
    for l2, found in WAYS[name](x, y, options.classes):
        if l2 == _COMPARED:
            weights = found
    connection.send((time.perf_counter() - started, _peak() - before, weights))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure in turns, and write Markdown."""
    options = _options()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    weights: dict[str, np.ndarray] = {}
    for number in range(options.rounds):
        for name in WAYS:
            seconds, megabytes, weights[name] = run_one(name, options)
            found[name].append((seconds, megabytes))
            print(f"round {number + 1} of {options.rounds}: {name}, {seconds:.1f} s", file=sys.stderr, flush=True)
    text = report(options, found, weights)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


def report(
    options: argparse.Namespace, found: dict[str, list[tuple[float, float]]], weights: dict[str, np.ndarray]
) -> str:
    """Markdown."""
    torch.set_num_threads(options.threads)
    first, *_, plain = weights.values()
    apart = float(np.abs(first - plain).max() / np.abs(plain).max())
    fastest = statistics.median(seconds for seconds, _ in next(iter(found.values())))
    lines = [
        f"# Few-shot: {options.shots} shots x {options.classes:,} classes x {options.dim:,} dimensions, "
        f"{len(L2_GRID)} values of l2",
        "",
        f"- machine: {describe_machine(torch.device('cpu'))}",
        f"- versions: {describe_versions([])}",
        f"- float64; weights for every l2; {options.rounds} rounds in turns, each in a process of its own",
        f"- weights at l2 = 2^10: ours and the plain solve differ by {apart:.1e} of the largest",
        "",
        "| way | seconds | times ours | peak memory above the features |",
        "|---|---:|---:|---:|",
    ]
    for name, values in found.items():
        seconds = statistics.median(value for value, _ in values)
        megabytes = statistics.median(value for _, value in values)
        lines.append(f"| {name} | {seconds:,.1f} | {seconds / fastest:,.1f} | {megabytes:,.0f} MB |")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shots", type=int, default=10)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
