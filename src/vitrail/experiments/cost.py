"""What an experiment costs, before it is begun: images, arithmetic, time and memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from vitrail.config import PeerConfig, RunConfig
from vitrail.experiments.calling import Cost
from vitrail.models import build
from vitrail.models.cost import measure_cost
from vitrail.runtime.out_of_memory import is_out_of_memory, release_memory
from vitrail.training.estimate import seconds_of
from vitrail.training.footprint import footprint
from vitrail.training.memory import first_micro_batch, smallest_piece
from vitrail.training.schedule import total_steps

if TYPE_CHECKING:
    from vitrail.experiments.driver import Driver


def cost_of(runs: Sequence[tuple[str, RunConfig]], driver: "Driver") -> Cost:
    """The sum over all runs; each network is tried out once on the device."""
    networks = {config.model: config for _, config in runs}
    each = {model: _seconds(config, driver.how.device) for model, config in networks.items()}
    adds = {model: measure_cost(model).macs for model in networks}
    seen = [(config, _steps(config, driver) * config.train.batch_size) for _, config in runs]
    times = [_time(config, images, each[config.model]) for config, images in seen]
    return Cost(
        images=sum(images for _, images in seen),
        flops=sum(6 * adds[config.model] * images for config, images in seen),
        seconds=None if None in times else sum(filter(None, times)),
        memory=max(filter(None, map(_memory, networks.values())), default=None),
    )


def _steps(config: RunConfig, driver: "Driver") -> int:
    if config.train.steps is not None:
        return config.train.steps
    if config.data.data.startswith("taught:"):
        # What a teacher will label is not there yet: all of it, at most.
        images = len(driver.kept.labelled.train) + len(driver.kept.unlabelled)
    else:
        images = len((driver.opened.get(config.data) or driver.open(config.data)).train)
    return total_steps(config.train, images)


def _time(config: RunConfig, images: int, each: float | None) -> float | None:
    limit = config.train.time_limit
    return None if each is None else each * images if limit is None else min(each * images, 60 * limit)


def _seconds(config: RunConfig, device: torch.device) -> float | None:
    """Of one image, forward and backward; none where memory is too short to try."""
    try:
        with torch.random.fork_rng(devices=[]):
            network = build(config.model)
        pieces = first_micro_batch(config.model, config.train, device, smallest_piece(config))
        return seconds_of(network.to(device), config, pieces, device)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        release_memory()
        return None


def _memory(config: RunConfig) -> int | None:
    """Of a run on one GPU; the blocks of a network of another package are its own."""
    if isinstance(config.model, PeerConfig) or config.masking is not None:
        return None
    return footprint(config.model, config.train, config.optim).total
