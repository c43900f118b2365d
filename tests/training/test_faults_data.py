"""Data and settings that are bad, change or vanish, and workers that die (fault rows 1, 8, 12, 19, 22 and 29)."""

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.training.test_resume import Crash, crash_at
from tests.training.tiny_run import (
    CLASSES,
    CPU,
    assert_same_run,
    config,
    in_process,
    last_word,
    make_images,
    quietly,
    resumed,
    started,
    trained,
)

from vitrail.data.loading import workers as data_workers
from vitrail.data.loading.workers import WorkerError
from vitrail.data.sources.files import Files
from vitrail.errors import DataError, Notice, UsageError
from vitrail.runtime.lock import only_one
from vitrail.training import checkpoint as checkpoints
from vitrail.training import start
from vitrail.training.events import Event, Saved
from vitrail.training.folder import RunFolder, read_run
from vitrail.training.log import Watcher
from vitrail.training.session import Session
from vitrail.training.sources import open_run_data


@pytest.fixture
def own_images(tmp_path) -> Path:
    """Images that the test may spoil."""
    return make_images(tmp_path / "images")


# Row 1


@pytest.mark.parametrize("content", [b"", b"<html></html>", "cut"])
def test_a_bad_file_stops_before_the_first_step(content, own_images, tmp_path):
    bad = own_images / "bee" / "003.png"
    bad.write_bytes(bad.read_bytes()[:60] if content == "cut" else content)
    with pytest.raises(DataError) as caught:
        started(config(own_images), tmp_path / "run")
    assert caught.value.exit_code == 3
    assert "1 of 48 images cannot be read" in str(caught.value)
    assert str(bad) in str(caught.value)
    assert "data.skip_bad=True" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_skip_bad_trains_without_it_and_records_it(own_images, tmp_path):
    bad = own_images / "bee" / "003.png"
    bad.write_bytes(bad.read_bytes()[:60])
    with pytest.warns(Notice, match=r"1 of 48 images are left out because they cannot be read: .*003\.png"):
        session = trained(started(config(own_images, skip_bad=True), tmp_path / "run"), tmp_path / "run")
    assert len(session.data.train) == 42
    record = read_run(RunFolder(tmp_path / "run"))
    assert record.counts == {"train": 42, "held-out": 5}
    assert record.config.data.skip_bad
    with pytest.warns(Notice, match="left out"):
        assert resumed(tmp_path / "run").progress.step == session.progress.step


# Row 8


def test_classes_of_val_are_mapped_by_name(tmp_path):
    make_images(tmp_path / "images" / "train")
    make_images(tmp_path / "images" / "val", per_class=2, classes=("bee", "dog"))
    settings = dataclasses.replace(config(tmp_path / "images").data, held_out=None)
    data = open_run_data(settings, CPU, quietly)
    assert data.held_out is not None
    assert data.held_out.classes == CLASSES
    assert sorted(data.held_out.labels.values.tolist()) == [1, 1, 3, 3]


def test_a_class_that_training_does_not_know(tmp_path):
    make_images(tmp_path / "images" / "train")
    make_images(tmp_path / "images" / "val", per_class=2, classes=("bee", "wolf"))
    settings = dataclasses.replace(config(tmp_path / "images").data, held_out=None)
    with pytest.raises(DataError, match="the class 'wolf' is not one of the 4 known ones"):
        open_run_data(settings, CPU, quietly)


# Row 12


def vanish(images: Path, how: str) -> None:
    for path in images.rglob("*.png"):
        if how == "deleted":
            path.unlink()
        else:
            path.write_bytes(b"not an image any more")


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 1])
@pytest.mark.parametrize("how", ["deleted", "changed"])
def test_files_that_vanish_in_the_middle(how, workers, own_images, tmp_path):
    folder, copy = tmp_path / "run", tmp_path / "copy"
    shutil.copytree(own_images, copy)
    wanted = tmp_path / "wanted"
    trained(started(config(own_images, epochs=4), wanted), wanted)
    session = started(config(own_images, epochs=4, workers=workers), folder)
    with pytest.warns(Notice, match="is saved"), pytest.raises(DataError) as caught:
        trained(session, folder, lambda event: vanish(own_images, how) if event.step == 8 else None)
    assert caught.value.exit_code == 3
    assert str(own_images) in str(caught.value)
    assert ".png" in str(caught.value)
    shutil.rmtree(own_images)
    copy.rename(own_images)
    again = resumed(folder, workers=0)
    assert again.progress.step >= 8
    trained(again, folder)
    assert_same_run(folder, wanted)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("how", ["another size", "the same size"])
