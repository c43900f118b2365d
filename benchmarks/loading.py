"""How many training images per second an input pipeline delivers: ours beside timm's and torchvision's in one run."""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from loading_contenders import OURS, PEERS, PREFETCH, SIZE, Batches, Setting, preparation
from machine import describe_machine, describe_versions

from vitrail.data import open_data
from vitrail.data.decoding.fast_decode import measure_difference
from vitrail.data.loading.difference import batch_difference
from vitrail.data.pack import PackOptions, pack


def main() -> None:
    """Measure and write Markdown."""
    options = _options()
    device = torch.device(options.device)
    with tempfile.TemporaryDirectory() as scratch:
        folder = repeated_folder(Path(options.photos), Path(scratch) / "photos", options.images)
        packed = Path(scratch) / "packed"
        pack({"train": open_data(folder)}, packed, PackOptions(short_side=256, workers=options.workers))
        setting = Setting(folder, packed, options.batch, options.workers, device)
        rates = measure(setting, {**OURS, **PEERS}, options.rounds, options.batches)
        text = "\n".join([*_head(setting, options), *_table(rates), *_difference(folder, device)])
        if device.type == "cuda":
            from loading_step import step_section

            text += "\n" + step_section(setting, options.steps)
    Path(options.output).write_text(text + "\n", encoding="utf-8")
    print(text)


def repeated_folder(photos: Path, folder: Path, images: int) -> Path:
    """Links to the photos, over and over, in two class folders."""
    files = sorted(path for path in photos.iterdir() if path.is_file())
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    for number in range(images):
        file = files[number % len(files)]
        (folder / "ab"[number % 2] / f"{number:06d}{file.suffix}").symlink_to(file.resolve())
    return folder


def measure(
    setting: Setting, contenders: dict[str, Callable[[Setting], Batches]], rounds: int, batches: int
) -> dict[str, list[float]]:
    """Images per second of each contender in each round; every round starts its workers anew and lets them settle."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in random.Random(number).sample(list(contenders), len(contenders)):
            stream = contenders[name](setting)
            # What was ready before the clock starts must not be counted: as many batches as may be waiting.
            for _ in range(setting.workers * PREFETCH + 4):
                next(stream)
            rates[name].append(_rate(stream, batches, setting))
            _close(stream)
            print(
                f"round {number + 1} of {rounds}: {name}, {rates[name][-1]:,.0f} images/s", file=sys.stderr, flush=True
            )
    return rates


def _rate(stream: Batches, batches: int, setting: Setting) -> float:
    _wait(setting.device)
    started = time.perf_counter()
    seen = 0
    for _ in range(batches):
        images, _labels = next(stream)
        seen += len(images)
    _wait(setting.device)
    return seen / (time.perf_counter() - started)


def _close(stream: Iterator) -> None:
    stream.close()  # type: ignore[attr-defined]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _table(rates: dict[str, list[float]]) -> list[str]:
    lines = ["| pipeline | images/s | spread | of timm's | of the best peer's |", "|---|---:|---:|---:|---:|"]
    best = max(PEERS, key=lambda name: statistics.median(rates[name]))
    for name in sorted(rates, key=lambda name: -statistics.median(rates[name])):
        middle = statistics.median(rates[name])
        low, _, high = statistics.quantiles(rates[name], n=4)
        over = [
            statistics.median(mine / theirs for mine, theirs in zip(rates[name], rates[peer], strict=True))
            for peer in ("timm", best)
        ]
        lines.append(f"| {name} | {middle:,.0f} | {(high - low) / middle:.1%} | {over[0]:.2f} | {over[1]:.2f} |")
    return [
        *lines,
        "",
        "Median over the rounds; spread: distance of the quartiles over it; ratios paired by round.",
    ]


def _difference(folder: Path, device: torch.device) -> list[str]:
    source = open_data(folder)
    lines = ["", "How far the fast decoder is from Pillow, in grey levels of 255:", ""]
    for where in dict.fromkeys(["cpu", device.type]):
        seen = measure_difference(source, device=where, at_most=64)
        lines.append(f"- {seen.decoder}, whole photos: mean {seen.mean:.4f}, largest {seen.largest} ({seen.images})")
        seen = batch_difference(source, preparation("fast"), device=where, images=64)
        lines.append(f"- {seen.decoder}, training crops: mean {seen.mean:.4f}, largest {seen.largest} ({seen.images})")
    return lines


def _head(setting: Setting, options: argparse.Namespace) -> list[str]:
    return [
        f"# Loading: random-resized crops of {SIZE} px, normalised, in batches of {setting.batch}",
        "",
        f"- machine: {describe_machine(setting.device)}; {setting.workers} workers",
        f"- versions: {describe_versions(['timm', 'torchvision'])}",
        f"- images: {options.images:,}, made of the photos in one folder over and over; in the page cache",
        f"- {options.rounds} rounds of {options.batches} batches, in random order, workers started anew in each",
        "",
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", help="a folder of photos")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--steps", type=int, default=100, help="training steps with each pipeline, on a GPU")
    parser.add_argument("--output", default="loading.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
