"""What a step of learning without labels costs: masked patch prediction beside a masked autoencoder, and classes."""

import argparse
import gc
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from machine import describe_machine, describe_versions
from noise_session import noise_config, noise_session

from vitrail.config import MaskingConfig, RunConfig, VitConfig
from vitrail.models import build
from vitrail.models.masked import build_masked
from vitrail.recipes import recipe
from vitrail.zoo import zoo_row

# The graphs are captured in the first of them.
_SETTLE = 8
_CLASSES = 1000
_BATCHES = 2


@dataclass(frozen=True)
class Measured:
    """The median of single steps, and the most memory that was held."""

    milliseconds: float
    gigabytes: float


def main() -> None:
    """Measure each way to learn on the same network, and write Markdown with ratios."""
    options = _options()
    device = torch.device(options.device)
    lines = [
        "# A step of learning without labels",
        "",
        f"- machine: {describe_machine(device)}",
        f"- versions: {describe_versions([])}",
        f"- a step of `vitrail train`: bfloat16, Adam{', compiled' * options.compile}; images on the device; "
        f"the median of {options.steps} steps",
        "- memory: torch.cuda.max_memory_allocated, from an empty device to the last step",
        "",
    ]
    for model in options.models:
        lines += [
            f"## {model}, {options.batch} images",
            "",
            "| what is learnt | step | memory | step / patches | memory / patches |",
            "|---|---:|---:|---:|---:|",
        ]
        found = {name: _measure(model, masking, options, device) for name, masking in _ways().items()}
        base = found["patches, mean colour"]
        for name, one in found.items():
            held = f"{one.gigabytes:.2f} GB" if one.gigabytes else "not measured"
            share = f"{one.gigabytes / base.gigabytes:.2f}" if base.gigabytes else ""
            slower = one.milliseconds / base.milliseconds
            lines.append(f"| {name} | {one.milliseconds:.1f} ms | {held} | {slower:.2f} | {share} |")
            print(lines[-1], flush=True)
        lines.append("")
    text = "\n".join(lines)
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
    print(text)


def _ways() -> dict[str, MaskingConfig | None]:
    autoencoder = recipe("mae-vit-b16").masking
    return {
        "patches, mean colour": MaskingConfig(),
        "patches, 4x4 colours": MaskingConfig(target="small_patch"),
        "patches, pixels": MaskingConfig(target="pixels"),
        "autoencoder, 75 % left out, decoder 8 x 512": autoencoder,
        "classes, for comparison": None,
    }


def _measure(model: str, masking: MaskingConfig | None, options: argparse.Namespace, device: torch.device) -> Measured:
    _forget(device)
    config = _config(model, masking, options)
    network = build(config.model) if masking is None else build_masked(config.model, masking, config.preprocessing)
    session, seconds = noise_session(config, network, device), []
    side = config.model.image_size
    batches = [torch.rand(options.batch, config.model.channels, *side, device=device) for _ in range(_BATCHES)]
    targets = torch.arange(options.batch, device=device)
    for number in range(_SETTLE + options.steps):
        start = _now(device)
        session.seed_dropout(0)
        session.step.accumulate(batches[number % _BATCHES], targets)
        session.set_numbers()
        session.step.update()
        session.progress = replace(session.progress, step=number + 1)
        if number >= _SETTLE:
            seconds.append(_now(device) - start)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return Measured(1000 * statistics.median(seconds), peak / 1e9)


def _config(model: str, masking: MaskingConfig | None, options: argparse.Namespace) -> RunConfig:
    network = zoo_row(model).config
    assert isinstance(network, VitConfig)
    classes = _CLASSES if masking is None else 0
    config = noise_config(
        replace(network, num_classes=classes, pre_logits=None),
        batch=options.batch,
        steps=_SETTLE + options.steps,
        compile=options.compile,
        precision="bfloat16" if options.device.startswith("cuda") else "float32",
    )
    return replace(config, masking=masking)


def _forget(device: torch.device) -> None:
    """Leave nothing of the last case on the device."""
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["vit-b16"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true", help="compiled, in CUDA graphs; takes a minute for each")
    parser.add_argument("--output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
