"""What is said between the rounds of a self-training and at its end."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from vitrail.cli.selftrain_words import say_result, say_round, tell_fall
from vitrail.errors import Notice
from vitrail.experiments.selftrain_choosing import Choice
from vitrail.experiments.selftrain_folder import SelftrainFolder
from vitrail.experiments.selftrain_result import Model, Result, Score, Taught

FOLDER = SelftrainFolder(Path("runs/taught"))


def result(*accuracies: float, has_test: bool = True) -> Result:
    def model(name: str, accuracy: float) -> Model:
        score = Score(accuracy=accuracy, images=10)
        return Model(name=name, held_out=Score(accuracy=0.5, images=3), test=score if has_test else None)

    teacher, *students = accuracies
    return Result(
        teacher=model("runs/first", teacher),
        students=tuple(model(f"round-{number}", each) for number, each in enumerate(students, start=1)),
    )


def test_a_student_that_is_worse_than_its_teacher_is_told_before_it_teaches() -> None:
    with pytest.warns(Notice, match=r"round 1 is worse .* 70.00 % of the test images against 80.00 %") as told:
        tell_fall(result(0.8, 0.7), 1, FOLDER)
    assert "keep runs/first" in str(told[0].message)
    with pytest.warns(Notice, match="round 2 is worse than its teacher: .* keep runs/taught/round-1"):
        tell_fall(result(0.6, 0.9, 0.8), 2, FOLDER)


@pytest.mark.parametrize(("accuracies", "has_test"), [((0.8, 0.9), True), ((0.8, 0.8), True), ((0.8, 0.1), False)])
def test_others_are_not(accuracies, has_test, recwarn) -> None:
    tell_fall(result(*accuracies, has_test=has_test), 1, FOLDER)
    assert not recwarn.list


def test_a_last_student_that_is_worse_than_the_first_teacher(capsys) -> None:
    plan = SimpleNamespace(rounds=2, config=SimpleNamespace(model=None))
    with pytest.warns(Notice, match="The last student is worse than the first teacher, runs/first: 70.00 %"):
        say_result(plan, result(0.8, 0.6, 0.7), FOLDER)
    assert "round 2" in capsys.readouterr().out


def taught(**values) -> Taught:
    return Taught(**{"offered": 131, "images": 14, "copies": 14, **values})


@pytest.mark.parametrize(
    ("about", "told"),
    [
        (taught(sure=131), "left out: 117 that would make classes uneven (--no-balance takes them)\n"),
        (taught(sure=14), "left out: 117 that the teacher is less sure of than 0.3\n"),
        (taught(sure=34), "left out: 97 that the teacher is less sure of than 0.3, 20 that would make classes uneven"),
    ],
)
def test_why_images_are_left_out(about, told, capsys) -> None:
    say_round(SimpleNamespace(rounds=1, choice=Choice()), 1, about)
    assert told in capsys.readouterr().out


def test_nothing_is_left_out_or_nobody_knows_why(capsys) -> None:
    for about in (taught(images=131, copies=131, sure=131), taught()):
        say_round(SimpleNamespace(rounds=1, choice=Choice()), 1, about)
    assert "left out" not in capsys.readouterr().out


def test_a_teacher_that_gives_every_image_one_class() -> None:
    about = taught(images=131, copies=131, sure=131, unseen=("birds", "mammals"), only="things")
    with pytest.warns(Notice, match="calls all of them things"):
        say_round(SimpleNamespace(rounds=1, choice=Choice()), 1, about)
