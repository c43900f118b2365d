"""How fast a model answers on a CPU: our backends beside the libraries and the runtimes fed with timm's export.

Weights are equal where libraries allow it, and every runtime's logits are compared with the network it was made from.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from agreement import logits_of
from contenders import build_contenders
from machine import describe_machine, describe_versions
from peers import OURS, PEERS
from timing import Batches, Plan, Step, inference_step, interleave, make_batches, run_untimed
from torch import nn

from vitrail.exporting.exported import open_exported
from vitrail.exporting.write import write_unverified
from vitrail.zoo import zoo_row

_CPU = torch.device("cpu")
_SUFFIX = {"onnx": ".onnx", "openvino": ".xml"}
_RUNTIME = {"onnx": "onnxruntime", "openvino": "OpenVINO"}
Run = Callable[[np.ndarray], np.ndarray]


def runtime_step(run: Run, batches: Batches) -> Step:
    """One answer from a runtime, arrays in and arrays out."""
    arrays = [images.numpy() for images in batches.images]
    return lambda number: void(run(arrays[number % len(arrays)]))


def void(_value: object) -> None:
    """A step gives nothing."""


def of_ours(network: nn.Module, kind: str, folder: Path, threads: int) -> Run:
    """Our network in a runtime, through our own export."""
    path = folder / f"ours{_SUFFIX[kind]}"
    write_unverified(network, path, kind)  # type: ignore[arg-type]
    opened = open_exported(path, threads=threads)
    return lambda images: opened.run(images)[0]


def of_timm(network: nn.Module, kind: str, folder: Path, threads: int, size: tuple[int, int]) -> Run:
    """timm's network in a runtime, exported as torch's documentation does it."""
    path = folder / "timm.onnx"
    if not path.exists():
        batch = torch.export.Dim("batch")
        torch.onnx.export(
            network, (torch.zeros(2, 3, *size),), path, dynamo=True, dynamic_shapes=({0: batch},), external_data=False
        )
    if kind == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda images: session.run(None, {name: images})[0]
    import openvino

    compiled = openvino.Core().compile_model(
        str(path), "CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    )
    return lambda images: compiled([images])[0]


def steps_of(model: str, batch: int, threads: int, folder: Path) -> tuple[dict[str, Step], list[str]]:
    """Every contender, warm and compared."""
    config = zoo_row(model).config
    size = config.image_size
    found = build_contenders(model, list(PEERS), again=False, seed=0)
    batches = make_batches(batch, config.channels, size, config.num_classes, _CPU, 0)
    steps: dict[str, Step] = {}
    notes: list[str] = []
    for name, network in found.networks.items():
        network.eval()
        steps[f"{name}, eager"] = inference_step(network, batches, False)
        steps[f"{name}, compiled"] = inference_step(torch.compile(network), batches, False)  # type: ignore[arg-type]
    makers = {OURS: of_ours, "timm": lambda *given: of_timm(*given, size)}
    for name, make in makers.items():
        network = found.networks[name]
        with torch.inference_mode():
            expected = logits_of(network(batches.images[0])).numpy()
        for kind in _SUFFIX:
            run = make(network, kind, folder, threads)
            apart = float(np.abs(run(batches.images[0].numpy()) - expected).max())
            notes.append(f"{model}, {name} in {_RUNTIME[kind]}: logits within {apart:.1e}")
            print(notes[-1], flush=True)
            steps[f"{name}, {_RUNTIME[kind]}"] = runtime_step(run, batches)
    return steps, notes


def section(title: str, seconds: dict[str, list[float]], batch: int) -> str:
    """A table of a case, the fastest first, and our best beside the best of the others."""
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    rows = []
    for name in sorted(middle, key=middle.__getitem__):
        low, _, high = statistics.quantiles(seconds[name], n=4, method="inclusive")
        rows.append(
            f"| {name} | {middle[name] * 1000:,.1f} | {batch / middle[name]:,.1f} | {low * 1000:,.1f} to "
            f"{high * 1000:,.1f} | {middle['timm, eager'] / middle[name]:.2f} |"
        )
    best = min((name for name in middle if name.startswith(OURS)), key=middle.__getitem__)
    rival = min((name for name in middle if not name.startswith(OURS)), key=middle.__getitem__)
    paired = [theirs / ours for ours, theirs in zip(seconds[best], seconds[rival], strict=True)]
    low, ratio, high = statistics.quantiles(paired, n=4, method="inclusive")
    verdict = f"Our best, {best}, has {ratio:.3f} (quartiles {low:.3f} to {high:.3f}) of the speed of {rival}."
    head = "| contender | ms | images/s | quartiles, ms | of timm eager's speed |\n|---|---:|---:|---:|---:|"
    return f"## {title}\n\n{verdict}\n\n{head}\n" + "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["vit-s16", "vit-b16"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sections, notes = [], []
    plan = Plan(rounds=options.rounds, iterations=1, settle=1, warm_up=2, seed=0)
    for model in options.models:
        for batch in options.batches:
            torch._dynamo.reset()
            with tempfile.TemporaryDirectory() as folder:
                steps, said = steps_of(model, batch, options.threads, Path(folder))
                notes += said
                for step in steps.values():
                    run_untimed(step, plan.warm_up, _CPU)
                seconds = interleave(steps, plan, _CPU)
            sections.append(section(f"{model}, batch {batch}", seconds, batch))
            print(sections[-1], flush=True)
            if options.output is not None:
                options.output.write_text(_document(options, sections, notes), encoding="utf-8")


def _document(options: argparse.Namespace, sections: list[str], notes: list[str]) -> str:
    import importlib.metadata

    runtimes = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("onnxruntime", "openvino"))
    facts = [
        f"- machine: {describe_machine(_CPU)}",
        f"- versions: {describe_versions([name for name in PEERS if PEERS[name].installed])}, {runtimes}",
        f"- float32; {options.rounds} rounds, all contenders of a case in each of them in shuffled order, one untimed",
        "  step before each timed one; medians; vit-pytorch's network is another function of equal size",
    ]
    compared = "\n".join(f"- {note}" for note in dict.fromkeys(notes))
    return "\n\n".join(["# Answers on a CPU", "\n".join(facts), *sections, f"## Compared\n\n{compared}"]) + "\n"


if __name__ == "__main__":
    main()
