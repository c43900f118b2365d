"""The learning rate of every step as a function of the schedule, and how many steps, epochs and pieces a run has."""

import math
from functools import lru_cache

from vitrail.config import OptimConfig, ScheduleConfig, TrainConfig, replace
from vitrail.errors import UsageError


def learning_rate(schedule: ScheduleConfig, step: int) -> float:
    """`base * decay(progress) * min(1, step / warmup)`, with `progress = (step - warmup) / (steps - warmup)`.

    Steps count from 0, as in big_vision, so a run with a warm-up begins with an update of size zero.
    """
    base, steps = schedule.lr, schedule.steps
    if base is None or steps is None:
        raise UsageError("the schedule has no base learning rate or no length", fix="Set its `lr` and `steps`.")
    warmup = schedule.warmup_steps
    if schedule.decay == "steps":
        return _hyper_rule(base, warmup, schedule.boundaries, step)
    rate = base
    if schedule.decay != "constant":
        progress = min(max((step - warmup) / max(steps - warmup, 1), 0.0), 1.0)
        if schedule.decay == "cosine":
            rate = base * 0.5 * (1 + math.cos(math.pi * progress))
        else:
            rate = schedule.linear_end + (base - schedule.linear_end) * (1 - progress)
    return rate * min(1.0, step / warmup) if warmup else rate


def _hyper_rule(base: float, warmup: int, boundaries: tuple[int, ...], step: int) -> float:
    """BiT's: linear warm-up, then a tenth after each boundary; divided one by one, as the original rounds."""
    if step < warmup:
        return base * step / warmup
    for boundary in boundaries:
        if boundary < step:
            base /= 10
    return base


@lru_cache(maxsize=8)
def resolved(schedule: ScheduleConfig, optim: OptimConfig, steps: int) -> ScheduleConfig:
    """The schedule of a run of so many steps."""
    warmup = round(schedule.warmup_share * steps) if schedule.warmup_share else schedule.warmup_steps
    return replace(schedule, {"lr": optim.lr, "steps": steps, "warmup_steps": warmup}, kind="schedule")


_EVALUATIONS = 20


def total_steps(train: TrainConfig, images: int) -> int:
    """Updates of a run: the last epoch is finished, and the last batch may reach into one more."""
    if train.steps is not None:
        return train.steps
    assert train.epochs is not None
    return math.ceil(train.epochs * images / train.batch_size)


def epoch_of(step: int, batch_size: int, images: int) -> float:
    """Passes over the data after so many updates."""
    return step * batch_size / images


def is_milestone(step: int, every: int, batch_size: int, images: int) -> bool:
    """Whether this update is the first to finish an epoch whose number is a multiple of `every`."""
    span = every * images
    return step * batch_size // span > (step - 1) * batch_size // span


def evaluation_interval(train: TrainConfig, images: int) -> int:
    """Epochs between evaluations: what the config says, else about twenty in the run."""
    if train.evaluate_every is not None:
        return train.evaluate_every
    epochs = total_steps(train, images) * train.batch_size / images
    return max(1, round(epochs / _EVALUATIONS))


def nearest_divisor(wanted: int, batch_size: int, smallest: int = 1) -> int:
    """The divisor of the batch that is nearest to `wanted` by its ratio: a batch of 127 is not cut into 127 pieces."""
    divisors = [size for size in range(smallest, batch_size + 1) if batch_size % size == 0]
    if not divisors:
        raise UsageError(f"batch_size is {batch_size}", wanted=f"at least {smallest}, to mix images with each other")
    return min(divisors, key=lambda size: (abs(math.log(size / wanted)), size))


def micro_batch(wanted: int, batch_size: int, smallest: int = 1) -> int:
    """The largest number of images up to `wanted` that divides the batch."""
    for size in range(min(wanted, batch_size), smallest - 1, -1):
        if batch_size % size == 0:
            return size
    raise UsageError(f"micro_batch is {wanted}", wanted=f"at least {smallest} and a divisor of {batch_size}")
