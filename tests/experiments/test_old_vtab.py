"""What a VTAB of 0.1 kept, the words of a command line, as settings."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vitrail.errors import DataError, UsageError
from vitrail.experiments.old_vtab import FORMAT, settings_of
from vitrail.experiments.vtab_folder import VtabFolder, begin_vtab, read_vtab

OLD = {
    "format": FORMAT,
    "source": "/models/mine",
    "setting": "augreg",
    "tasks": ["dtd", "svhn=/data/svhn"],
    "words": ["--train.steps", "20", "--rates", "0.1", "0.2", "--train.no-compile"],
    "root": "/data",
    "download": True,
    "command": "vitrail vtab mine --steps 20",
    "versions": {"vitrail": "0.1.0"},
}


def old_folder(path: Path, **changes: Any) -> VtabFolder:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({**OLD, **changes}))
    return VtabFolder(path)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("", {}),
        # One value, of the type of its field; a minus of a number makes no option.
        ("--train.batch-size 12 --optim.lr 3e-2", {"train.batch_size": 12, "optim.lr": 0.03}),
        ("--optim.freeze -1 --seeds 2", {"optim.freeze": -1, "seeds": 2}),
        (
            "--train.precision bfloat16 --preprocessing google",
            {"train.precision": "bfloat16", "preprocessing": "google"},
        ),
        # Several.
        ("--rates 0.003 0.01 1", {"rates": [0.003, 0.01, 1.0]}),
        ("--model.patch-size 4 8", {"model.patch_size": [4, 8]}),
        # Switches, whose sign is in the name, behind the group; what follows one is another option.
        ("--train.compile --seeds 3", {"train.compile": True, "seeds": 3}),
        ("--train.no-compile --augment.no-flip", {"train.compile": False, "augment.flip": False}),
        # Images had no group before their options.
        ("--skip-bad --workers 0 --copies apart", {"data.skip_bad": True, "data.workers": 0, "data.copies": "apart"}),
        ("--no-skip-bad", {"data.skip_bad": False}),
        # Nothing, where that is a value.
        ("--train.time-limit None --preprocessing None", {"train.time_limit": None, "preprocessing": None}),
        ("--workers None --rates None", {"data.workers": None, "rates": None}),
        # The last of several counts, whatever its sign.
        ("--seeds 1 --rates 0.1 0.2 --seeds 3", {"seeds": 3, "rates": [0.1, 0.2]}),
        ("--skip-bad --no-skip-bad --skip-bad", {"data.skip_bad": True}),
    ],
)
def test_words_become_settings(typed: str, wanted: dict[str, Any]):
    found = settings_of(tuple(typed.split()))
    assert found == wanted
    # 20 is not 20.0, nor True 1.
    assert json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--train.step 20", "there is no train.step"),
        ("--train.steps twenty", "train.steps is 'twenty'; wanted a whole number"),
        ("--seeds", "seeds has no value"),
    ],
)
def test_words_that_someone_spoilt_are_told(typed: str, said: str):
    with pytest.raises(UsageError, match=said):
        settings_of(tuple(typed.split()))


def test_a_record_is_read_as_one_of_today(tmp_path: Path):
    found = read_vtab(old_folder(tmp_path / "v"))
    assert found.format == "vitrail-vtab/2"
    assert found.settings == {"train.steps": 20, "rates": [0.1, 0.2], "train.compile": False}
    assert (found.source, found.setting, found.tasks) == ("/models/mine", "augreg", ("dtd", "svhn=/data/svhn"))
    assert (found.root, found.download, found.command) == ("/data", True, OLD["command"])
    assert found.versions == {"vitrail": "0.1.0"}
    # Reading changes nothing.
    assert json.loads((tmp_path / "v/config.json").read_text()) == OLD


def test_a_damaged_one_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="words"):
        read_vtab(old_folder(tmp_path / "v", words=7))


def test_the_same_command_goes_on_and_the_record_is_of_today_then(tmp_path: Path):
    folder = old_folder(tmp_path / "v")
    now = replace(read_vtab(folder), tasks=("dmlab",), command="vitrail vtab again")
    begin_vtab(folder, now)
    assert read_vtab(folder) == replace(now, tasks=("dtd", "svhn=/data/svhn", "dmlab"))
    assert json.loads(folder.config.read_text())["format"] == "vitrail-vtab/2"


def test_another_one_is_refused_by_the_names_of_its_settings(tmp_path: Path):
    folder = old_folder(tmp_path / "v")
    other = replace(read_vtab(folder), settings={"train.steps": 30, "rates": [0.1, 0.2], "train.compile": False})
    with pytest.raises(UsageError, match=r"another one: .*train\.steps: 20, now 30"):
        begin_vtab(folder, other)
    assert json.loads(folder.config.read_text()) == OLD
