"""Time several networks in one interleaved run, so that a slow minute of the machine is slow for all of them."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from agreement import logits_of
from torch import Tensor, nn
from torch.nn import functional

Step = Callable[[int], None]
"""Runs once, on the batch of that number."""

# More than one, so that no run finds its whole input in the cache of the last.
_BATCHES = 2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to measure."""

    rounds: int
    iterations: int
    """Timed iterations of each contender in each round."""
    settle: int
    """Untimed iterations before them, in which allocator and caches get used to the contender again."""
    warm_up: int
    """Untimed iterations before the first round, compilation among them."""
    seed: int


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Random images with random labels, never zeros."""

    images: list[Tensor]
    labels: list[Tensor]


def make_batches(
    batch: int, channels: int, size: tuple[int, int], classes: int, device: torch.device, seed: int
) -> Batches:
    """Draw the inputs that every contender gets."""
    generator = torch.Generator().manual_seed(seed)
    images = [torch.randn(batch, channels, *size, generator=generator) for _ in range(_BATCHES)]
    labels = [torch.randint(classes, (batch,), generator=generator) for _ in range(_BATCHES)]
    return Batches(images=[x.to(device) for x in images], labels=[y.to(device) for y in labels])


def inference_step(network: nn.Module, batches: Batches, autocast: bool) -> Step:
    """Forward without gradients, in eval mode."""
    device = batches.images[0].device.type

    def step(number: int) -> None:
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=autocast):
            network(batches.images[number % _BATCHES])

    return step


def training_step(network: nn.Module, batches: Batches, autocast: bool) -> Step:
    """Forward, cross-entropy, backward, gradients dropped: everything of a training step but the optimizer."""
    device = batches.images[0].device.type

    def step(number: int) -> None:
        which = number % _BATCHES
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            loss = functional.cross_entropy(logits_of(network(batches.images[which])), batches.labels[which])
        loss.backward()
        network.zero_grad(set_to_none=True)

    return step


STEPS = {"inference": inference_step, "training": training_step}


def run_untimed(step: Step, times: int, device: torch.device) -> None:
    """Run and wait until the device has finished."""
    for number in range(times):
        step(number)
    _wait(device)


def interleave(steps: dict[str, Step], plan: Plan, device: torch.device) -> dict[str, list[float]]:
    """Seconds per iteration of each contender in each round; every round has an order of its own."""
    order, shuffler = list(steps), random.Random(plan.seed)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(plan.rounds):
        shuffler.shuffle(order)
        for name in order:
            run_untimed(steps[name], plan.settle, device)
            seconds[name].append(_time(steps[name], plan.iterations, device))
    return seconds


def peak_memory(step: Step, network: nn.Module, device: torch.device) -> int | None:
    """Bytes that one step needs on a CUDA device, with the network's own parameters and none of the others'."""
    if device.type != "cuda":
        return None
    _wait(device)
    held = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run_untimed(step, 1, device)
    parameters = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    return torch.cuda.max_memory_allocated(device) - held + parameters


def _time(step: Step, iterations: int, device: torch.device) -> float:
    if device.type == "cuda":
        return _time_with_events(step, iterations, device)
    start = time.perf_counter()
    for number in range(iterations):
        step(number)
    return (time.perf_counter() - start) / iterations


def _time_with_events(step: Step, iterations: int, device: torch.device) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    _wait(device)
    start.record()
    for number in range(iterations):
        step(number)
    end.record()
    _wait(device)
    return start.elapsed_time(end) / 1000 / iterations


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
