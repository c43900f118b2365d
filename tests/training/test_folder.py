"""The record of a run: through JSON and back, foreign files, differences, the command."""

import json
from pathlib import Path

import pytest
from tests.training.tiny_run import config

from vitrail.config import to_json
from vitrail.errors import DataError, UsageError
from vitrail.training.folder import (
    FORMAT,
    RunFolder,
    RunRecord,
    differences,
    read_run,
    versions,
    write_record,
)


@pytest.fixture
def record() -> RunRecord:
    return RunRecord(
        format=FORMAT,
        config=config(Path("그림 \u2028 <b>'\"")),
        classes=("개", "고양이", "\u2028", "</script>"),
        digest="0" * 64,
        counts={"train": 108, "held-out": 12},
        command="vitrail train x --data 'a b'",
        versions=versions(),
        device="cpu, 1 threads",
    )


@pytest.fixture
def folder(tmp_path, record) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    write_record(folder, record)
    return folder


def test_a_record_comes_back_as_it_was(folder, record) -> None:
    assert read_run(folder) == record
    assert sorted(path.name for path in folder.path.iterdir()) == ["config.json"]


def test_where_things_are(tmp_path) -> None:
    folder = RunFolder(tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in (
        folder.config, folder.log, folder.checkpoints, folder.model, folder.report, folder.lock
    )}  # fmt: skip
    assert found == {"config.json", "log.jsonl", "checkpoints", "model", "report.html", ".lock"}


def test_a_folder_that_is_no_run(tmp_path) -> None:
    with pytest.raises(UsageError, match=r"there is no config\.json; wanted the folder of a run"):
        read_run(RunFolder(tmp_path))
    with pytest.raises(UsageError, match="there is no such folder"):
        read_run(RunFolder(tmp_path / "nothing"))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"format": "vitrail/1"}', '{"format": "vitrail-run/2"}']
)
def test_a_config_that_is_no_record(text, folder) -> None:
    folder.config.write_text(text)
    with pytest.raises(DataError) as caught:
        read_run(folder)
    assert str(folder.config) in str(caught.value)


def test_a_config_nested_beyond_reason(folder) -> None:
    folder.config.write_text("[" * 100_000)
    with pytest.raises(DataError):
        read_run(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda v: v["config"]["optim"].update(lrr=1), "Unknown field 'lrr'. Did you mean 'lr'"),
        (lambda v: v["config"]["optim"].update(lr="fast"), "found 'fast'; wanted a value of type float"),
        (lambda v: v["config"]["optim"].update(optimizer="adan"), "wanted one of 'adam', 'sgd'"),
        (lambda v: v["config"]["train"].update(steps=3), "exactly one of them"),
        (lambda v: v["config"].pop("train"), "the field 'train' is missing"),
        (lambda v: v["config"]["data"].update(held_out=1.5), "held_out is 1.5"),
        (lambda v: v["config"]["model"].update(width=33), "not divisible"),
        (lambda v: v.update(classes="ab"), "wanted a list"),
    ],
)
def test_an_edited_record_is_refused_with_the_field_named(change, told, folder) -> None:
    values = json.loads(folder.config.read_text())
    change(values)
    folder.config.write_text(json.dumps(values))
    with pytest.raises(DataError) as caught:
        read_run(folder)
    assert told in str(caught.value)
    assert str(folder.config) in str(caught.value)


def test_differences_name_the_field_and_both_values() -> None:
    old = {"optim": {"lr": 0.1, "clip": None}, "gone": 1, "same": [1, 2]}
    new = {"optim": {"lr": 0.2, "clip": None}, "same": [1, 2], "new": "가" * 100}
    assert differences(old, new) == [
        "optim.lr: 0.1, now 0.2",
        "gone: 1, now null",
        f'new: null, now "{"가" * 56}...',
    ]
    assert differences(old, old) == []
    assert differences([1], [2], "classes") == ["classes: [1], now [2]"]
    assert differences({"a": 1}, 3, "x") == ['x: {"a": 1}, now 3']


def test_equal_configs_have_no_differences_through_json(record) -> None:
    values = to_json(record.config)
    assert differences(json.loads(json.dumps(values)), values) == []


def test_versions_say_what_numbers_depend_on() -> None:
    found = versions()
    assert {"vitrail", "torch", "python", "system", "cuda"} == set(found)
    assert found["torch"]
