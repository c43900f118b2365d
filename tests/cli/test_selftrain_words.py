"""What is said at the end of a self-training."""

import pytest

from vitrail.cli.selftrain_words import _warning
from vitrail.selftrain.result import Model, Result, Score


def result(teacher: float, student: float, *, has_test: bool = True) -> Result:
    def model(name: str, accuracy: float) -> Model:
        score = Score(accuracy=accuracy, images=10)
        return Model(name=name, held_out=Score(accuracy=0.5, images=3), test=score if has_test else None)

    return Result(teacher=model("runs/first", teacher), students=(model("round-1", 0.1), model("round-2", student)))


def test_a_student_that_is_worse_than_its_teacher_is_told() -> None:
    told = _warning(result(0.8, 0.7))
    assert "worse than the teacher on the test images" in told
    assert "keep runs/first" in told


@pytest.mark.parametrize(("teacher", "student", "has_test"), [(0.8, 0.9, True), (0.8, 0.8, True), (0.8, 0.1, False)])
def test_others_are_not(teacher, student, has_test) -> None:
    assert _warning(result(teacher, student, has_test=has_test)) == ""
