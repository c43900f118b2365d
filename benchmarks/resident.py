"""CIFAR-10 on the GPU as one tensor of bytes: how fast it is augmented there, and what that costs a training step."""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine, describe_versions
from torch import nn
from training_step import training_step

import vitrail
from vitrail.config import AugmentConfig, preset
from vitrail.data import Arrays, Labels
from vitrail.data.loading.order import Stream
from vitrail.data.loading.prepare import Preparation
from vitrail.data.loading.resident import resident_batches

LEVELS = {
    "crop, flip": AugmentConfig(crop="pad"),
    "crop, flip, erasing, mixup": AugmentConfig(crop="pad", erasing=0.25, mixup=0.2),
    "crop, flip, RandAugment (2, 15), erasing, mixup/CutMix": AugmentConfig(
        crop="pad", randaugment_layers=2, randaugment_magnitude=15, erasing=0.25, mixup=0.2, cutmix=1.0
    ),
}


def main() -> None:
    """Measure and write Markdown."""
    options = _options()
    device = torch.device("cuda")
    source = _source(options.cifar)
    lines = [
        f"# A resident set: {source.name}, {len(source):,} images of 32x32, batches of {options.batch}",
        "",
        f"- machine: {describe_machine(device)}",
        f"- versions: {describe_versions([])}",
        "- network: ViT of 5.4 M parameters (width 192, depth 12, 3 heads, patch 4), bf16, compiled, AdamW",
        "",
        "| augmentation | images/s alone | GPU time per batch | step without | step with | share of the GPU | longer |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    step = training_step(_network().to(device).train())
    images = torch.randn(options.batch, 3, 32, 32, device=device)
    soft = torch.softmax(torch.randn(options.batch, 10, device=device), 1)
    for name, augment in LEVELS.items():
        rate, busy = _alone(source, augment, options, device)
        kept = iter(lambda: (images, soft), None)
        fed = _pairs(source, augment, options, device)
        plain, with_data = _interleaved(step, kept, fed, options.rounds, options.steps)
        extra = statistics.median(1 - without / full for without, full in zip(plain, with_data, strict=True))
        times = [busy, statistics.median(plain), statistics.median(with_data)]
        cells = [*(f"{1e3 * value:.2f} ms" for value in times), f"{busy / times[2]:.1%}", f"{extra:.1%}"]
        lines.append(f"| {name} | {rate:,.0f} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Medians over {options.rounds} rounds of {options.steps} steps, with and without data in turn. Share of the "
        "GPU: its time for a batch over the step's. Longer: how much more time a step takes than with one batch kept.",
    ]
    Path(options.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def _source(file: str | None) -> Arrays:
    """CIFAR-10 from an .npz with `pixels` and `labels`, or random bytes of its shape."""
    names = tuple(str(number) for number in range(10))
    if file is None:
        generator = np.random.default_rng(0)
        pixels = generator.integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8)
        return Arrays("random bytes", "train", names, Labels.of(generator.integers(0, 10, 50_000), 10), pixels)
    arrays = np.load(file, allow_pickle=False)
    return Arrays("CIFAR-10", "train", names, Labels.of(arrays["labels"], 10), arrays["pixels"])


def _pairs(source: Arrays, augment: AugmentConfig, options: argparse.Namespace, device: torch.device):
    preparation = Preparation(size=(32, 32), preprocessing=preset("google"), augment=augment)
    stream = Stream(length=len(source), batch_size=options.batch, seed=0)
    for batch in resident_batches(source, stream, preparation, device=device):
        yield batch.images, batch.targets


def _alone(source: Arrays, augment: AugmentConfig, options: argparse.Namespace, device: torch.device):
    """Images per second with nothing else on the GPU, and the GPU's own time per batch from its profiler."""
    pairs = _pairs(source, augment, options, device)
    for _ in range(20):
        next(pairs)
    torch.cuda.synchronize()
    started = time.perf_counter()
    batches = 4 * options.steps
    for _ in range(batches):
        next(pairs)
    torch.cuda.synchronize()
    rate = batches * options.batch / (time.perf_counter() - started)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(batches):
            next(pairs)
        torch.cuda.synchronize()
    pairs.close()
    busy = sum(event.self_device_time_total for event in profile.key_averages()) / 1e6 / batches
    return rate, busy


def _network() -> nn.Module:
    return vitrail.create_model("vit-ti16", num_classes=10, image_size=32, patch_size=4)


def _interleaved(step, kept, fed, rounds: int, steps: int) -> tuple[list[float], list[float]]:
    """Seconds per step with one batch kept and with fresh ones, in turn; the GPU is waited for after every round."""
    plain, with_data = [], []
    for number in range(-1, rounds):
        for pairs, seconds in ((kept, plain), (fed, with_data)):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(steps):
                step(*_soft(next(pairs)))
            torch.cuda.synchronize()
            # The round before the first is for compiling and settling.
            if number >= 0:
                seconds.append((time.perf_counter() - started) / steps)
    fed.close()
    return plain, with_data


def _soft(pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets as shares in every case, so that one compiled step serves all."""
    images, targets = pair
    return images, targets if targets.ndim == 2 else torch.nn.functional.one_hot(targets, 10).float()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar", help=".npz with pixels (images, 32, 32, 3) and labels; random bytes if not given")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=40, help="steps in a round")
    parser.add_argument("--output", default="resident.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
