"""A run from its present step to its end: sessions that are stale, memory and time that run out, odd batches."""

import json
import shutil
import time
from dataclasses import replace

import pytest
import torch
from tests.data.conftest import state_of
from tests.training.test_faults_memory import ERRORS, shrink
from tests.training.test_resume import Crash, crash_at
from tests.training.tiny_run import PLAIN, RANDOM, assert_same_run, config, events, losses, resumed, started, trained

from vitrail.config import AugmentConfig
from vitrail.errors import Notice, UsageError
from vitrail.runtime.lock import MovedFolder, only_one
from vitrail.runtime.threads import in_threads
from vitrail.training import run as run_module
from vitrail.training.events import Evaluating, Event, Measuring, PieceDone, Saved, Stepped
from vitrail.training.loop import Pace
from vitrail.training.memory import OutOfMemory
from vitrail.training.objective import build_objective
from vitrail.training.schedule import nearest_divisor

# Two processes that went on with the same run, one after the other.


@pytest.fixture
def stopped(images, tmp_path):
    """A run in its second epoch, and what it would have become."""
    settings = config(images, model=RANDOM, average=0.9)
    wanted, folder = tmp_path / "wanted", tmp_path / "run"
    trained(started(settings, wanted), wanted)
    with pytest.raises(Crash):
        trained(started(settings, folder), folder, crash_at(Stepped, 8))
    return folder, wanted


def test_a_session_that_another_has_overtaken_is_refused_and_harms_nothing(stopped):
    folder, wanted = stopped
    first, second = resumed(folder), resumed(folder)
    trained(first, folder)
    before = state_of(folder)
    with pytest.raises(UsageError, match="another process went on with this run in the meantime") as caught:
        trained(second, folder)
    assert f"vitrail train --resume {folder}" in str(caught.value)
    assert state_of(folder)["log.jsonl"] == before["log.jsonl"]
    after = state_of(folder)
    assert {name for name in before | after if before.get(name) != after.get(name)} <= {".", ".lock"}
    assert_same_run(folder, wanted)


def test_a_session_made_before_the_first_checkpoint_is_stale_too(images, tmp_path):
    settings = config(images)
    first = started(settings, tmp_path / "run")
    second = resumed(tmp_path / "run")
    trained(first, tmp_path / "run")
    before = (tmp_path / "run/log.jsonl").read_bytes()
    with pytest.raises(UsageError, match="in the meantime"):
        trained(second, tmp_path / "run")
    assert (tmp_path / "run/log.jsonl").read_bytes() == before


def test_two_at_the_same_time(stopped):
    folder, wanted = stopped
    session = resumed(folder)
    before = state_of(folder)
    with (
        only_one(folder / ".lock", busy="test"),
        pytest.raises(UsageError, match="another process is training"),
    ):
        trained(session, folder)
    assert {name for name in before if state_of(folder).get(name) != before[name]} <= {".", ".lock"}
    trained(session, folder)
    assert_same_run(folder, wanted)


# Memory that runs out where nothing smaller can be tried.


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("mode", "step"), [("train", 3), ("evaluation", 6)])
def test_everything_is_saved_before_it_is_told(error, mode, step, images, tmp_path):
    """The last checkpoint before was that of step 0: what was computed since is not lost."""
    settings = config(images, model=RANDOM, average=0.9, micro_batch=1)
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    trained(started(settings, wanted), wanted)
    assert events(wanted, "evaluated")[0]["step"] == 6
    session = started(settings, came)
    shrink(session, fits=0, error=error, from_step=step, mode=mode)
    with pytest.raises(OutOfMemory) as caught:
        trained(session, came)
    assert "everything is saved" in str(caught.value)
    assert f"vitrail train --resume {came}" in str(caught.value)
    session = resumed(came)
    assert session.progress.step == step
    assert len(losses(came)) == step
    trained(session, came)
    assert_same_run(came, wanted)


def test_without_more_memory_going_on_ends_the_same_way(images, tmp_path):
    settings = config(images, micro_batch=1)
    for attempt in range(3):
        session = resumed(tmp_path) if attempt else started(settings, tmp_path)
        shrink(session, fits=0, from_step=3)
        with pytest.raises(OutOfMemory):
            trained(session, tmp_path)
        assert resumed(tmp_path).progress.step == 3
    trained(resumed(tmp_path), tmp_path)
    assert [step for step, _ in losses(tmp_path)] == list(range(1, 12))


# Time that runs out.


class Slow:
    """An objective that takes its time."""

    def __init__(self, settings, seconds: float) -> None:
        self._objective, self._seconds = build_objective(settings.train), seconds

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        time.sleep(self._seconds)
        return self._objective(logits, targets)


