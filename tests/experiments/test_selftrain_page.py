"""The part of a page that shows a teacher beside its students."""

import json
from pathlib import Path

import pytest
from tests.reports.reader import Reader

from vitrail.experiments.selftrain import SelftrainFolder
from vitrail.experiments.selftrain_page import teaching_section
from vitrail.experiments.selftrain_result import Model, Result, Score, Taught, write_result

SPACE = "\N{NO-BREAK SPACE}"
TEACHER = Model(name="/x/<b>teacher", test=Score(accuracy=0.5, images=40), held_out=Score(accuracy=0.25, images=4))
STUDENT = Model(
    name="round-1",
    test=Score(accuracy=0.75, images=40),
    held_out=Score(accuracy=0.5, images=4),
    taught=Taught(offered=3_000, images=1_000, copies=2_000, right=Score(accuracy=0.9, images=1_000)),
)


def told(folder: Path, begun: int = 1, shown: int | None = None, **result) -> Reader:
    place = SelftrainFolder(folder)
    write_result(place.result, Result(**{"teacher": TEACHER, "students": (STUDENT,), **result}))
    read = Reader(teaching_section(place, begun, shown).html)
    assert read.open == [] and read.sections() == ["teaching"]
    return read


def test_everyone_stands_in_one_table_with_what_was_taught(tmp_path) -> None:
    read = told(tmp_path, shown=1)
    bar = "20 of 40 images right, 95 % interval 35.2 % to 64.8 %"
    assert bar in read.attributes("aria-label")
    words = read.words.replace(bar, "")
    assert "modeltestheld-outtaughtlabels right" in words
    assert "round 1 this page" in words and f"1,000 of 3,00090.0{SPACE}%" in words
    assert (
        f"The student of round 1 has 75.0{SPACE}% of 40 test images right, 25.0 points more than the teacher "
        "(/x/<b>teacher)." in words
    )
    assert "same 40 test images and 4 held-out images" in words and "used for nothing" in words


def test_a_student_that_is_worse_or_as_good_is_told_so(tmp_path) -> None:
    for accuracy, words in ((0.4, "10.0 points less than"), (0.5, "about as many as"), (0.5003, "about as many as")):
        other = Model(name="round-1", test=Score(accuracy=accuracy, images=40))
        assert f"right, {words} the teacher" in told(tmp_path, students=(other,)).words


def test_what_is_not_known_takes_no_column(tmp_path) -> None:
    bare = Model(name="round-1", taught=Taught(offered=3, images=2, copies=2))
    read = told(tmp_path, teacher=Model(name="teacher"), students=(bare,))
    assert "modeltaughtteacherround 12 of 3" in read.words
    assert "nothing says who knows more" in read.words and "labels right" not in read.words


def test_a_student_that_has_not_come_to_its_end(tmp_path) -> None:
    assert "round 2not at its end" in told(tmp_path, begun=2).words
    assert "this is what its teacher knows" in told(tmp_path, students=()).words


def test_numbers_that_cannot_be_read_leave_the_rest_of_the_page(tmp_path) -> None:
    (tmp_path / "selftrain.json").write_text("{")
    assert "This part is left out." in teaching_section(SelftrainFolder(tmp_path), 1).lead


@pytest.mark.parametrize(
    "odd",
    [
        {"teacher": {"name": "t", "test": {"accuracy": float("nan"), "images": 4}}},
        {"teacher": {"name": "t", "test": {"accuracy": 7.0, "images": 4}}},
        {"teacher": {"name": "t", "test": {"accuracy": 0.5, "images": 0}}},
        {"teacher": {"name": "t"}, "format": "vitrail-selftrain-result/9"},
    ],
)
def test_numbers_that_cannot_be_leave_the_rest_of_the_page(odd, tmp_path) -> None:
    (tmp_path / "selftrain.json").write_text(json.dumps({"students": [], **odd}))
    assert "This part is left out." in teaching_section(SelftrainFolder(tmp_path), 1).lead
