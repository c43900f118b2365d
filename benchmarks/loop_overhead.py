"""What the training loop costs: our loop around a network, beside a bare hand-written step around its twin."""

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine, describe_versions
from noise_session import noise_config, noise_session
from torch import nn
from torch.nn.functional import cross_entropy

import vitrail
from vitrail.data import Batch
from vitrail.training.folder import RunFolder
from vitrail.training.log import Log
from vitrail.training.loop import Loop
from vitrail.training.session import Session
from vitrail.training.stopping import Stopping
from vitrail.zoo import zoo_row

_CLASSES = 1000


def main() -> None:
    """Measure and write Markdown."""
    options = _options()
    device = torch.device(options.device)
    network, twin = _networks(options.network, options.model)
    session = _session(network, options, device)
    bare = _bare_step(twin.to(device).train(), session, options)
    rounds = _Rounds(session, bare, options)
    session.batches = rounds.batches  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        Loop(session, run, Log(run.log, lambda _: None), Stopping()).run()
    ratios = [theirs / ours for ours, theirs in zip(rounds.ours, rounds.bare, strict=True)]
    rate = options.batch * options.steps / statistics.median(rounds.ours)
    low, middle, high = statistics.quantiles(ratios, n=4)
    lines = [
        f"# The loop around {options.network} {options.model}, batch {options.batch}",
        "",
        f"- machine: {describe_machine(device)}",
        f"- versions: {describe_versions(['timm'] if options.network == 'timm' else [])}",
        f"- both: {session.config.train.precision}, {'compiled' if options.compile else 'eager'}, softmax "
        "cross-entropy, global-norm clipping, fused AdamW; one batch that stays on the device",
        "- bare: forward, backward, `clip_grad_norm_`, `step`, `zero_grad` in a plain loop; ours: the loop of `vitrail "
        "train` with its log, its finite checks and its polling for signals",
        "",
        "| | images/s | ours / bare | quartiles |",
        "|---|---:|---:|---:|",
        f"| our loop | {rate:,.1f} | {middle:.4f} | {low:.4f} to {high:.4f} |",
        f"| bare step | {options.batch * options.steps / statistics.median(rounds.bare):,.1f} | | |",
        "",
        f"Medians over {options.rounds} rounds of {options.steps} steps each, the two in turn.",
    ]
    Path(options.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def _networks(library: str, key: str) -> tuple[nn.Module, nn.Module]:
    if library == "timm":
        import timm

        name = {"vit-s16": "vit_small_patch16_224", "vit-b16": "vit_base_patch16_224"}[key]
        network = timm.create_model(name, num_classes=_CLASSES)
        network.config = zoo_row(key).config
    else:
        network = vitrail.create_model(key, num_classes=_CLASSES)
    return network, copy.deepcopy(network)


def _session(network: nn.Module, options: argparse.Namespace, device: torch.device) -> Session:
    config = noise_config(
        replace(zoo_row(options.model).config, num_classes=_CLASSES),
        batch=options.batch,
        # One round to settle, and one that nobody comes back from.
        steps=(options.rounds + 2) * options.steps,
        precision="bfloat16" if device.type == "cuda" else "float32",
        compile=options.compile,
        log_every=options.steps,
    )
    return noise_session(config, network, device)


def _bare_step(network: nn.Module, session: Session, options: argparse.Namespace):
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    forward = torch.compile(network) if options.compile else network
    device = session.device.type

    def step(images: torch.Tensor, targets: torch.Tensor) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = forward(images)
        loss = cross_entropy(logits.float(), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class _Rounds:
    """Feeds the loop, and between its rounds runs the bare step on the same batch."""

    def __init__(self, session: Session, bare, options: argparse.Namespace) -> None:
        self.ours: list[float] = []
        self.bare: list[float] = []
        self._session, self._step, self._options = session, bare, options
        size = session.config.model.image_size
        generator = torch.Generator().manual_seed(0)
        self._images = torch.randn(options.batch, 3, *size, generator=generator).to(session.device)
        self._targets = torch.randint(_CLASSES, (options.batch,), generator=generator).to(session.device)

    def batches(self) -> Iterator[Batch]:
        """A round of ours ends when the loop comes back for more; the one before the first is for settling."""
        nothing = np.zeros(0, dtype=np.int64)
        for number in range(self._options.rounds + 2):
            begin = self._now()
            for step in range(self._options.steps):
                yield Batch(self._images, self._targets, nothing, nothing, step)
            ours, begin = self._now() - begin, self._now()
            for _ in range(self._options.steps):
                self._step(self._images, self._targets)
            if number:
                self.ours.append(ours)
                self.bare.append(self._now() - begin)

    def _now(self) -> float:
        if self._session.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=["timm", "vitrail"], default="timm")
    parser.add_argument("--model", choices=["vit-s16", "vit-b16"], default="vit-s16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--output", default="loop-overhead.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
