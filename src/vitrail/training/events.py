"""What happens in a run: an event of each kind, and the line of `log.jsonl` that tells of it."""

import math
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, get_args

from vitrail.runtime.json_text import finite

Record = dict[str, Any]
"""An event as it is on disk: "event" says what kind, "step" after how many updates."""

# A keyword of Python, under which the log has always had what was before.
_FROM = {"key": "from"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Stepped:
    """An update is done; told and never written."""

    event: ClassVar[str] = "step"
    step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PieceDone:
    """So many images of the batch of the coming step have passed; told and never written."""

    event: ClassVar[str] = "piece"
    step: int
    images: int
    of: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """What the updates since the last such event saw in the mean, and how fast they were."""

    event: ClassVar[str] = "train"
    step: int
    epoch: float
    loss: float
    accuracy: float
    learning_rate: float
    gradient_norm: float
    images_per_second: float
    data_wait: float
    """Share of the time that was spent waiting for images."""
    seconds: float
    """Time spent on the run."""
    memory_bytes: int | None = None
    """The most that a GPU held."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluating:
    """So many more held-out images have been looked at; told and never written."""

    event: ClassVar[str] = "evaluating"
    step: int
    images: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """The network was measured on the held-out images."""

    event: ClassVar[str] = "evaluated"
    step: int
    images: int
    accuracy: float
    top5: float | None = None
    """None of hidden patches."""
    loss: float
    is_best: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class FewShotScored:
    """The features were measured on another data set, of which a few images were learnt."""

    event: ClassVar[str] = "few_shot"
    step: int
    data: str
    shots: int
    accuracy: float
    images: int
    right: list[int]
    """How many images, for each choice of those that were learnt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """A checkpoint is on disk; told and never written."""

    event: ClassVar[str] = "saved"
    step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """An update was left out."""

    event: ClassVar[str] = "skipped"
    step: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RolledBack:
    """The run went back to a checkpoint at this step, after losses that were not finite."""

    event: ClassVar[str] = "rollback"
    step: int
    before: int = field(metadata=_FROM)
    """The step that it came from."""
    rate_factor: float
    """On the planned learning rate, from here on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatchHalved:
    """Memory ran out, and fewer images are taken at a time."""

    event: ClassVar[str] = "micro_batch"
    step: int
    before: int = field(metadata=_FROM)
    micro_batch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessesChanged:
    """The run went on in another number of processes, or with other pieces in each."""

    event: ClassVar[str] = "processes"
    step: int
    before: int = field(metadata=_FROM)
    processes: int
    micro_batch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadsChanged:
    """The run went on in another number of threads, which rounds otherwise."""

    event: ClassVar[str] = "threads"
    step: int
    before: int = field(metadata=_FROM)
    threads: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthSet:
    """The clock decided how many steps there are in all."""

    event: ClassVar[str] = "length"
    step: int
    steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordsLost:
    """So many records of the log could not be read or were gone."""

    event: ClassVar[str] = "lost_records"
    step: int
    records: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """The run went on from a checkpoint."""

    event: ClassVar[str] = "resumed"
    step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Measuring:
    """So many more images have been shown to the model that was kept; told and never written."""

    event: ClassVar[str] = "testing"
    step: int
    images: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The run has come to its end."""

    event: ClassVar[str] = "done"
    step: int
    split: str | None
    """What the kept model was measured on: test, held_out, or nothing."""
    metrics: Record | None
    """As `Metrics.record()` has them."""
    best: Record | None
    """The best evaluation."""
    seconds: float
    """Time spent on the run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunBegan:
    """A run begins or goes on, and what follows happens in it; told, and not written: the run is its own log."""

    event: ClassVar[str] = "run_began"
    folder: str
    title: str
    start: int = 0
    """Updates that were done before."""
    steps: int = 0
    """Updates that it will have in all, as far as is known now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnded:
    """A run has come to its end."""

    event: ClassVar[str] = "run_ended"
    folder: str
    title: str


Event = (
    Stepped
    | PieceDone
    | Trained
    | Evaluating
    | Evaluated
    | FewShotScored
    | Saved
    | Skipped
    | RolledBack
    | MicroBatchHalved
    | ProcessesChanged
    | ThreadsChanged
    | LengthSet
    | RecordsLost
    | Resumed
    | Measuring
    | Done
)

Told = Event | RunBegan | RunEnded
"""What happens in a run, and which run it is: who watches an experiment is told both."""

OnEvent = Callable[[Told], None]

_KINDS: dict[str, type[Event]] = {kind.event: kind for kind in get_args(Event)}
_BETWEEN: dict[str, type[RunBegan] | type[RunEnded]] = {kind.event: kind for kind in (RunBegan, RunEnded)}


def to_record(event: Told) -> Record:
    """As a line of the log holds it: a default is not there, and null stands for a number that JSON cannot hold."""
    values = ((one, getattr(event, one.name)) for one in fields(event))
    return {"event": event.event, **{_key(one): finite(value) for one, value in values if value != one.default}}


def from_record(record: Record) -> Event | None:
    """The event that a line tells of; none of an unknown kind, or where something is missing."""
    kind = _KINDS.get(str(record.get("event")))
    if kind is None or any(one.default is MISSING and _key(one) not in record for one in fields(kind)):
        return None
    return kind(**{one.name: _value(one, record[_key(one)]) for one in fields(kind) if _key(one) in record})


def told_from(record: Record) -> Told | None:
    """The same, also of what happens between runs."""
    between = _BETWEEN.get(str(record.get("event")))
    return from_record(record) if between is None else between(folder=record["folder"], title=record["title"])


def _key(one: Field) -> str:
    return one.metadata.get("key", one.name)


def _value(one: Field, value: Any) -> Any:
    return math.nan if value is None and one.type is float else value