def test_an_image_that_another_takes_the_place_of_is_noticed(how, workers, own_images, tmp_path):
    """Both can be read, and nothing else would tell them apart."""
    folder = tmp_path / "run"
    session = started(config(own_images, epochs=4, workers=workers), folder)

    def replace_all(event: Event) -> None:
        if event.step == 8:
            for number, path in enumerate(sorted(own_images.rglob("*.png"))):
                side = 12 if how == "the same size" else 16
                size = path.stat().st_size
                # No two alike, which would be copies of each other.
                Image.fromarray(np.full((side, side, 3), 5 * number, np.uint8)).save(path)
                if how == "the same size":
                    with path.open("ab") as file:
                        file.write(bytes(max(size - path.stat().st_size, 0)))

    with pytest.warns(Notice, match="is saved"), pytest.raises(DataError, match="written anew") as caught:
        trained(session, folder, replace_all)
    assert caught.value.exit_code == 3
    assert str(own_images) in str(caught.value)
    if how == "another size":
        with pytest.raises(UsageError, match="data: 43 training images"):
            resumed(folder)
    else:
        # As many bytes in a file of the same name: a copy would be no other, and the run goes on with it.
        assert resumed(folder).progress.step >= 8


@pytest.mark.parametrize("workers", [0, 1])
def test_images_that_are_only_touched_stop_no_run(workers, own_images, tmp_path):
    wanted, folder = tmp_path / "wanted", tmp_path / "run"
    trained(started(config(own_images, epochs=4), wanted), wanted)

    def touch_all(event: Event) -> None:
        if event.step == 8:
            for path in own_images.rglob("*.png"):
                os.utime(path, (1, 1))

    trained(started(config(own_images, epochs=4, workers=workers), folder), folder, touch_all)
    assert_same_run(folder, wanted)


def test_what_was_computed_before_a_file_vanished_is_saved(own_images, tmp_path):
    folder = tmp_path / "run"
    session = started(config(own_images, epochs=4), folder)
    with pytest.warns(Notice, match="Everything up to step 9 is saved"), pytest.raises(DataError):
        trained(session, folder, lambda event: vanish(own_images, "deleted") if event.step == 9 else None)
    assert checkpoints.newest(folder / "checkpoints").state["step"] == 9


def test_a_file_that_is_gone_for_a_moment(own_images, tmp_path, monkeypatch):
    read, failed = Files.read, []

    def flaky(self, index: int):
        if len(failed) < 3 and index not in failed:
            failed.append(index)
            raise DataError("the file could not be read (Stale file handle)", where=self.where(index))
        return read(self, index)

    session = started(config(own_images), tmp_path / "run")
    monkeypatch.setattr(Files, "read", flaky)
    trained(session, tmp_path / "run")
    assert len(failed) == 3


# Row 19


@pytest.fixture
def stopped_run(own_images, tmp_path) -> Path:
    with pytest.raises(Crash):
        trained(started(config(own_images, epochs=4), tmp_path / "run"), tmp_path / "run", crash_at(Saved, 6))
    return tmp_path / "run"


def edit(folder: Path, section: str, **values) -> None:
    path = folder / "config.json"
    record = json.loads(path.read_text())
    record["config"][section].update(values)
    path.write_text(json.dumps(record))


def test_a_changed_config_is_shown_and_refused(stopped_run):
    edit(stopped_run, "optim", lr=0.5, weight_decay=0.1)
    with pytest.raises(UsageError) as caught:
        resumed(stopped_run)
    assert "optim.lr: 0.003, now 0.5; optim.weight_decay: 0.05, now 0.1" in str(caught.value)
    assert "allow_changed=True" in str(caught.value)
    session = trained(resumed(stopped_run, changed=True), stopped_run)
    assert session.progress.step == session.progress.steps
    assert session.config.optim.lr == 0.5


@pytest.mark.parametrize(
    ("section", "values"),
    [("model", {"width": 64}), ("train", {"average": 0.9}), ("optim", {"optimizer": "sgd"}), ("model", {"depth": 3})],
)
def test_a_change_that_does_not_fit_the_checkpoint_is_refused_with_a_sentence(section, values, stopped_run):
    edit(stopped_run, section, **values)
    with pytest.raises((UsageError, DataError)):
        resumed(stopped_run, changed=True)


def test_a_file_that_was_added(own_images, stopped_run):
    shutil.copy(own_images / "ant" / "000.png", own_images / "ant" / "new.png")
    with pytest.raises(UsageError, match=r"data: 43 training images .*then, 44 training images .*now, not the same"):
        resumed(stopped_run)
    trained(resumed(stopped_run, changed=True), stopped_run)


