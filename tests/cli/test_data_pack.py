"""`vitrail data pack` as a person calls it."""

import json
from pathlib import Path

import pytest
from tests.data.check.scenes import make_folder, scene
from tests.data.conftest import state_of

from vitrail.cli import main
from vitrail.data.open import open_data


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos", {"train": 12, "val": 6})


def called(capsys, code: int, *words: object) -> tuple[str, str]:
    assert main(["data", "pack", *map(str, words)]) == code
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return printed.out, printed.err


def test_a_copy_says_what_it_holds_and_what_was_lost(capsys, photos, tmp_path):
    before = state_of(photos)
    out, _ = called(capsys, 0, photos, tmp_path / "copy", "--short-side", 32)
    told = " ".join(out.split())
    assert "train 12, val 6 images" in told
    assert "note: packed at short side 32: 18 larger images were reduced, so evaluating" in told
    assert "training at more than 32 pixels enlarges them again." in told
    assert state_of(photos) == before
    out, _ = called(capsys, 0, photos, tmp_path / "whole")
    assert "note:" not in out


def test_a_class_that_training_does_not_know_is_refused(capsys, photos, tmp_path):
    (photos / "val" / "bird").mkdir()
    scene(80).save(photos / "val" / "bird" / "one.jpg")
    _, err = called(capsys, 3, photos, tmp_path / "copy")
    assert err == (
        f"error: {photos}/val: the class 'bird' is not one of the 2 known ones; wanted classes among 'cat', 'dog'. "
        "Rename the folder, or move it away.\n"
    )
    assert not (tmp_path / "copy").exists()
    called(capsys, 0, photos, tmp_path / "copy", "--split", "train")
    assert sorted(json.loads((tmp_path / "copy" / "pack.json").read_text())["digests"]) == ["train"]


def test_splits_that_lack_a_class_keep_its_number(capsys, photos, tmp_path):
    for path in (photos / "val" / "cat").iterdir():
        path.unlink()
    (photos / "val" / "cat").rmdir()
    called(capsys, 0, photos, tmp_path / "copy")
    val = open_data(tmp_path / "copy", "val")
    assert val.classes == ("cat", "dog")
    assert set(val.labels.values.tolist()) == {1}


def test_an_empty_class_must_be_allowed(capsys, photos, tmp_path):
    (photos / "train" / "empty").mkdir()
    _, err = called(capsys, 3, photos, tmp_path / "copy")
    assert "the class 'empty' has no images" in err
    assert "--allow-empty" in err
    called(capsys, 0, photos, tmp_path / "copy", "--allow-empty")
    assert open_data(tmp_path / "copy", "val").classes == ("cat", "dog", "empty")


def test_a_part_is_refused(capsys, photos, tmp_path):
    _, err = called(capsys, 2, photos, tmp_path / "copy", "--split", "train[:90%]")
    assert err == (
        "error: the split to pack is 'train[:90%]'; wanted a whole one. "
        "Pack the whole split; 'train[:90%]' can then be taken of the copy.\n"
    )


def test_no_split_at_all_is_an_error(capsys, photos, tmp_path):
    _, err = called(capsys, 3, photos, tmp_path / "copy", "--split", "test")
    assert "there is no 'test' part" in err