@pytest.mark.parametrize("log_every", [1, 50])
def test_a_time_limit_ends_slow_steps_soon_after_it(log_every, images, tmp_path):
    """Three steps fit: nobody may wait until the speed of ten is known, or until the log is due."""
    settings = config(images, steps=1000, time_limit=1.2 / 60, log_every=log_every)
    session = started(settings, tmp_path, Slow(settings, 0.4))
    begin = time.monotonic()
    trained(session, tmp_path)
    assert time.monotonic() - begin < 60
    assert 1 <= session.progress.step <= 5
    assert events(tmp_path, "done")[0]["step"] == session.progress.steps == session.progress.step
    assert (tmp_path / "model/model.safetensors").is_file()


def test_a_time_limit_holds_even_where_no_plan_is_made(images, tmp_path, monkeypatch):
    monkeypatch.setattr(Pace, "steps_within", lambda *_: None)
    settings = config(images, steps=1000, time_limit=0.5 / 60)
    session = started(settings, tmp_path, Slow(settings, 0.2))
    trained(session, tmp_path)
    assert 2 <= session.progress.step <= 4


def test_a_time_limit_that_is_already_over(images, tmp_path):
    session = started(config(images, steps=1000, time_limit=1e-9), tmp_path)
    trained(session, tmp_path)
    assert session.progress.step <= 2
    assert events(tmp_path, "done")[0]["metrics"]["images"] == 5


# A config that was changed on purpose.


def edit(folder, **train) -> None:
    values = json.loads((folder / "config.json").read_text())
    values["config"]["train"].update(train)
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize(("epochs", "steps"), [(1, None), (3, 17), (4, 22)])
def test_another_number_of_epochs_has_an_effect_when_allowed(epochs, steps, stopped):
    folder, _ = stopped
    edit(folder, epochs=epochs)
    with pytest.raises(UsageError, match=f"epochs: 2, now {epochs}"):
        resumed(folder)
    session = resumed(folder, changed=True)
    trained(session, folder)
    assert events(folder, "done")[0]["step"] == (steps or 6)


def test_another_number_at_a_time_has_an_effect_when_allowed(stopped):
    folder, _ = stopped
    edit(folder, micro_batch=2)
    session = resumed(folder, changed=True)
    assert (session.progress.micro_batch, session.accumulation) == (2, 4)
    trained(session, folder)
    assert events(folder, "done")[0]["step"] == 11


def test_a_length_that_is_already_over_is_refused(images, tmp_path):
    with pytest.raises(Crash):
        trained(
            started(config(images, steps=9, evaluate_every=50, save_minutes=1e-9), tmp_path),
            tmp_path,
            crash_at(Saved, 5),
        )
    edit(tmp_path, steps=3)
    with pytest.raises(UsageError, match="the run is at step 5; wanted a length of at least that, not 3"):
        resumed(tmp_path, changed=True)


# Batches that nothing divides.


@pytest.mark.parametrize("batch_size", [2, 7, 31, 127, 521, 1021])
def test_a_prime_batch_is_not_cut_into_single_images(batch_size):
    assert nearest_divisor(64, batch_size) in (batch_size, 1)
    assert nearest_divisor(64, batch_size) == (batch_size if batch_size < 64 * 64 else 1)


def test_a_batch_with_few_divisors_takes_the_nearest_by_ratio():
    assert nearest_divisor(64, 2 * 127) == 127
    assert nearest_divisor(64, 3 * 43) == 43
    assert nearest_divisor(64, 4096) == 64
    assert nearest_divisor(1, 7, smallest=2) == 7