def test_a_file_that_was_replaced(own_images, stopped_run):
    for shade, path in enumerate(own_images.rglob("*.png")):
        Image.fromarray(np.full((30, 30, 3), shade, dtype=np.uint8)).save(path)
    with pytest.raises(UsageError, match=r"data: 43 training images .*then, 43 training images .*now, not the same"):
        resumed(stopped_run)


def test_a_class_that_was_renamed(own_images, stopped_run):
    (own_images / "dog").rename(own_images / "eel")
    with pytest.raises(UsageError) as caught:
        resumed(stopped_run)
    assert 'classes: ["ant", "bee", "cow", "dog"], now ["ant", "bee", "cow", "eel"]' in str(caught.value)
    assert resumed(stopped_run, changed=True).data.train.classes[-1] == "eel"


def test_one_class_more_than_the_network_has(own_images, stopped_run):
    make_images(own_images / "more", classes=("eel",))
    (own_images / "more" / "eel").rename(own_images / "eel")
    (own_images / "more").rmdir()
    with pytest.raises((UsageError, DataError)):
        trained(resumed(stopped_run, changed=True), stopped_run)


def test_images_to_measure_on_that_changed(tmp_path):
    make_images(tmp_path / "images" / "train")
    make_images(tmp_path / "images" / "val", per_class=4)
    settings = config(tmp_path / "images", epochs=4)
    settings = dataclasses.replace(settings, data=dataclasses.replace(settings.data, held_out=None))
    with pytest.raises(Crash):
        trained(started(settings, tmp_path / "run"), tmp_path / "run", crash_at(Saved, 6))
    (tmp_path / "images" / "val" / "ant" / "000.png").unlink()
    with pytest.raises(UsageError, match=r"16 .* 15"):
        resumed(tmp_path / "run")


# Row 22


def harm_worker(session: Session, connection: Connection, how: signal.Signals) -> Watcher:
    """The worker itself dies or freezes, at a given image, once training is on its way."""
    data_workers.TIMEOUT_SECONDS = 2.0
    data_workers.in_workers.__kwdefaults__["timeout"] = 2.0
    read, parent = Files.read, os.getpid()
    begun = time.monotonic()

    def harmful(self, index: int):
        if os.getpid() != parent and time.monotonic() - begun > 0.5:
            os.kill(os.getpid(), how)
        return read(self, index)

    Files.read = harmful  # type: ignore[method-assign]
    return lambda _event: time.sleep(0.1)


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        (signal.SIGKILL, "a data worker was killed"),
        pytest.param(signal.SIGSTOP, "no data worker answered", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_dies_or_freezes(how, cause, images, tmp_path):
    settings = config(images, epochs=20, workers=2)
    process, connection = in_process(tmp_path / "run", settings, functools.partial(harm_worker, how=how))
    begun = time.monotonic()
    kind, message = last_word(process, connection)
    assert time.monotonic() - begun < 60
    assert (kind, process.exitcode) == (WorkerError.__name__, 3)
    assert cause in message
    assert "data.workers=0" in message
    assert resumed(tmp_path / "run", workers=0).progress.step >= 0


# Row 29


def test_nothing_depends_on_the_clock_of_the_wall(images, tmp_path, monkeypatch):
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    trained(started(config(images), wanted), wanted)
    ticks = iter(range(10**9, 0, -86400))
    monkeypatch.setattr(time, "time", lambda: float(next(ticks)))
    trained(started(config(images), came), came)
    assert_same_run(came, wanted)
    assert all(
        record["seconds"] < 60
        for record in map(json.loads, (came / "log.jsonl").read_text().splitlines())
        if "seconds" in record
    )


def test_another_torch_is_recorded_and_no_obstacle(images, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setattr(start, "versions", lambda _model: {"torch": "9.9.9", "vitrail": "0"})
    with pytest.raises(Crash):
        trained(started(config(images), folder), folder, crash_at(Saved, 6))
    monkeypatch.undo()
    assert read_run(RunFolder(folder)).versions["torch"] == "9.9.9" != torch.__version__
    assert trained(resumed(folder), folder).progress.step == 11


# One process at a time


def test_resume_of_a_run_that_is_being_trained_harms_nothing(images, tmp_path):
    """The other process is in the middle of a save."""
    folder = tmp_path / "run"
    trained(started(config(images), folder), folder)
    half = folder / "checkpoints" / ".step-000000012.abc"
    half.mkdir()
    with only_one(RunFolder(folder).lock, busy="busy"):
        with contextlib.suppress(UsageError):
            resumed(folder)
        assert half.is_dir()
