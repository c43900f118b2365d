"""`vitrail selftrain`: the command, what it says, and what it refuses."""

import contextvars
import json
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file, save_file
from tests.experiments.selftrain_small import teacher_folder
from tests.reports.reader import Reader
from tests.training.tiny_run import CLASSES, make_images

import vitrail
from vitrail import load_model
from vitrail.cli import main
from vitrail.cli.selftrain import say_result, say_round, tell_fall
from vitrail.data.sources.source import Arrays
from vitrail.errors import Notice, UsageError
from vitrail.experiments import selftrain, selftrain_rounds
from vitrail.experiments.selftrain import SelftrainFolder
from vitrail.experiments.selftrain_choosing import Choice
from vitrail.experiments.selftrain_result import Model, Result, Score, Taught
from vitrail.runtime.lock import only_one
from vitrail.training import loop

pytestmark = pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
DIGITS = [
    "--data",
    "digits",
    "--split",
    "train[:10%]",
    "--unlabelled",
    "digits",
    "--unlabelled-split",
    "train[10%:20%]",
]
SHORT = ["--steps", "4", "--batch-size", "16", "--model.depth", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A teacher of the digits."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("VITRAIL_CACHE", str(home / "cache"))
        words = ["train", "vit-digits", "--split", "train[:10%]", *SHORT[:-2], "--name", "teacher"]
        assert main([*words, "--steps", "20"]) == 0
    return home / "runs" / "teacher"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_two_rounds_from_one_command(trained, here, capsys) -> None:
    words = ["selftrain", str(trained), *DIGITS, *SHORT, "--rounds", "2", "--threshold", "0", "--name", "self"]
    assert main(words) == 0
    said = capsys.readouterr().out
    for part in (
        "Round 1 of 2",
        "Round 2 of 2",
        "teacher",
        "labels right",
        "held-out",
        "used for nothing",
        "dropout 0.1",
    ):
        assert part in said, part
    assert main(["train", "--resume", "runs/self"]) == 3
    assert "`vitrail selftrain --resume runs/self` goes on" in capsys.readouterr().err
    found = json.loads((here / "runs/self/selftrain.json").read_text())
    assert [one["taught"]["offered"] for one in found["students"]] == [144, 144]
    assert all(one["test"]["images"] == 359 and one["held_out"]["images"] == 14 for one in found["students"])
    # The teacher is measured on the very images that its own run was selected on.
    own = json.loads((trained / "model/config.json").read_text())["metrics"]
    assert found["teacher"]["held_out"]["accuracy"] == own["held_out"]["accuracy"]
    assert found["teacher"]["test"]["accuracy"] == own["test"]["accuracy"]
    model = load_model(here / "runs/self")
    assert model.provenance["taught"]["round"] == 2 and model.config.dropout == 0.1
    # The page of a round that has none, because it was killed just before, is written by going on.
    (here / "runs/self/round-1/report.html").unlink()
    assert main(["selftrain", "--resume", "runs/self"]) == 0
    assert main(["report", "runs/self"]) == 0
    capsys.readouterr()
    for page in ("round-1/report.html", "round-2/report.html", "report.html"):
        read = Reader((here / "runs/self" / page).read_text())
        assert "teaching" in read.sections() and read.open == []
        for score in (found["teacher"]["test"], *(one["test"] for one in found["students"])):
            assert f"{score['accuracy'] * 100:.1f}\N{NO-BREAK SPACE}%" in read.words
        assert f"{found['students'][0]['taught']['images']} of 144" in read.words
    assert main(words) == 2
    assert "vitrail selftrain --resume runs/self" in capsys.readouterr().err


@pytest.mark.slow
def test_a_signal_in_a_student_can_be_gone_on_from(trained, here, capsys, monkeypatch) -> None:
    update, steps = loop.Loop._update, []

    def stopped(self, *arguments):
        steps.append(1)
        if len(steps) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, *arguments)

    monkeypatch.setattr(loop.Loop, "_update", stopped)
    assert main(["selftrain", str(trained), *DIGITS, *SHORT, "--threshold", "0", "--name", "self"]) == 75
    assert "vitrail selftrain --resume runs/self" in capsys.readouterr().err
    assert main(["selftrain", "--resume", "runs/self"]) == 0
    assert len(json.loads((here / "runs/self/selftrain.json").read_text())["students"]) == 1


