"""How far a run has come, and what could not be computed ahead."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from vitrail.config import from_json
from vitrail.config.checks import count, positive
from vitrail.errors import UsageError
from vitrail.training.events import Event, Record, RolledBack, to_record


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best evaluation so far."""

    accuracy: float
    loss: float
    step: int

    def __post_init__(self) -> None:
        if not (0 <= self.accuracy <= 1 and math.isfinite(self.loss)):
            raise UsageError(f"the best evaluation is impossible: {self}", wanted="a share and a finite loss")

    def is_beaten_by(self, other: "Best") -> bool:
        """More images right, or as many with less loss."""
        return (other.accuracy, -other.loss) > (self.accuracy, -self.loss)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Everything about a run that is neither config nor tensor; it is saved with every checkpoint."""

    step: int = 0
    """Updates done."""
    steps: int
    """Updates in all."""
    micro_batch: int
    """Images at a time, over all processes."""
    each: int | None = None
    """Images at a time that are known to fit into one process."""
    threads: int | None = None
    """In which each process computes on a CPU; not known of runs of version 0.1."""
    rate_factor: float = 1.0
    """On the learning rate; halved by every rollback."""
    bad_in_a_row: int = 0
    """Updates that were skipped just before this step."""
    seconds: float = 0.0
    """Time spent in training, over all processes that worked on the run."""
    best: Best | None = None
    evaluated: int = -1
    """The step of the last evaluation."""
    records: int = 0
    """In the log, when this was saved."""
    events: tuple[Record, ...] = ()
    """What changed the run: a halved micro-batch, a rollback, a length set by the clock."""

    def __post_init__(self) -> None:
        positive("micro_batch", self.micro_batch)
        for name in ("each", "threads"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        for name in ("step", "steps", "bad_in_a_row", "records"):
            count(name, getattr(self, name), at_most=2**40)
        if not (0 < self.rate_factor <= 1 and 0 <= self.seconds < math.inf and self.step <= self.steps):
            raise UsageError(f"the progress is impossible: {self}", wanted="what a run can come to")
        if not all(isinstance(event.get("event"), str) and isinstance(event.get("step"), int) for event in self.events):
            raise UsageError("an event is not one", wanted="its name and its step")

    @property
    def rollbacks(self) -> int:
        """How often the run went back after losses that were not finite."""
        return sum(event["event"] == RolledBack.event for event in self.events)

    def with_event(self, event: Event, **changes: Any) -> "Progress":
        """The progress after an event, with what it changed."""
        return replace(self, events=(*self.events, to_record(event)), **changes)

    def to_json(self) -> dict[str, Any]:
        """For the state of a checkpoint."""
        return asdict(self)


def read_progress(state: dict[str, Any]) -> Progress:
    """Progress from the state of a checkpoint."""
    return from_json(Progress, state.get("progress"), where="the progress of the checkpoint")
