"""What happened on the way, in sentences."""

import json
from collections.abc import Callable, Iterator

from vitrail.data.check.words import counted
from vitrail.reports.numbers import percent
from vitrail.training.events import Record

_STEPS_NAMED = 8


def sentences(events: list[Record]) -> list[str]:
    """A sentence for each event, and one for all skipped updates together."""
    skipped = [event["step"] for event in events if event["event"] == "skipped"]
    return [*([_skipped(skipped)] if skipped else []), *(told for _, told in marked(events))]


def marked(events: list[Record]) -> Iterator[tuple[int, str]]:
    """Each event that changed the run, with its step; skipped updates are too many for that."""
    for event in events:
        if event["event"] != "skipped":
            yield event["step"], _TOLD.get(event["event"], _other)(event)


def _skipped(steps: list[int]) -> str:
    named = ", ".join(f"{step:,}" for step in steps[:_STEPS_NAMED])
    more = f" and {len(steps) - _STEPS_NAMED:,} more" if len(steps) > _STEPS_NAMED else ""
    was = "was" if len(steps) == 1 else "were"
    return (
        f"{counted(len(steps), 'update')} {was} skipped because the loss or the gradient was not finite: "
        f"{'step' if len(steps) == 1 else 'steps'} {named}{more}."
    )


def _rollback(event: Record) -> str:
    return (
        f"Three updates in a row up to step {_number(event, 'from')} were not finite: the run went back to its "
        f"checkpoint at step {event['step']:,} and went on with {_share(event, 'rate_factor')} of the learning rate."
    )


def _micro_batch(event: Record) -> str:
    return (
        f"Memory ran out at step {event['step']:,}: from there on {_number(event, 'micro_batch')} images at a time "
        f"instead of {_number(event, 'from')}, in batches as large as before."
    )


def _processes(event: Record) -> str:
    return (
        f"From step {event['step']:,} on the run had {_number(event, 'processes')} processes instead of "
        f"{_number(event, 'from')}, with {_number(event, 'micro_batch')} images at a time, in batches as large as "
        "before."
    )


def _threads(event: Record) -> str:
    return (
        f"From step {event['step']:,} on the run was computed in {_number(event, 'threads')} threads instead of "
        f"{_number(event, 'from')}, which rounds otherwise."
    )


def _lost_records(event: Record) -> str:
    return (
        f"{_number(event, 'records')} records of the log from before step {event['step']:,} were damaged or gone when "
        "the run went on: the curves have a gap there, the weights do not depend on it."
    )


def _resumed(event: Record) -> str:
    return f"The run was stopped, and went on from step {event['step']:,}."


def _length(event: Record) -> str:
    return f"At step {event['step']:,} the time limit set the length of the run to {_number(event, 'steps')} steps."


def _other(event: Record) -> str:
    """An event of another version: told as it stands, because silence would be worse."""
    rest = {name: value for name, value in event.items() if name not in ("event", "step")}
    return f"Step {event['step']:,}: {event['event']}{' ' + json.dumps(rest, ensure_ascii=False) if rest else ''}."


_TOLD: dict[str, Callable[[Record], str]] = {
    "rollback": _rollback,
    "micro_batch": _micro_batch,
    "processes": _processes,
    "threads": _threads,
    "lost_records": _lost_records,
    "length": _length,
    "resumed": _resumed,
}


def _number(event: Record, name: str) -> str:
    value = event.get(name)
    return f"{value:,}" if isinstance(value, int) else "?"


def _share(event: Record, name: str) -> str:
    value = event.get(name)
    return percent(value) if isinstance(value, int | float) else "a part"
