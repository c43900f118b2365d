"""Events: each kind as the log has always written it, and back."""

import json
import math
from dataclasses import replace
from typing import get_args

import pytest
from tests.training.test_few_shot import OTHER, scored
from tests.training.test_masked_runs import masked
from tests.training.test_resume import Crash, crash_at
from tests.training.tiny_run import config, make_images, resumed, started, trained

from vitrail.training.events import (
    Done,
    Evaluated,
    Evaluating,
    Event,
    FewShotScored,
    LengthSet,
    Measuring,
    MicroBatchHalved,
    PieceDone,
    ProcessesChanged,
    RecordsLost,
    Resumed,
    RolledBack,
    RunBegan,
    RunEnded,
    Saved,
    Skipped,
    Stepped,
    ThreadsChanged,
    Trained,
    from_record,
    to_record,
    told_from,
)

TRAINED = Trained(
    step=3,
    epoch=0.5,
    loss=2.25,
    accuracy=0.125,
    learning_rate=0.5,
    gradient_norm=1.5,
    images_per_second=4096.0,
    data_wait=0.25,
    seconds=1.0,
)
EVALUATED = Evaluated(step=3, images=8, accuracy=0.75, loss=1.5, is_best=True)
DONE = Done(
    step=3,
    split="test",
    metrics={"images": 8, "accuracy": 0.5, "top5": 1.0, "loss": 1.0},
    best={"accuracy": 0.5, "loss": 1.0, "step": 2},
    seconds=3.0,
)
TRAINED_LINE = (
    '{"event": "train", "step": 3, "epoch": 0.5, "loss": 2.25, "accuracy": 0.125, "learning_rate": 0.5, '
    '"gradient_norm": 1.5, "images_per_second": 4096.0, "data_wait": 0.25, "seconds": 1.0'
)
LINES = [
    (Stepped(step=3), '{"event": "step", "step": 3}'),
    (PieceDone(step=3, images=2, of=8), '{"event": "piece", "step": 3, "images": 2, "of": 8}'),
    (TRAINED, TRAINED_LINE + "}"),
    (replace(TRAINED, memory_bytes=12), TRAINED_LINE + ', "memory_bytes": 12}'),
    (Evaluating(step=3, images=8), '{"event": "evaluating", "step": 3, "images": 8}'),
    (EVALUATED, '{"event": "evaluated", "step": 3, "images": 8, "accuracy": 0.75, "loss": 1.5, "is_best": true}'),
    (
        replace(EVALUATED, top5=1.0, is_best=False),
        '{"event": "evaluated", "step": 3, "images": 8, "accuracy": 0.75, "top5": 1.0, "loss": 1.5, "is_best": false}',
    ),
    (
        FewShotScored(step=3, data="trees", shots=4, accuracy=0.5, images=8, right=[3, 5]),
        '{"event": "few_shot", "step": 3, "data": "trees", "shots": 4, "accuracy": 0.5, "images": 8, "right": [3, 5]}',
    ),
    (Saved(step=3), '{"event": "saved", "step": 3}'),
    (Skipped(step=3, reason="why"), '{"event": "skipped", "step": 3, "reason": "why"}'),
    (
        RolledBack(step=3, before=7, rate_factor=0.5),
        '{"event": "rollback", "step": 3, "from": 7, "rate_factor": 0.5}',
    ),
    (
        MicroBatchHalved(step=3, before=8, micro_batch=4),
        '{"event": "micro_batch", "step": 3, "from": 8, "micro_batch": 4}',
    ),
    (
        ProcessesChanged(step=3, before=1, processes=2, micro_batch=4),
        '{"event": "processes", "step": 3, "from": 1, "processes": 2, "micro_batch": 4}',
    ),
    (ThreadsChanged(step=3, before=2, threads=1), '{"event": "threads", "step": 3, "from": 2, "threads": 1}'),
    (LengthSet(step=3, steps=30), '{"event": "length", "step": 3, "steps": 30}'),
    (RecordsLost(step=3, records=2), '{"event": "lost_records", "step": 3, "records": 2}'),
    (Resumed(step=3), '{"event": "resumed", "step": 3}'),
    (Measuring(step=3, images=8), '{"event": "testing", "step": 3, "images": 8}'),
    (
        DONE,
        '{"event": "done", "step": 3, "split": "test", "metrics": {"images": 8, "accuracy": 0.5, "top5": 1.0, '
        '"loss": 1.0}, "best": {"accuracy": 0.5, "loss": 1.0, "step": 2}, "seconds": 3.0}',
    ),
    (
        replace(DONE, split=None, metrics=None, best=None),
        '{"event": "done", "step": 3, "split": null, "metrics": null, "best": null, "seconds": 3.0}',
    ),
]


def test_every_kind_is_here() -> None:
    assert {type(event) for event, _ in LINES} == set(get_args(Event))


@pytest.mark.parametrize(("event", "line"), LINES)
def test_an_event_is_its_line_and_the_line_the_event(event, line) -> None:
    assert json.dumps(to_record(event)) == line
    assert from_record(json.loads(line)) == event


@pytest.mark.parametrize(("event", "line"), LINES)
def test_a_line_without_a_value_that_it_needs_tells_of_nothing(event, line) -> None:
    record = json.loads(line)
    for key in record.keys() - {"memory_bytes", "top5"}:
        assert from_record({name: value for name, value in record.items() if name != key}) is None


@pytest.mark.parametrize("record", [{}, {"step": 3}, {"event": "moved", "step": 3}, {"event": ["step"], "step": 3}])
def test_what_is_no_event_of_this_version_tells_of_nothing(record) -> None:
    assert from_record(record) is None


def test_a_number_that_json_cannot_hold_is_null_and_then_no_number() -> None:
    record = to_record(replace(EVALUATED, loss=math.inf))
    assert record["loss"] is None
    event = from_record(record)
    assert isinstance(event, Evaluated)
    assert math.isnan(event.loss)
    assert to_record(event) == record


@pytest.mark.parametrize("kind", ["labelled", "masked"])
def test_the_log_of_a_run_is_its_events(kind, images, tmp_path) -> None:
    folder, others, told = tmp_path / "run", tmp_path / "others", []
    for split in ("train", "test"):
        make_images(others / split, per_class=6, classes=OTHER)
    settings = scored(config(images), others) if kind == "labelled" else masked(images, "colour", steps=12)
    with pytest.raises(Crash):
        trained(started(settings, folder), folder, crash_at(Stepped, 8))
    trained(resumed(folder), folder, told.append)
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [from_record(json.loads(line)) for line in lines]
    assert None not in events
    assert [json.dumps(to_record(event)) for event in events if event] == lines
    kinds = {Trained, Evaluated, Resumed, Done} | ({FewShotScored} if kind == "labelled" else set())
    assert {type(event) for event in events} == kinds
    written = [event for event in told if isinstance(event, tuple(kinds))]
    assert events[-len(written) :] == written


def test_what_happens_between_runs_is_told_and_not_logged() -> None:
    for event in (RunBegan(folder="runs/x", title="seed 0"), RunEnded(folder="runs/x", title="seed 0")):
        record = to_record(event)
        assert told_from(record) == event
        assert from_record(record) is None
    line = to_record(Stepped(step=3))
    assert told_from(line) == from_record(line) == Stepped(step=3)
    assert told_from({"event": "unheard of"}) is None
