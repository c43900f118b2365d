"""Which images are labelled, and which are given to the teacher."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.training.tiny_run import CPU, make_images, quietly

from vitrail.config import DataConfig
from vitrail.errors import DataError, Notice, UsageError
from vitrail.experiments.selftrain import Unlabelled
from vitrail.experiments.selftrain_sets import open_sets
from vitrail.training.sources import open_run_data


def digits(split: str = "train[:10%]") -> DataConfig:
    return DataConfig(data="digits", split=split, held_out=0.1)


def test_the_held_out_images_are_those_of_a_run_on_the_same_part() -> None:
    sets = open_sets(digits(), Unlabelled(data="digits", split="train[10%:]"), CPU, quietly)
    run = open_run_data(digits(), CPU, quietly)
    assert run.held_out is not None
    assert sets.held_out.tolist() == run.held_out.ids(np.arange(len(run.held_out))).tolist()
    assert not set(sets.held_out) & set(sets.learnt)
    assert len(sets.unlabelled) == 1438 - 143
    assert sets.unlabelled.classes == ("image",) and not sets.unlabelled.labels.values.any()


def test_what_is_labelled_held_out_or_tested_on_is_not_given_to_the_teacher() -> None:
    with pytest.warns(Notice, match="143 of the 1,438"):
        sets = open_sets(digits(), Unlabelled(data="digits"), CPU, quietly)
    offered = set(sets.unlabelled.ids(np.arange(len(sets.unlabelled))))
    assert not offered & {*sets.learnt, *sets.held_out} and len(offered) == 1438 - 143
    with pytest.raises(UsageError, match="all 359 unlabelled images"):
        open_sets(digits(), Unlabelled(data="digits", split="test"), CPU, quietly)


def test_a_folder_of_images_inside_the_labelled_folder_gives_nothing_new(place) -> None:
    labelled = DataConfig(data=str(place / "labelled"))
    with pytest.raises(UsageError, match="all 6 unlabelled images"):
        open_sets(labelled, Unlabelled(data=str(place / "labelled" / "ant")), CPU, quietly)


def test_links_to_what_is_tested_on_are_not_given_to_the_teacher(tmp_path, place) -> None:
    make_images(tmp_path / "data" / "train", per_class=4)
    make_images(tmp_path / "data" / "test", per_class=2)
    shutil.copytree(place / "loose", tmp_path / "many")
    (tmp_path / "many" / "folder").symlink_to(tmp_path / "data" / "test")
    tested = sorted((tmp_path / "data" / "test").rglob("*.png"))
    (tmp_path / "many" / "soft.png").symlink_to(tested[0])
    (tmp_path / "many" / "hard.png").hardlink_to(tested[1])
    labelled = DataConfig(data=str(tmp_path / "data"))
    with pytest.warns(Notice, match="10 of the 46 unlabelled"):
        sets = open_sets(labelled, Unlabelled(data=str(tmp_path / "many")), CPU, quietly)
    assert len(sets.unlabelled) == 36


def test_copies_of_what_is_held_out_or_tested_on_are_not_given_to_the_teacher(tmp_path, place) -> None:
    labelled = DataConfig(data=str(make_images(tmp_path / "data")), held_out=0.25)
    data = open_run_data(labelled, CPU, quietly)
    assert data.held_out is not None
    shutil.copytree(place / "loose", tmp_path / "many")
    for index, source in enumerate((data.held_out, data.held_out, data.train)):
        shutil.copy(source.where(index), tmp_path / "many" / f"copy-{index}.png")
    with pytest.warns(Notice, match="2 of the 39 unlabelled images are copies"):
        sets = open_sets(labelled, Unlabelled(data=str(tmp_path / "many")), CPU, quietly)
    offered = {Path(sets.unlabelled.where(index)).name for index in range(len(sets.unlabelled))}
    # A copy of what is learnt from anyway does no harm.
    assert len(offered) == 37 and "copy-2.png" in offered and not {"copy-0.png", "copy-1.png"} & offered
    before = open_sets(replace(labelled, copies="apart"), Unlabelled(data=str(tmp_path / "many")), CPU, quietly)
    assert len(before.unlabelled) == 39


def test_nested_images_are_all_found(place) -> None:
    sets = open_sets(DataConfig(data=str(place / "labelled")), Unlabelled(data=str(place / "loose")), CPU, quietly)
    assert len(sets.unlabelled) == 36


def test_a_val_split_is_measured_on_and_nothing_is_held_out_beside_it(tmp_path, place) -> None:
    make_images(tmp_path / "data" / "train", per_class=4)
    make_images(tmp_path / "data" / "val", per_class=2)
    sets = open_sets(DataConfig(data=str(tmp_path / "data")), Unlabelled(data=str(place / "loose")), CPU, quietly)
    assert sets.labelled.held_out is not None and len(sets.labelled.held_out) == 8
    assert not len(sets.held_out) and len(sets.learnt) == 16


def test_bad_files_stop_it_or_are_left_out(tmp_path, place) -> None:
    shutil.copytree(place / "loose", tmp_path / "loose")
    (tmp_path / "loose" / "deep" / "01.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    where = Unlabelled(data=str(tmp_path / "loose"))
    with pytest.raises(DataError, match="1 of 36 images cannot be read"):
        open_sets(DataConfig(data=str(place / "labelled")), where, CPU, quietly)
    with pytest.warns(Notice, match="left out"):
        sets = open_sets(DataConfig(data=str(place / "labelled"), skip_bad=True), where, CPU, quietly)
    assert len(sets.unlabelled) == 35
    assert all("deep/01.png" not in sets.unlabelled.where(index) for index in range(35))


def test_a_folder_without_images_is_named(tmp_path, place) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no image in this folder"):
        open_sets(DataConfig(data=str(place / "labelled")), Unlabelled(data=str(tmp_path / "empty")), CPU, quietly)


def test_images_with_several_classes_are_refused(tmp_path, place) -> None:
    for number in range(8):
        Image.new("RGB", (8, 8), (number * 9, 0, 0)).save(tmp_path / f"{number}.png")
    rows = [f"{number}.png,{'a|b' if number % 2 else 'a'}" for number in range(8)]
    (tmp_path / "data.csv").write_text("\n".join(["path,labels", *rows]) + "\n")
    with pytest.raises(UsageError, match="several classes"):
        open_sets(DataConfig(data=str(tmp_path / "data.csv")), Unlabelled(data=str(place / "loose")), CPU, quietly)
