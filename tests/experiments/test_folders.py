"""Folders that no two experiments get, names that any system takes, and launches that find what they began."""

import json
import multiprocessing
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.data.conftest import state_of
from tests.training.tiny_run import CPU, config, make_images

from vitrail.config.spelling import OPTIONS
from vitrail.data import Source
from vitrail.errors import UsageError
from vitrail.experiments import folders
from vitrail.experiments.driver import Driver, How
from vitrail.experiments.folders import (
    Destination,
    begun_by_this_launch,
    claimed,
    ensure_plain_name,
    mark_launch,
    next_folder,
)
from vitrail.runtime.processes import ALONE


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("data") / "images", per_class=6)


@pytest.fixture
def sources(images: Path) -> list[Source]:
    """All that is opened of a run."""
    driver = Driver(How(device=CPU))
    driver.open(config(images).data)
    return driver.sources(config(images).data)


NUMBERED = Destination(Path("runs"), "run", is_exact=False)
EXACT = Destination(Path("runs"), "run", is_exact=True)


def typed(error: UsageError) -> str:
    """What it says at the command line."""
    error.spell(OPTIONS)
    return str(error)


# Folders of new runs.


def test_threads_at_the_same_moment_get_different_folders(sources, monkeypatch):
    """All have looked for the first free number before any of them makes its folder."""
    together, first = threading.Barrier(8), threading.local()
    make = Path.mkdir

    def wait(path: Path, *arguments, **names) -> None:
        if not hasattr(first, "passed"):
            first.passed = True
            together.wait(20)
        make(path, *arguments, **names)

    monkeypatch.setattr(Path, "mkdir", wait)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: next_folder(NUMBERED, sources).path, range(8)))
    assert sorted(path.name for path in found) == [f"run-{number}" for number in range(1, 9)]
    assert all(path.is_dir() for path in found)


def _take(barrier, out: Path, sources: list[Source], told) -> None:
    barrier.wait(20)
    told.put([next_folder(Destination(out, "run", is_exact=False), sources).path.name for _ in range(20)])


def test_processes_at_the_same_moment_get_different_folders(sources, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, told = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_take, args=(barrier, tmp_path, sources, told)) for _ in range(2)]
    for process in processes:
        process.start()
    found = told.get(timeout=20) + told.get(timeout=20)
    for process in processes:
        process.join(20)
    assert len(set(found)) == 40


def test_numbers_go_on_after_whatever_is_there(sources):
    for name in ("run-1", "run-3"):
        Path("runs", name).mkdir(parents=True)
    Path("runs/run-2").write_text("a file")
    assert next_folder(NUMBERED, sources).path.name == "run-4"
    assert next_folder(NUMBERED, sources).path.name == "run-5"
    assert Path("runs/run-2").read_text() == "a file"


@pytest.mark.parametrize(
    ("tag", "command"),
    [
        ("vitrail-run/1", "vitrail train --resume"),
        ("vitrail-finetune/1", "vitrail finetune --resume"),
        ("vitrail-selftrain/1", "vitrail selftrain --resume"),
        ("vitrail-transfer/1", "vitrail transfer --resume"),
        ("vitrail-vtab/1", "vitrail vtab --resume"),
    ],
)
@pytest.mark.parametrize("name", ["run", "train it", "retrain"])
def test_a_name_that_is_taken_says_how_to_go_on_with_what_is_there(tag, command, name, sources):
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"format": tag}, indent=2))
    with pytest.raises(UsageError, match="there is a run already") as caught:
        next_folder(replace(EXACT, name=name), sources)
    quoted = f"'{folder}'" if " " in name else str(folder)
    assert f"({command} {quoted})" in typed(caught.value)


def test_a_name_that_is_taken_by_something_else(sources):
    Path("runs/run").mkdir(parents=True)
    assert next_folder(EXACT, sources).path == Path("runs/run")
    Path("runs/run/notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is there already and holds something else"):
        next_folder(EXACT, sources)
    shutil.rmtree("runs/run")
    Path("runs/run").write_text("a file")
    with pytest.raises(UsageError, match="is there already and holds something else"):
        next_folder(EXACT, sources)
    assert Path("runs/run").read_text() == "a file"