def test_a_signal_while_the_teacher_labels_can_be_gone_on_from(trained, here, capsys, monkeypatch) -> None:
    asked, plain = selftrain_rounds.ask, Arrays.read

    def ask(*arguments, **more):
        # Not before: images are also read to find copies among them.
        monkeypatch.setattr(Arrays, "read", read)
        return asked(*arguments, **more)

    def read(self, index):
        os.kill(os.getpid(), signal.SIGTERM)
        return self.pixels[index]

    monkeypatch.setattr(selftrain_rounds, "ask", ask)
    words = ["selftrain", str(trained), *DIGITS, *SHORT, "--threshold", "0", "--name", "self", "--labels", "hard"]
    assert main(words) == 75
    assert not (here / "runs/self/round-1/config.json").exists()
    monkeypatch.setattr(selftrain_rounds, "ask", asked)
    monkeypatch.setattr(Arrays, "read", plain)
    assert main(["selftrain", "--resume", "runs/self"]) == 0


def test_a_name_whose_teacher_was_sure_of_nothing_can_be_used_again(trained, here, capsys, monkeypatch) -> None:
    words = ["selftrain", str(trained), *DIGITS, *SHORT]
    assert main([*words, "--threshold", "0.99999"]) == 3
    said = capsys.readouterr().err
    assert "sure of none of the 144" in said and "lower --threshold and --name selftrain-1," in said
    first = here / "runs/selftrain-1"
    assert list((first / "taught-1").glob("answers-*.npz"))
    # Another teacher would throw away what this one said.
    other = here / "other"
    shutil.copytree(trained / "model", other)
    weights = load_file(other / "model.safetensors")
    save_file({name: 2 * tensor for name, tensor in weights.items()}, other / "model.safetensors")
    assert main(["selftrain", str(other), *DIGITS, *SHORT, "--name", "selftrain-1"]) == 2
    assert "there is a run already" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr("vitrail.experiments.selftrain_teacher._piece", None)
        assert main([*words, "--threshold", "0", "--name", "selftrain-1"]) == 0
    assert "begins anew in runs/selftrain-1" in capsys.readouterr().out
    assert json.loads((first / "selftrain.json").read_text())["students"][0]["taught"]["images"] > 0
    assert json.loads((first / "config.json").read_text())["plan"]["choice"]["threshold"] == 0
    assert main([*words, "--threshold", "0.1", "--name", "selftrain-1"]) == 2


@pytest.mark.slow
def test_options_of_a_student_that_cannot_begin_can_be_mended_under_the_same_name(trained, here, capsys, monkeypatch):
    def refused(*_, **__):
        raise UsageError("no room")

    words = ["selftrain", str(trained), *DIGITS, *SHORT, "--threshold", "0", "--name", "self"]
    with monkeypatch.context() as patch:
        patch.setattr("vitrail.experiments.driver.begin", refused)
        assert main(words) == 2
    assert (here / "runs/self/taught-1/taught.json").is_file()
    # With another threshold, what was chosen would be lost.
    assert main([*words, "--threshold", "0.2"]) == 2
    with only_one(here / "runs/self/.lock", busy="somebody"):
        assert main([*words, "--micro-batch", "8"]) == 2
    monkeypatch.setattr("vitrail.experiments.selftrain_rounds.ask", None)
    assert main([*words, "--micro-batch", "8"]) == 0
    assert json.loads((here / "runs/self/round-1/config.json").read_text())["config"]["train"]["micro_batch"] == 8


