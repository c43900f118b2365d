"""Exact resume: a run that was killed and went on is the run that was not, to the last bit (fault rows 13 and 14)."""

import csv
import functools
import hashlib
import os
import random
import re
import shutil
import signal
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from tests.training.tiny_run import (
    RANDOM,
    STRONG,
    assert_every_sample_once,
    assert_same_run,
    config,
    events,
    fed,
    in_process,
    last_word,
    losses,
    make_images,
    record_batches,
    resumed,
    started,
    trained,
    twice,
    when_free,
)

from vitrail.config import RunConfig
from vitrail.errors import UsageError
from vitrail.training import checkpoint as checkpoints
from vitrail.training.events import Evaluated, Evaluating, Event, Saved, Stepped, Trained
from vitrail.training.folder import RunFolder, read_run
from vitrail.training.log import Watcher
from vitrail.training.loop import Pace
from vitrail.training.session import Session
from vitrail.training.start import counts, refuse_other
from vitrail.training.stopping import Stopped

IMAGES = 43
EPOCH = 11
"""Steps of the first epoch; its last batch reaches into the second."""
STEPS = 43


def everything(images: Path, epochs: int, workers: int = 2) -> RunConfig:
    """All that is random at once: dropout, stochastic depth, RandAugment, mixup; and accumulation, average, workers."""
    return config(
        images,
        model=RANDOM,
        augment=STRONG,
        workers=workers,
        batch_size=4,
        micro_batch=2,
        epochs=epochs,
        average=0.99,
        label_smoothing=0.1,
        save_minutes=0.002,
    )


@pytest.fixture(scope="module")
def unbroken(shared_images, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    session = started(everything(shared_images, epochs=4, workers=0), folder)
    record_batches(session, folder.parent / "fed.jsonl")
    trained(session, folder)
    assert assert_every_sample_once(folder.parent / "fed.jsonl", IMAGES) == 4
    assert [step for step, _ in losses(folder)] == list(range(1, STEPS + 1))
    return folder


class Crash(BaseException):
    """As sudden as a kill, without a process of its own."""


def crash_at(kind: type[Event], step: int) -> Watcher:
    def watch(event: Event) -> None:
        if isinstance(event, kind) and event.step >= step:
            raise Crash

    return watch


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "moments",
    [
        pytest.param([(Stepped, 5)], id="first epoch"),
        pytest.param([(Stepped, EPOCH + 3), (Stepped, EPOCH + 9)], id="twice in one epoch"),
        pytest.param([(Saved, EPOCH)], id="epoch end"),
        pytest.param([(Evaluating, 2 * EPOCH), (Evaluated, 2 * EPOCH)], id="evaluation"),
        pytest.param([(Trained, STEPS - 6), (Saved, STEPS)], id="last epoch and last step"),
    ],
)
def test_going_on_is_exact_with_any_number_of_workers(moments, workers, images, unbroken, tmp_path):
    folder, record = tmp_path / "run", tmp_path / "fed.jsonl"
    session = started(everything(images, epochs=4, workers=0), folder)
    for kind, step in moments:
        record_batches(session, record)
        with pytest.raises(Crash):
            trained(session, folder, crash_at(kind, step))
        session = resumed(folder, workers=workers)
    record_batches(session, record)
    trained(session, folder)
    assert_same_run(folder, unbroken)
    assert fed(record) == fed(unbroken.parent / "fed.jsonl")


def tell_moment(session: Session, connection: Connection, kind: str, step: int, record: Path) -> Watcher:
    """Say when a step, an evaluation or a save begins, at or after a step; what follows is up to the killer."""
    record_batches(session, record)
    told = []

    def tell(now: str) -> None:
        if now == kind and session.progress.step >= step and not told:
            told.append(now)
            connection.send(("now", now))

    evaluate, save = session.evaluate, checkpoints.save

    def told_evaluate(*arguments):
        tell("evaluation")
        return evaluate(*arguments)

    def told_save(*arguments):
        tell("save")
        return save(*arguments)

    session.evaluate = told_evaluate  # type: ignore[method-assign]
    checkpoints.save = told_save  # type: ignore[assignment]
    return lambda event: tell(event.event)