def test_a_folder_of_runs_that_leads_nowhere(sources, monkeypatch):
    Path("runs").symlink_to("nowhere")
    tried = []

    def count(_sources, path: Path) -> None:
        tried.append(path)
        assert len(tried) < 100, "it goes on for ever"

    monkeypatch.setattr(folders, "ensure_outside", count)
    with pytest.raises(UsageError, match="is a link that leads nowhere"):
        next_folder(NUMBERED, sources)


def test_never_inside_the_data(sources, images):
    before = state_of(images)
    for place in (images, images / "ant", images / "runs"):
        with pytest.raises(UsageError, match="it would lie inside the data"):
            next_folder(replace(NUMBERED, out=place), sources)
    assert state_of(images) == before


def test_never_inside_the_data_of_a_few_shot_score_either(images, tmp_path):
    others = tmp_path / "others"
    for split in ("train", "test"):
        make_images(others / split, per_class=2)
    asked = replace(config(images).data, few_shot=str(others), few_shot_shots=1)
    driver = Driver(How(device=CPU))
    driver.open(asked)
    with pytest.raises(UsageError, match="it would lie inside the data"):
        next_folder(replace(NUMBERED, out=others), driver.sources(asked))


@pytest.mark.parametrize("error", [UsageError("no"), KeyboardInterrupt(), OSError(28, "full")])
def test_what_cannot_begin_leaves_nothing_and_what_has_begun_stays(error, sources):
    with pytest.raises(type(error)), claimed(NUMBERED, sources, ALONE) as folder:
        folder.checkpoints.mkdir()
        folder.config.write_text("{}")
        (folder.path / "events.out.tfevents.1").write_text("of a tracker")
        raise error
    assert not folder.path.exists()
    with pytest.raises(type(error)), claimed(NUMBERED, sources, ALONE) as folder:
        folder.config.write_text("{}")
        (folder.checkpoints / "step-000000000").mkdir(parents=True)
        raise error
    assert folder.config.exists()
    assert not folder.lock.exists()


# Names.


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/tmp/x",
        "a/b",
        "a\\b",
        ".x",
        "-x",
        " x",
        "x ",
        "x.",
        "a\nb",
        "a\0b",
        "\udcff",
        "NUL",
        "com1.x",
    ],
)
def test_a_name_that_is_no_plain_folder_is_refused(name) -> None:
    with pytest.raises(UsageError, match="plain name of one folder") as caught:
        ensure_plain_name(name)
    assert typed(caught.value).startswith(f"--name is {name!r}; wanted ")


def test_plain_names_are_fine_and_long_ones_are_told() -> None:
    for name in (None, "x", "vit-b16", "my run", "a.b", "한국어", "console", "1", "x" * 200):
        ensure_plain_name(name)
    for name in ("x" * 201, "가" * 67):
        with pytest.raises(UsageError, match="201 bytes"):
            ensure_plain_name(name)


# Launches.


def test_a_restarted_launch_finds_the_run_it_began(tmp_path, monkeypatch):
    for name in ("one", "two", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    out = str(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    mark_launch(tmp_path / "one", "asked")
    mark_launch(tmp_path / "two", "asked")
    os.utime(tmp_path / "one" / ".launch", (1, 1))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-8")
    mark_launch(tmp_path / "other", "asked")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    assert begun_by_this_launch(out, "asked") is None, "nothing was restarted"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert begun_by_this_launch(out, "asked") == str(tmp_path / "two")
    assert begun_by_this_launch(out, "something else") is None, "a script may ask for several things"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert begun_by_this_launch(out, "asked") is None, "a launch without an id is known by its process"
    mark_launch(tmp_path / "one", "asked")
    assert begun_by_this_launch(out, "asked") == str(tmp_path / "one")
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert begun_by_this_launch(out, "asked") is None


def test_a_launch_that_ended_before_it_wrote_a_config_begins_anew(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    mark_launch(tmp_path / "run", "asked")
    assert begun_by_this_launch(str(tmp_path), "asked") is None
    (tmp_path / "run/config.json").write_text("{}")
    assert begun_by_this_launch(str(tmp_path), "asked") == str(tmp_path / "run")


def test_without_a_launch_there_is_no_mark(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    mark_launch(tmp_path, "asked")
    assert list(tmp_path.iterdir()) == []
