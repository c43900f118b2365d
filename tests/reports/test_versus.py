"""Several runs on one page: what differs, curves that need no colour, and the images that only one has right."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.reports.reader import Reader
from tests.reports.runs import FULL, NAMES, done, evaluated, make_run, predictions, run_config, source, trained

from vitrail.data import Arrays
from vitrail.errors import UsageError
from vitrail.reports.disagreement import Disagreement, disagreement, why_not
from vitrail.reports.story import Story, gather
from vitrail.reports.versus import versus_page


def told(path: Path, wrong: dict[int, int], images: Arrays | None = None, lines=FULL, **config) -> Story:
    images = images or source()
    said = predictions(images.labels.values, 3, wrong)
    return gather(make_run(path, lines, config=run_config(**config)), images, said)


def read(*stories: Story) -> Reader:
    reader = Reader(versus_page(stories))
    assert reader.open == []
    return reader


def test_two_runs_side_by_side(tmp_path) -> None:
    a = told(tmp_path / "a", {0: 1, 1: 0})
    b = told(tmp_path / "b<i>", {1: 0, 2: 1, 3: 1}, batch_size=20)
    reader = read(a, b)
    assert reader.sections() == ["results", "settings", "curves", "images-b", "again"]
    assert "A  a" in reader.words.replace("\xa0", " ")
    assert "B  b<i>" in reader.words.replace("\xa0", " ")
    assert "accuracy83.33 %75.00 %" in reader.words
    assert "95 % interval55.20 % to 95.30 %46.77 % to 91.11 %" in reader.words
    settings = reader.words[reader.words.rindex("What differs") : reader.words.rindex("How they went")]
    assert "train.batch_size1020" in settings
    assert "optim.lr" not in settings
    assert "They differ on 3 images, of which A has 2 right." in reader.words
    assert "both are right8only A is right2only B is right1neither is right1" in reader.words
    assert "batches are not equally large" in reader.words
    assert len(reader.inside("images-b", "src")) == 3
    assert "pictures, test image 0" in reader.words
    assert "There is no clear difference." in reader.words
    assert f"A takes it for {NAMES[1]}" not in reader.words.split("Only A is right")[1].split("Only B is right")[0]
    assert f"B takes it for {NAMES[1]}" in reader.words.split("Only A is right")[1]
    assert f"class{'images'}A rightB right" in reader.words.replace("\n", "")
    assert f"{NAMES[0]}475.0 %75.0 %" in reader.words
    assert "pictures, test image 1" not in re.sub(r"image 1\d", "", reader.words)


def test_lines_are_told_apart_without_colour(tmp_path) -> None:
    stories = [told(tmp_path / name, {}) for name in "abcdef"]
    reader = read(*stories)
    lines = {name for name in reader.attributes("class") if name.startswith("line r")}
    assert lines == {f"line r{place}" for place in range(6)}
    style = reader.styles[0]
    broken = [re.search(rf"\.r{place}\.line {{ stroke-dasharray: ([\d. ]+);", style) for place in range(1, 6)]
    assert len({found[1] for found in broken if found}) == 5
    shapes = {
        re.sub(r"^M[\d.]+ [\d.]+", "", attributes["d"] or "")
        for tag, attributes in reader.tags
        if (attributes.get("class") or "").startswith("shape r")
    }
    assert len(shapes) == 6
    with pytest.raises(UsageError, match="7 runs to compare"):
        versus_page([*stories, stories[0]])


def test_epochs_are_written_only_where_they_are_the_same(tmp_path) -> None:
    def curves(*stories: Story) -> str:
        return read(*stories).words.rsplit("How they went", 1)[1].split("Where they disagree")[0]

    a = told(tmp_path / "a", {})
    assert "epoch" in curves(a, told(tmp_path / "b", {}))
    assert "epoch" not in curves(a, told(tmp_path / "c", {}, batch_size=20))


def test_other_images_are_not_compared_one_by_one(tmp_path) -> None:
    a = told(tmp_path / "a", {0: 1})
    b = told(tmp_path / "b", {0: 1}, source(side=9))
    reader = read(a, b)
    assert "They cannot be compared image by image: they were measured on different images." in reader.words
    assert reader.attributes("src") == []
    # The digest in the folder counts when the images have gone.
    gone = replace(a, source=None, digest="x"), replace(b, source=None, digest="x")
    assert why_not(*gone) == ""
    assert why_not(replace(a, source=None), b) == "which images they were measured on is not known any more."
    words = read(*gone).words
    assert "They differ on" not in words
    assert "Both are right about the same images." in words
    assert "The images cannot be shown." in words


def test_runs_that_are_not_at_their_end(tmp_path) -> None:
    a = told(tmp_path / "a", {0: 1})
    b = gather(make_run(tmp_path / "b", [trained(5), evaluated(5)]), None, None)
    c = gather(make_run(tmp_path / "c", []), None, None)
    reader = read(a, b, c)
    assert "Not at its end, so not measured: B, C." in reader.words
    assert "at step 5 of 20" in reader.words
    assert "b has not been measured" in reader.words
    assert "nan" not in "".join(reader.attributes("d"))
    assert (
        "Their logs hold no step yet."
        in Reader(versus_page([c, gather(make_run(tmp_path / "d", []), None, None)])).words
    )


def test_equal_runs(tmp_path) -> None:
    a, b = told(tmp_path / "x" / "run", {0: 1}), told(tmp_path / "y" / "run", {0: 1})
    words = read(a, b).words
    assert re.search(r"Nothing: all \d+ values are the same\.", words)
    assert "Both are right about the same images." in words
    assert f"{tmp_path}/x/run and {tmp_path}/y/run" in words


def test_names_are_text(tmp_path) -> None:
    a, b = told(tmp_path / "a", {1: 0}), told(tmp_path / "b", {})
    reader = read(a, b)
    assert len(reader.scripts) == 1
    assert NAMES[1] in reader.words


def test_the_sign_test() -> None:
    def chance(first: int, second: int) -> float:
        return Disagreement(0, np.arange(first), np.arange(second), 0).chance

    assert chance(0, 0) == 1
    assert chance(5, 5) == 1
    assert math.isclose(chance(1, 9), 2 * (1 + 10) / 2**10)
    assert math.isclose(chance(10, 0), 2 / 2**10)
    assert chance(3000, 1000) < 1e-200


def test_what_only_one_has_right_is_ordered_by_the_loss_of_the_other(tmp_path) -> None:
    found = disagreement(told(tmp_path / "a", {}), told(tmp_path / "b", {4: 0, 2: 1, 7: 0}))
    assert found.first.tolist() == [7, 2, 4]
    assert (found.both, len(found.second), found.neither) == (9, 0, 0)


def test_a_run_measured_without_predictions_left(tmp_path) -> None:
    a = told(tmp_path / "a", {})
    b = gather(make_run(tmp_path / "b", [trained(20), done()]), None, None)
    assert "predictions.npz: is not there any more" in read(a, b).words


def test_a_clear_difference_is_called_so(tmp_path) -> None:
    a, b = told(tmp_path / "a", {}), told(tmp_path / "b", {index: (index + 1) % 3 for index in range(9)})
    assert "A is better on these images. They differ on 9 images" in read(a, b).words


def test_the_same_images_under_other_names_are_not_called_other_images(tmp_path) -> None:
    a, renamed = told(tmp_path / "a", {}), source(("x", "y", "z"))
    said = predictions(renamed.labels.values, 3, {})
    b = gather(make_run(tmp_path / "b", FULL, classes=("x", "y", "z")), renamed, said)
    assert why_not(a, b) == "their classes do not have the same names."