@pytest.mark.parametrize("mixup", [0.0, 0.2])
@pytest.mark.parametrize("batch_size", [7, 67])
def test_a_run_with_a_prime_batch_is_one_piece(mixup, batch_size, images, tmp_path):
    """Also one that is a little larger than what a CPU takes at a time."""
    augment = AugmentConfig(crop="whole", mixup=mixup)
    session = started(config(images, augment=augment, batch_size=batch_size, steps=3), tmp_path)
    assert (session.progress.micro_batch, session.accumulation) == (batch_size, 1)
    trained(session, tmp_path)
    assert [step for step, _ in losses(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize(("mixup", "fits"), [(0.0, 1), (0.2, None)])
def test_a_prime_batch_that_does_not_fit(mixup, fits, images, tmp_path):
    """One at a time is the only other way to cut it, and images that are mixed need each other."""
    augment = AugmentConfig(crop="whole", flip=False, mixup=mixup)
    session = started(config(images, augment=augment, batch_size=7, steps=2), tmp_path)
    shrink(session, fits=6)
    if fits is None:
        with pytest.raises(OutOfMemory, match="memory ran out with 7 images at a time"):
            trained(session, tmp_path)
    else:
        trained(session, tmp_path)
        assert (session.progress.micro_batch, session.accumulation) == (fits, 7)
        whole = tmp_path / "whole"
        trained(started(config(images, augment=augment, batch_size=7, steps=2), whole), whole)
        assert dict(losses(tmp_path)) == pytest.approx(dict(losses(whole)), abs=1e-6)


def test_mixing_a_batch_of_one_is_refused_before_anything_is_written(images, tmp_path):
    settings = config(images, augment=AugmentConfig(crop="whole", mixup=0.2), batch_size=1, steps=2)
    with pytest.raises(UsageError, match="batch_size is 1; wanted at least 2"):
        started(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert started(replace(settings, augment=AugmentConfig(crop="whole")), tmp_path / "run").accumulation == 1


def test_a_watcher_hears_of_every_piece_of_a_batch(images, tmp_path):
    heard = []
    session = started(config(images, steps=2, batch_size=8, micro_batch=2), tmp_path / "run")
    trained(session, tmp_path / "run", heard.append)
    assert [event for event in heard if isinstance(event, PieceDone | Stepped)] == [
        event
        for step in (1, 2)
        for event in (*(PieceDone(step=step, images=done, of=8) for done in (2, 4, 6)), Stepped(step=step))
    ]
    assert events(tmp_path / "run", "piece") == []


# A folder that is moved while it is written.


@pytest.mark.parametrize("kind", [Stepped, Evaluating, Measuring])
def test_a_folder_that_is_moved_is_noticed_and_goes_on_where_it_is(kind, images, tmp_path):
    wanted, folder, moved = tmp_path / "wanted", tmp_path / "run", tmp_path / "moved"
    trained(started(config(images), wanted), wanted)

    def move(event: Event) -> None:
        if isinstance(event, kind) and event.step >= 7 and not moved.exists():
            folder.rename(moved)

    with pytest.raises(MovedFolder) as caught:
        trained(started(config(images), folder), folder, move)
    assert caught.value.exit_code == 5
    assert f"{folder}: the folder was moved to {moved}" in str(caught.value)
    assert f"vitrail train --resume {moved}" in str(caught.value)
    assert not folder.exists(), "there are two halves"
    assert not events(moved, "done")
    trained(resumed(moved), moved)
    assert_same_run(moved, wanted)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_is_removed_is_not_made_again(replaced, images, tmp_path):
    folder = tmp_path / "run"

    def remove(event: Event) -> None:
        if event == Stepped(step=7):
            shutil.rmtree(folder)
            if replaced:
                folder.mkdir()

    with pytest.raises(MovedFolder, match="was removed or replaced"):
        trained(started(config(images), folder), folder, remove)
    assert (list(folder.iterdir()) if folder.exists() else None) == ([] if replaced else None)


# Threads, whose number changes how sums are rounded.

LARGER = replace(PLAIN, width=128, depth=3, mlp_width=256)


def test_a_run_goes_on_in_as_many_threads_as_it_was_begun_with(images, tmp_path):
    wanted, folder, seen = tmp_path / "wanted", tmp_path / "run", set()
    settings = config(images, model=LARGER)

    def crash(event: Event) -> None:
        seen.add(torch.get_num_threads())
        if event == Saved(step=6):
            raise Crash

    with in_threads(2):
        trained(started(settings, wanted), wanted)
        with pytest.raises(Crash):
            trained(started(settings, folder), folder, crash)
    with in_threads(1):
        shutil.copytree(folder, tmp_path / "other")
        with pytest.warns(Notice, match="in 2 threads, as before"):
            trained(resumed(folder), folder, crash)
        assert torch.get_num_threads() == 1
        assert seen == {2}
        assert_same_run(folder, wanted)
        trained(resumed(tmp_path / "other", changed=True), tmp_path / "other", crash)
    assert seen == {1, 2}
    assert [(event["from"], event["threads"]) for event in events(tmp_path / "other", "threads")] == [(2, 1)]


def test_a_run_of_which_no_threads_are_known_goes_on_in_those_there_are(images, tmp_path, monkeypatch):
    seen = set()
    with in_threads(2), monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(run_module, "settled_threads", lambda _session: None)
        trained(started(config(images, model=LARGER), tmp_path), tmp_path, crash_at(Saved, 6))
    with in_threads(1):
        trained(resumed(tmp_path), tmp_path, lambda _record: seen.add(torch.get_num_threads()))
    assert seen == {1}