def test_a_model_can_be_the_student(here, capsys) -> None:
    make_images(here / "photos", per_class=6)
    make_images(here / "loose", per_class=5)
    teacher = teacher_folder(here / "teacher", labels=CLASSES)
    words = ["--data", "photos", "--unlabelled", "loose", "--student", str(teacher), "--threshold", "0"]
    assert main(["selftrain", "teacher", *words, "--steps", "2", "--name", "self", "--device", "cpu"]) == 0
    model = load_model(here / "runs/self")
    assert model.provenance["start"] == str(teacher) and model.labels == CLASSES
    assert "finetune-folder" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["selftrain"], "there is no teacher"),
        (["selftrain", "teacher"], "there are no labelled images"),
        (["selftrain", "teacher", "--data", "photos", "--unlabelled", "nowhere"], "nowhere"),
        (["selftrain", "teacher", "--data", "photos", "--unlabelled", "photos"], "all 24 unlabelled images are among"),
        (["selftrain", "teacher", "--data", "photos", "--unlabelled", "loose", "--rounds", "0"], "rounds"),
        (["selftrain", "teacher", "--data", "photos", "--unlabelled", "loose", "--student", "finetune-folder"], "rule"),
        (
            ["selftrain", "teacher", "--data", "photos", "--unlabelled", "loose", "--student", "mpp-vit-b16"],
            "without labels",
        ),
        (["selftrain", "teacher", "--data", "photos", "--unlabelled", "loose", "--student", "nothing"], "nothing"),
        (["selftrain", "teacher", "--data", "photos", "--unlabelled", "loose", "--out", "loose"], "inside the data"),
        (["selftrain", "strange", "--data", "photos", "--unlabelled", "loose"], "vitrail finetune"),
        (["selftrain", "--resume", "runs/none"], "no such folder"),
        (["selftrain", "--resume", "teacher"], "not the record of a self-training"),
        (
            ["selftrain", "--resume", "runs/self", "--threshold", "0.5"],
            "--threshold cannot change a run that goes on; wanted one of ",
        ),
        (["selftrain", "--resume", "runs/self", "--processes", "2"], "--processes is given, and this runs in one"),
    ],
)
def test_mistakes_are_one_message_and_leave_nothing_behind(words, said, here, capsys) -> None:
    make_images(here / "photos", per_class=6)
    make_images(here / "loose", per_class=2)
    teacher_folder(here / "teacher")
    teacher_folder(here / "strange", labels=("a", "b", "c", "d"))
    assert main([*words, *(["--device", "cpu"] if "--resume" not in words else [])]) in (2, 3)
    assert said in capsys.readouterr().err
    assert not (here / "runs").exists() or not list((here / "runs").iterdir())


def test_a_second_start_before_the_first_has_written_its_plan_writes_nothing(trained, here, capsys, monkeypatch):
    begin_plan, second = selftrain.begin_plan, []
    words = ["selftrain", str(trained), *DIGITS, *SHORT, "--threshold", "0.99999", "--name", "self"]

    def meet(*arguments):
        if not second:
            second.append(None)
            second[0] = contextvars.Context().run(main, words)
            assert [path.name for path in Path("runs/self").iterdir()] == [".lock"]
        return begin_plan(*arguments)

    monkeypatch.setattr(selftrain, "begin_plan", meet)
    assert main(words) == 3
    assert second == [2]
    assert "another process is working on" in capsys.readouterr().err


def test_what_is_wrong_with_the_teacher_is_told_before_an_image_is_read(here, capsys, monkeypatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("an image was read")

    make_images(here / "photos", per_class=6)
    make_images(here / "loose", per_class=2)
    bare = vitrail.load_model(teacher_folder(here / "bare"))
    bare.preprocessing = None
    vitrail.save_model(bare, here / "bare")
    monkeypatch.setattr("vitrail.experiments.selftrain_sets.open_run_data", read)
    for teacher, told in (("bare", "--preprocessing"), ("gone", "no such file")):
        assert main(["selftrain", teacher, "--data", "photos", "--unlabelled", "loose", "--device", "cpu"]) in (2, 3)
        assert told in capsys.readouterr().err


# What is said between the rounds and at the end.

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
