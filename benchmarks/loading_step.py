"""A hand-written training step of ViT-B/16 fed by each pipeline: how long it waits for data."""

import time

import torch
from loading_contenders import OURS, PEERS, PREFETCH, SIZE, Setting
from training_step import training_step

import vitrail

_WARM_UP = 10


def step_section(setting: Setting, steps: int) -> str:
    """A table of images/s and of the share of the time that a step waited."""
    step = training_step(vitrail.create_model("vit-b16", num_classes=1000).to(setting.device).train())
    images = torch.randn(setting.batch, 3, SIZE, SIZE, device=setting.device)
    labels = torch.randint(2, (setting.batch,), device=setting.device)

    def same():
        while True:
            yield images, labels

    lines = [
        "",
        f"## Beside a training step of ViT-B/16 (bf16, compiled, batch {setting.batch}, AdamW)",
        "",
        "| pipeline | images/s | data wait per step | share |",
        "|---|---:|---:|---:|",
    ]
    for name, make in {"no loading: one batch over and over": lambda _: same(), **OURS, **PEERS}.items():
        rate, wait, share = _measure(make(setting), step, setting, steps)
        lines.append(f"| {name} | {rate:,.0f} | {wait * 1e3:.2f} ms | {share:.1%} |")
    return "\n".join([*lines, "", f"{steps} steps each, in this order; wait: host time in which no batch was ready."])


def _measure(stream, step, setting: Setting, steps: int) -> tuple[float, float, float]:
    for _ in range(max(_WARM_UP, setting.workers * PREFETCH // 2)):
        step(*next(stream))
    torch.cuda.synchronize()
    started, waited = time.perf_counter(), 0.0
    for _ in range(steps):
        asked = time.perf_counter()
        images, labels = next(stream)
        waited += time.perf_counter() - asked
        step(images, labels)
        # The host must not run ahead of the GPU, or the wait for data would hide in the queue of steps.
        torch.cuda.synchronize()
    total = time.perf_counter() - started
    stream.close()
    return steps * setting.batch / total, waited / steps, waited / total
