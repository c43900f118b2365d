"""The learning rate of every step: a function of the schedule and the step, with no state."""

import math
from functools import lru_cache

from vitrail.config import OptimConfig, ScheduleConfig, replace
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
