"""How long a run is, how it is cut, and when it is looked at."""

import math

from vitrail.config import TrainConfig
from vitrail.errors import UsageError

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
