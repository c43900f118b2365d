"""How fast the features of a folder of photos are extracted: ours beside timm's, from the same files in one run."""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from agreement import with_weights_of
from loading import repeated_folder
from machine import describe_machine, describe_versions
from peers import OURS, PEERS, comparable, randomise
from torch import nn

from vitrail.config import preset
from vitrail.data import Preparation, open_data
from vitrail.evaluation.features import extract_features
from vitrail.evaluation.subject import Subject
from vitrail.zoo import zoo_row

TIMM = "timm"
_WITHIN = 1e-4
_PREPARED = "augreg"


@dataclass(frozen=True)
class Setting:
    """What both are asked for."""

    folder: Path
    subject: Subject
    theirs: nn.Module
    batch: int
    workers: int
    bfloat16: bool


def ours(setting: Setting) -> np.ndarray:
    """As `vitrail fewshot` extracts them, without the cache."""
    source = open_data(setting.folder)
    return extract_features(setting.subject, source, batch_size=setting.batch, workers=setting.workers)


def timms(setting: Setting) -> np.ndarray:
    """timm's loader and network, as its documentation puts them together."""
    from timm.data import create_loader
    from timm.data.dataset import ImageDataset

    subject, preparation = setting.subject, setting.subject.preparation
    loader = create_loader(
        ImageDataset(str(setting.folder)),
        input_size=(3, *preparation.size),
        batch_size=setting.batch,
        is_training=False,
        use_prefetcher=True,
        interpolation=preparation.preprocessing.interpolation,
        crop_pct=preparation.preprocessing.crop,
        mean=preparation.preprocessing.mean,
        std=preparation.preprocessing.std,
        num_workers=setting.workers,
        device=subject.device,
        pin_memory=subject.device.type == "cuda",
    )
    network, parts = setting.theirs, []
    autocast = torch.autocast(subject.device.type, torch.bfloat16, enabled=setting.bfloat16)
    with torch.inference_mode(), autocast:
        for images, _labels in loader:
            found = network.forward_head(network.forward_features(images), pre_logits=True)
            parts.append(found.float().cpu().numpy())
    return np.concatenate(parts)


CONTENDERS: dict[str, Callable[[Setting], np.ndarray]] = {OURS: ours, TIMM: timms}


def make_setting(options: argparse.Namespace, folder: Path) -> Setting:
    """timm's network with random weights, and ours with the same."""
    config = comparable(options.model, zoo_row(options.model).config)
    device = torch.device(options.device)
    theirs = randomise(PEERS[TIMM].build(config), seed=0).to(device).eval()
    model = with_weights_of(theirs.cpu(), config).to(device).eval()
    preparation = Preparation(size=config.image_size, preprocessing=preset(_PREPARED))
    subject = Subject(OURS, model, preparation, device, options.bfloat16)  # type: ignore[arg-type]
    return Setting(folder, subject, theirs.to(device), options.batch, options.workers, options.bfloat16)


def difference(setting: Setting) -> tuple[float, float]:
    """How far the features are apart, and how large they are; in float32 they have to be the same."""
    mine, theirs = ours(setting), timms(setting)
    apart, largest = float(np.abs(mine - theirs).max()), float(np.abs(theirs).max())
    # Written so that NaN fails.
    if not (apart <= _WITHIN * largest or setting.bfloat16) or mine.shape != theirs.shape:
        raise RuntimeError(f"features differ by {apart:.2e} of {largest:.2e}; wanted {_WITHIN:.0e} of it")
    return apart, largest


def measure(setting: Setting, rounds: int, images: int) -> dict[str, list[float]]:
    """Images per second of each in each round, from the first file to the last row."""
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for number in range(rounds):
        for name in random.Random(number).sample(list(CONTENDERS), len(CONTENDERS)):
            started = time.perf_counter()
            CONTENDERS[name](setting)
            rates[name].append(images / (time.perf_counter() - started))
            print(
                f"round {number + 1} of {rounds}: {name}, {rates[name][-1]:,.1f} images/s", file=sys.stderr, flush=True
            )
    return rates


def report(options: argparse.Namespace, setting: Setting, apart: tuple[float, float], rates: dict) -> str:
    """Markdown."""
    ratios = [mine / theirs for mine, theirs in zip(rates[OURS], rates[TIMM], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    numbers = "bf16 autocast" if options.bfloat16 else "float32"
    lines = [
        f"# Features: {options.model} on {options.images:,} photos, {numbers}, in batches of {options.batch}",
        "",
        f"- machine: {describe_machine(setting.subject.device)}; {options.workers} workers",
        f"- versions: {describe_versions([TIMM])}",
        f"- from files to an array in memory, prepared as `{_PREPARED}`; workers started anew each time",
        f"- {options.rounds} rounds in random order",
        f"- the same features: largest difference {apart[0]:.1e}, largest feature {apart[1]:.2f}",
        "",
        "| library | images/s | quartiles |",
        "|---|---:|---:|",
    ]
    for name, values in rates.items():
        below, _, above = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        lines.append(f"| {name} | {statistics.median(values):,.1f} | {below:,.1f} to {above:,.1f} |")
    lines += ["", f"Ours / timm's, paired by round: {middle:.3f} ({low:.3f} to {high:.3f})."]
    return "\n".join(lines)


def main() -> None:
    """Compare, measure, and write Markdown."""
    options = _options()
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = repeated_folder(options.photos, Path(scratch) / "photos", options.images)
        setting = make_setting(options, folder)
        apart = difference(setting)
        print(f"largest difference {apart[0]:.1e}", file=sys.stderr, flush=True)
        text = report(options, setting, apart, measure(setting, options.rounds, options.images))
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path, help="a folder of photos")
    parser.add_argument("--model", default="vit-ti16", help="a class-token ViT of the zoo")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--threads", type=int, default=2, help="on a CPU")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