def survive(folder: Path, settings: RunConfig, kills: int, steps: int) -> None:
    """Kill -9 again and again, at random moments, and let it go on each time."""
    draw = random.Random(kills)
    moments = sorted(draw.sample(range(2, steps - 10), kills))
    for number, step in enumerate(moments):
        kind = ("step", "save", "evaluation")[number % 3]
        process, connection = in_process(
            folder,
            None if number else settings,
            functools.partial(tell_moment, kind=kind, step=step, record=folder.parent / "fed.jsonl"),
        )
        assert connection.poll(60), process.exitcode
        assert connection.recv() == ("now", kind)
        time.sleep(draw.uniform(0, 0.02))
        process.kill()
        process.join(30)
        assert process.exitcode == -signal.SIGKILL
        when_free(folder)
    process, connection = in_process(
        folder, None, functools.partial(tell_moment, kind="never", step=0, record=folder.parent / "fed.jsonl")
    )
    assert last_word(process, connection) == ("ended", "")
    assert process.exitcode == 0


def test_kill_at_4_random_moments(images, unbroken, tmp_path):
    folder = tmp_path / "run"
    survive(folder, everything(images, epochs=4), kills=4, steps=STEPS)
    assert_same_run(folder, unbroken)
    assert fed(tmp_path / "fed.jsonl") == fed(unbroken.parent / "fed.jsonl")


@pytest.mark.slow
def test_kill_at_20_random_moments(tmp_path):
    settings = everything(make_images(tmp_path / "images", per_class=30), epochs=12)
    wanted, came = tmp_path / "unbroken" / "run", tmp_path / "killed" / "run"
    process, connection = in_process(wanted, settings)
    assert last_word(process, connection, timeout=300) == ("ended", "")
    came.parent.mkdir()
    survive(came, settings, kills=20, steps=324)
    assert len(losses(came)) == 324
    assert_same_run(came, wanted)
    assert assert_every_sample_once(came.parent / "fed.jsonl", 108) == 12


def test_going_on_right_after_a_kill(images, tmp_path):
    """Workers outlive a parent that was killed for a few seconds; they must not keep the run locked."""
    folder = tmp_path / "run"
    setup = functools.partial(tell_moment, kind="step", step=2, record=tmp_path / "fed.jsonl")
    process, connection = in_process(folder, everything(images, epochs=4), setup)
    assert connection.poll(60)
    process.kill()
    process.join(30)
    session = resumed(folder, workers=0)
    try:
        trained(session, folder)
    finally:
        when_free(folder)


def test_a_run_that_was_killed_before_its_first_checkpoint(images, unbroken, tmp_path):
    """Its config is there, so it can go on from step 0."""
    folder = tmp_path / "run"
    started(everything(images, epochs=4, workers=0), folder)
    trained(resumed(folder), folder)
    assert_same_run(folder, unbroken)


def test_an_evaluation_is_told_once(images, tmp_path):
    """Stopped in an evaluation, then killed after it and before the save: it is done again and replaces its record."""
    folder = tmp_path / "run"

    def stop(event: Event) -> None:
        if isinstance(event, Evaluating) and event.step == EPOCH:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        trained(started(everything(images, epochs=4, workers=0), folder), folder, stop)
    with pytest.raises(Crash):
        trained(resumed(folder), folder, crash_at(Evaluated, EPOCH))
    trained(resumed(folder), folder)
    assert [record["step"] for record in events(folder, "evaluated")] == [11, 22, 33, 43]


def test_the_length_that_a_time_limit_led_to_is_replayed(images, tmp_path, monkeypatch):
    """What the clock decided stays decided: a copy that goes on from there is the same run."""
    monkeypatch.setattr(Pace, "steps_within", lambda _pace, _limit, step: 30 if step >= 10 else None)
    settings = config(images, model=RANDOM, steps=2000, time_limit=60)
    folder, copy = tmp_path / "run", tmp_path / "copy"

    def keep_copy(event: Event) -> None:
        if isinstance(event, Saved) and session.progress.steps < 2000 and not copy.exists():
            shutil.copytree(folder, copy)

    session = started(settings, folder)
    trained(session, folder, keep_copy)
    assert [record["steps"] for record in events(folder, "length")] == [30]
    monkeypatch.setattr(Pace, "steps_within", lambda _pace, _limit, _step: None)
    assert trained(resumed(copy), copy).progress.steps == 30
    assert_same_run(copy, folder)


