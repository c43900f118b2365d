"""What the verbs on features share: both splits, errors that keep what was found, the cache, several processes."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli.photos import draw, measured
from tests.cli.test_launch import environment
from tests.evaluation.small import levels

from vitrail.cli import main, on_features
from vitrail.cli.on_features import Options, open_both
from vitrail.errors import DataError, UsageError

VERBS = ("fewshot", "knn", "probe")


@pytest.mark.parametrize("verb", VERBS)
def test_the_second_command_takes_features_from_the_cache_and_says_so(place, capsys, verb) -> None:
    words = [
        verb,
        "model",
        "--data",
        "photos",
        *(["--shots", "1"] if verb == "fewshot" else ["--k", "3"] * (verb == "knn")),
    ]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert "photos, train: features of 29 images by model in 0:0" in first
    assert main(words) == 0
    second = capsys.readouterr().out
    assert "photos, train: features of 29 images by model from the cache" in second
    assert "photos, test: features of 15 images by model from the cache" in second
    # What was found is the same.
    assert first.splitlines()[2:] == second.splitlines()[2:]
    assert main([*words, "--fresh"]) == 0
    assert "from the cache" not in capsys.readouterr().out


def test_the_verbs_share_the_cache(place, capsys) -> None:
    measured(capsys, "knn", "model", "--data", "photos", "--k", "1")
    for words in (("probe",), ("fewshot", "--shots", "1")):
        (found,) = measured(capsys, words[0], "model", "--data", "photos", *words[1:])["results"]
        assert (found["train"]["from_cache"], found["test"]["from_cache"]) == (True, True)
        assert (found["train"]["images"], found["test"]["images"], found["classes"]) == (29, 15, 3)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("model", "--data", "nowhere"), 3, "nowhere: there is no such folder or file"),
        (("nothing", "--data", "photos"), 3, "nothing: there is no such file or folder"),
        (("model", "--data", "photos", "--test-split", "val"), 3, "--test-split says which"),
        (("model", "--data", "photos", "--train-split", "val"), 3, "--train-split says which"),
        (("model", "--data", "photos", "--preprocessing", "gogle"), 2, "Did you mean 'google'?"),
        (("model", "--data", "photos", "--test-split", "train[50%:]"), 2, "images are in both train and train[50%:]"),
        (("model", "--data", "alone"), 3, "there is one class, 'ant'"),
        (("--data", "photos"), 2, "there is no model"),
        (("model", "--data", "photos", "--batch-size", "0"), 2, "batch-size is 0"),
        (("model", "--data", "photos", "--workers", "-1"), 2, "workers is -1"),
    ],
)
def test_mistakes_are_sentences(place, capsys, words, code, told) -> None:
    draw(place / "alone" / "train", ant=3)
    draw(place / "alone" / "test", ant=3)
    assert main(["knn", *words]) == code
    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.err.startswith("error: ")
    assert len(printed.err.splitlines()) == 1


def test_other_models_and_data_are_measured_before_the_error(place, capsys) -> None:
    draw(place / "alone" / "train", ant=3)
    draw(place / "alone" / "test", ant=3)
    assert main(["knn", "nothing", "model", "--data", "alone", "photos", "--k", "1"]) == 3
    printed = capsys.readouterr()
    assert " photos " in printed.out
    assert "plain vote" in printed.out
    notes = printed.err.splitlines()
    assert notes[0].startswith("note: alone: there is one class, 'ant'")
    assert notes[1].startswith("error: nothing: there is no such file or folder")


def test_a_bad_image_stops_its_data_set_alone_and_can_be_left_out(place, capsys) -> None:
    draw(place / "bad" / "train", ant=4, bee=4)
    draw(place / "bad" / "test", ant=2, bee=2)
    (place / "bad" / "train" / "bee" / "2.png").write_bytes(b"no image")
    assert main(["knn", "model", "--data", "bad", "photos", "--k", "1", "--workers", "0"]) == 3
    printed = capsys.readouterr()
    assert " photos " in printed.out
    assert f"error: {Path('bad/train/bee/2.png')}: the content is no image we read" in printed.err
    assert main(["knn", "model", "--data", "bad", "--k", "1", "--skip-bad", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["results"][0]["train"]["images"] == 7
    assert "1 of 8 images are left out" in printed.err


def test_parts_that_meet_share_no_image(place) -> None:
    train, test = open_both("photos", Options(data=(), train_split="train[:20]", test_split="train[20:]"))
    assert (len(train), len(test)) == (20, 9)
    with pytest.raises(UsageError, match=r"1 images are in both train\[:20\] and train\[19:\].* Say --train-split"):
        open_both("photos", Options(data=(), train_split="train[:20]", test_split="train[19:]"))


def test_classes_of_the_test_images_go_by_name(place) -> None:
    draw(place / "other" / "train", ant=2, bee=2)
    draw(place / "other" / "test", bee=3)
    train, test = open_both("other", Options(data=()))
    assert train.classes == test.classes == ("ant", "bee")
    assert test.labels.values.tolist() == [1, 1, 1]


def test_several_classes_an_image_are_refused(place) -> None:
    rows = ["path,labels,split"]
    for split in ("train", "test"):
        rows += [f"photos/{split}/ant/{number}.png,{'x|y' if number else 'x'},{split}" for number in range(3)]
    (place / "many.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match="the images have several classes each; wanted one"):
        open_both("many.csv", Options(data=()))


@pytest.mark.slow
def test_two_processes_give_the_features_of_one(place, capsys) -> None:
    alone = measured(capsys, "knn", "model", "--data", "photos", "--k", "1", "5")
    words = ["knn", "model", "--data", "photos", "--k", "1", "5", "--fresh", "--json", "--processes", "2"]
    environ = {**environment(), "VITRAIL_CACHE": str(place / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "vitrail", *words],
        env=environ, cwd=place, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    together = json.loads(done.stdout)
    assert together["results"][0]["votes"] == alone["results"][0]["votes"]
    assert not together["results"][0]["train"]["from_cache"]


def test_splits_with_one_in_common_are_refused() -> None:
    source = levels()
    for train, test in (("train+val", "val"), ("train", "val+train")):
        with pytest.raises(UsageError, match="have a split in common; wanted none that is learnt from and measured on"):
            on_features._ensure_apart(source, source, SimpleNamespace(train_split=train, test_split=test))
    on_features._ensure_apart(source, source, SimpleNamespace(train_split="train+val", test_split="test"))