def listed(folder: Path) -> list[list[str]]:
    with (folder / "held_out.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_a_run_on_copies_goes_on_with_the_same_split(tmp_path) -> None:
    photos = twice(tmp_path / "photos", per_class=6)
    settings = config(photos, epochs=2)
    session = started(settings, tmp_path / "whole")
    trained(session, tmp_path / "whole")
    with pytest.raises(Crash):
        trained(started(settings, tmp_path / "run"), tmp_path / "run", crash_at(Trained, 8))
    held = (tmp_path / "run" / "held_out.csv").read_bytes()
    again = resumed(tmp_path / "run")
    assert again.digest == session.digest
    trained(again, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert (tmp_path / "run" / "held_out.csv").read_bytes() == held
    where, *images = listed(tmp_path / "run")
    assert where == ["where", "label", "sha256"] and len(images) == counts(again.data)["held-out"]
    assert all(Path(path).parent.name == label for path, label, _ in images)
    assert all(hashlib.sha256(Path(path).read_bytes()).hexdigest() == found for path, _, found in images)
    assert "24 groups of copies (48 images)" in " ".join(read_run(RunFolder(tmp_path / "run")).notes)


def test_a_run_that_goes_on_with_other_data_lists_only_what_it_never_learnt_from(tmp_path) -> None:
    photos, folder = make_images(tmp_path / "photos", per_class=20), RunFolder(tmp_path / "run")
    settings = config(photos, epochs=2)
    half = replace(settings, data=replace(settings.data, held_out=0.5))
    with pytest.raises(Crash):
        trained(started(half, folder.path), folder.path, crash_at(Trained, 4))
    names, *before = listed(folder.path)
    for file in sorted(photos.rglob("00[0-2].png")):
        file.unlink()
    session = resumed(folder.path, changed=True)
    # Nothing is written before the lock is held.
    assert listed(folder.path) == [names, *before]
    with pytest.raises(Crash):
        trained(session, folder.path, crash_at(Trained, 5))
    held = session.data.held_out
    assert held is not None
    now = [held.where(index) for index in range(len(held))]
    _, *after = listed(folder.path)
    assert [row[0] for row in after] == [where for where in now if where in {row[0] for row in before}]
    assert 0 < len(after) < len(now)
    assert all(row in before for row in after)
    record = read_run(folder)
    assert record.counts == counts(session.data) == {"train": 34, "held-out": 34}
    assert record.digest == session.digest


def test_a_run_that_splits_copies_is_no_run_that_keeps_them_together(tmp_path) -> None:
    settings = config(make_images(tmp_path / "photos"), epochs=2)
    apart = replace(settings, data=replace(settings.data, copies="apart"))
    started(apart, tmp_path / "run")
    begun = read_run(RunFolder(tmp_path / "run")).config
    refuse_other(RunFolder(tmp_path / "run"), begun)
    with pytest.raises(UsageError, match=r'data.copies: "apart", now "together"'):
        refuse_other(RunFolder(tmp_path / "run"), replace(begun, data=replace(begun.data, copies="together")))


def test_a_run_from_before_copies_were_looked_for_keeps_its_split(tmp_path) -> None:
    settings = config(twice(tmp_path / "photos", per_class=6), epochs=2)
    before = replace(settings, data=replace(settings.data, copies="apart"))
    trained(started(before, tmp_path / "whole"), tmp_path / "whole")
    with pytest.raises(Crash):
        trained(started(before, tmp_path / "run"), tmp_path / "run", crash_at(Trained, 8))
    # As it was written then.
    folder = RunFolder(tmp_path / "run")
    folder.config.write_text(re.sub(r'"copies": "apart",\s*', "", folder.config.read_text(encoding="utf-8")))
    assert '"copies"' not in folder.config.read_text(encoding="utf-8")
    folder.held_out.unlink()
    # The same command given again goes on with it.
    again = replace(settings, train=read_run(folder).config.train)
    refuse_other(folder, again)
    with pytest.raises(UsageError, match=r'data.copies: "apart", now "together"'):
        refuse_other(folder, again, copies_given=True)
    trained(resumed(tmp_path / "run"), tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert listed(tmp_path / "run") == listed(tmp_path / "whole")
