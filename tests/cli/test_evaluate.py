"""`vitrail evaluate` as it is typed: what it says, writes, refuses, and keeps when something fails."""

import csv
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.conftest import state_of
from tests.training.tiny_run import CLASSES, make_images

import vitrail
from vitrail.cli import evaluate, main
from vitrail.cli.evaluate import summarised
from vitrail.config import preset
from vitrail.data.sources.taught import Lesson, Origin, TaughtRecord, write_taught
from vitrail.errors import DiskError
from vitrail.reports.evaluation_folder import EvaluationFolder


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Two splits, which must be as they were when the test ends."""
    make_images(tmp_path / "data/train", per_class=3)
    make_images(tmp_path / "data/test", per_class=5)
    before = state_of(tmp_path / "data")
    yield tmp_path / "data"
    assert state_of(tmp_path / "data") == before


def make_model(
    path: str, labels: tuple[str, ...] | None = CLASSES, seed: int = 0, outputs: int | None = None, scale: float = 1.0
) -> str:
    """A model folder whose head says something."""
    torch.manual_seed(seed)
    model = vitrail.create_model("vit-test", num_classes=outputs or len(labels or CLASSES))
    torch.nn.init.normal_(model.head.weight, std=scale)
    model.labels, model.preprocessing = labels, preset("augreg")
    vitrail.save_model(model, path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> str:
    return make_model("model")


def printed(capsys, *words: object) -> str:
    code = main(["evaluate", *map(str, words), "--device", "cpu"])
    found = capsys.readouterr()
    assert code == 0, found.err
    return found.out


def result(capsys, *words: object) -> dict:
    return json.loads(printed(capsys, *words, "--json"))


def failure(capsys, code: int, *words: object) -> tuple[str, str]:
    """The one line of the error, and what was printed before it."""
    came = main(["evaluate", *map(str, words), "--device", "cpu"])
    found = capsys.readouterr()
    assert came == code, found.err
    assert "Traceback" not in found.err
    lines = [line for line in found.err.splitlines() if not line.startswith(("note: ", "measuring ", "reading "))]
    assert len(lines) == 1, found.err
    return lines[0], found.out


def test_people_read_what_was_counted_and_how_good_it_is(capsys, data, model) -> None:
    found = result(capsys, model, "--data", data)["models"][0]
    out = printed(capsys, model, "--data", data)
    right = found["top1"]["right"]
    assert f"model on {data}, test: 20 images counted, 4 classes" in out
    assert f"top-1            {5 * right:.2f} % ({right} of 20 images; 95 % interval" in out
    assert "top-5" not in out, "all four classes are among five guesses"
    assert f"cross-entropy    {found['loss']:.4f}" in out
    assert f"ECE {100 * found['calibration']['ece']:.2f} % (15 bins of equal width): on average" in out
    assert "worst classes" in out and "was taken for" in out
    assert "images/s on cpu, 1 thread; float32" in out


def test_programs_get_everything(capsys, data, model) -> None:
    whole = result(capsys, model, "--data", data)
    assert whole["format"] == "vitrail-evaluation/1"
    about = whole["data"]
    assert (about["split"], about["images"], about["classes"], len(about["digest"])) == ("test", 20, 4, 64)
    (found,) = whole["models"]
    assert found["images"] == found["top1"]["images"] == found["calibration"]["images"] == 20
    assert [one["name"] for one in found["classes"]] == list(CLASSES)
    assert np.array(found["confusion"]["counts"]).sum() == 20
    assert found["preprocessing"]["size"] == [32, 32]
    assert found["seconds"] > 0 and found["images_per_second"] > 0
    assert whole["versions"]["torch"] == torch.__version__
    assert whole["summary"] is None and whole["errors"] == []


@pytest.mark.parametrize(("batch", "workers"), [(1, 0), (7, 2), (64, 1)])
def test_neither_batch_size_nor_workers_change_a_count(capsys, data, model, batch, workers) -> None:
    wanted = result(capsys, model, "--data", data, "--batch-size", 64, "--workers", 0)["models"][0]
    found = result(capsys, model, "--data", data, "--batch-size", batch, "--workers", workers)["models"][0]
    for name in ("images", "top1", "top5", "classes", "confusion"):
        assert found[name] == wanted[name]
    assert [one["images"] for one in found["calibration"]["bins"]] == [
        one["images"] for one in wanted["calibration"]["bins"]
    ]


@pytest.mark.slow
def test_two_processes_count_the_same_and_one_speaks(capsys, data, model) -> None:
    wanted = result(capsys, model, "--data", data)["models"][0]
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    words = [model, "--data", str(data), "--device", "cpu", "--processes", "2", "--batch-size", "3", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "vitrail", "evaluate", *words, "--out", "both"],
        env=kept, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)
    assert whole["processes"] == 2
    for name in ("images", "top1", "top5", "classes", "confusion", "fingerprint"):
        assert whole["models"][0][name] == wanted[name]
    assert json.loads(Path("both/result.json").read_text()) == whole


def test_the_folder_holds_numbers_answers_page_and_pictures(capsys, data, model) -> None:
    out = printed(capsys, model, "--data", data, "--out", "found")
    folder = Path("found")
    assert {path.name for path in folder.iterdir()} == {"result.json", "predictions.npz", "report.html", "figures"}
    assert {path.name for path in (folder / "figures").iterdir()} == {
        "reliability.svg", "classes.svg", "confusion.svg",
    }  # fmt: skip
    assert "found/report.html  the page: open it" in out
    record = json.loads((folder / "result.json").read_text())["models"][0]
    with np.load(folder / "predictions.npz", allow_pickle=False) as file:
        assert set(file) == {"guesses", "confidence", "right", "losses", "labels", "images", "classes"}
        assert (file["guesses"][:, 0] == file["labels"]).sum() == record["top1"]["right"]
        assert str(file["images"][0]) == str(data / "test/ant/000.png")
        assert file["classes"].tolist() == list(CLASSES)
    # The same command again takes the place of what it wrote.
    printed(capsys, model, "--data", data, "--out", "found")


def test_nothing_else_is_overwritten_and_nothing_is_written_into_data(capsys, data, model) -> None:
    error, _ = failure(capsys, 2, model, "--data", data, "--out", data / "found")
    assert "inside the data" in error
    error, _ = failure(capsys, 2, model, "--data", data, "--out", model)
    assert error == "error: model: is there already and holds something else than an evaluation. Choose another --out."
    Path("file").write_text("mine")
    error, _ = failure(capsys, 2, model, "--data", data, "--out", "file")
    assert "is no folder" in error
    Path("link").symlink_to("nowhere")
    error, _ = failure(capsys, 2, model, "--data", data, "--out", "link")
    assert "is a link that leads nowhere" in error
    printed(capsys, model, "--data", data, "--out", "ours")
    shutil.rmtree("ours/figures")
    Path("ours/figures").symlink_to(data)
    error, _ = failure(capsys, 2, model, "--data", data, "--out", "ours")
    assert "is a link, and results are never written elsewhere" in error


def test_several_models_have_a_mean_and_a_deviation(capsys, data) -> None:
    models = [make_model(f"m/{seed}", seed=seed) for seed in range(3)]
    whole = result(capsys, *models, "--data", data, "--out", "found")
    shares = [one["top1"]["share"] for one in whole["models"]]
    assert len(set(shares)) > 1
    assert whole["summary"]["top1"]["mean"] == pytest.approx(np.mean(shares))
    assert whole["summary"]["top1"]["std"] == pytest.approx(np.std(shares, ddof=1))
    assert {"top1", "top5", "loss", "ece"} == set(whole["summary"])
    out = printed(capsys, *models, "--data", data)
    assert all(f"m/{seed} " in out for seed in range(3))
    spread = whole["summary"]["top1"]
    assert f"of 3 models: top-1 {100 * spread['mean']:.2f} ± {100 * spread['std']:.2f} %" in out
    for seed in range(3):
        assert Path(f"found/{seed + 1}-{seed}/predictions.npz").is_file()
        assert f'href="{seed + 1}-{seed}/report.html"' in Path("found/report.html").read_text()


def test_one_model_that_fails_keeps_the_others(capsys, data) -> None:
    models = [make_model("a", seed=1), make_model("b", seed=2), "nowhere", make_model("c", seed=3)]
    error, out = failure(capsys, 3, *models, "--data", data, "--out", "found", "--json")
    assert error.startswith("error: nowhere: there is no such file or folder")
    whole = json.loads(out)
    assert [one["model"] for one in whole["models"]] == ["a", "b", "c"]
    assert whole["errors"] == [{"model": "nowhere", "error": error.removeprefix("error: ")}]
    assert json.loads(Path("found/result.json").read_text()) == whole
    assert {path.name for path in Path("found").iterdir()} >= {"1-a", "2-b", "4-c"}
    assert "there is no such file" in Path("found/report.html").read_text()


def test_two_that_fail_are_both_told(capsys, data, model) -> None:
    error, out = failure(capsys, 3, "gone", model, "lost", "--data", data)
    assert error.startswith("error: gone: ")
    assert "model" in out
    assert main(["evaluate", "gone", "lost", "--data", str(data), "--device", "cpu"]) == 3
    assert "note: lost was not measured either: lost: there is no such file" in capsys.readouterr().err


def test_a_full_disk_does_not_lose_the_numbers(capsys, data, model, monkeypatch) -> None:
    def full(*_arguments) -> None:
        raise DiskError("could not be written (No space left on device)", where="found/report.html")

    monkeypatch.setattr(EvaluationFolder, "write_model", full)
    error, out = failure(capsys, 5, model, model, "--data", data, "--out", "found", "--json")
    assert "No space left" in error
    assert len(json.loads(out)["models"]) == 1
    assert json.loads(Path("found/result.json").read_text())["models"][0]["images"] == 20


def test_control_c_keeps_what_was_measured(capsys, data, model, monkeypatch) -> None:
    once = evaluate._Work._measure

    def stop_at_the_second(self, name):
        if name == "second":
            raise KeyboardInterrupt
        return once(self, name)

    monkeypatch.setattr(evaluate._Work, "_measure", stop_at_the_second)
    assert main(["evaluate", model, "second", "--data", str(data), "--device", "cpu", "--json"]) == 130
    assert len(json.loads(capsys.readouterr().out)["models"]) == 1


def test_a_folder_without_parts_is_measured_whole_if_it_was_not_learnt_from(capsys, tmp_path, model) -> None:
    make_images(tmp_path / "plain", per_class=3)
    assert main(["evaluate", model, "--data", "plain", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["data"]["images"] == 12
    assert "all 12 images are measured" in err
    make_images(tmp_path / "only/train")
    make_images(tmp_path / "only/val", per_class=2)
    assert result(capsys, model, "--data", "only")["data"]["split"] == "val"
    assert result(capsys, model, "--data", "only", "--split", "train[50%:]")["data"]["split"] == "train[50%:]"


def test_of_a_folder_that_was_learnt_from_only_what_was_held_out_is_measured(capsys, tmp_path) -> None:
    make_images(tmp_path / "plain", per_class=10)
    words = ["train", "vit-digits", "--data", "plain", "--held-out", "0.25", "--epochs", "1"]
    assert main([*words, "--name", "held", "--device", "cpu"]) == 0
    hint = next(line for line in capsys.readouterr().out.splitlines() if "vitrail evaluate" in line)
    command = shlex.split(hint.split("  how good")[0])
    assert command[0] == "vitrail" and "FOLDER" not in command
    assert main([*command[1:], "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["data"]["images"] == 10
    assert "held out" in err
    shutil.move("runs/held/model", "elsewhere")
    error, _ = failure(capsys, 3, "elsewhere", "--data", "plain")
    assert "elsewhere has learnt from these images" in error and "--split train" in error


def test_what_is_wrong_with_a_model_is_told_before_an_image_is_read(capsys, data, monkeypatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr(evaluate, "preflight", read)
    bare = vitrail.load_model(make_model("bare"))
    bare.preprocessing = None
    vitrail.save_model(bare, "bare")
    make_model("others", labels=("a", "b", "c", "d"))
    for model, told in (("bare", "imagenet for DeiT"), ("gone", "no such file"), ("others", "unknown to the model")):
        error, _ = failure(capsys, 3 if model != "bare" else 2, model, "--data", data)
        assert told in error


def test_where_the_order_is_not_known_no_share_is_a_headline(capsys, data) -> None:
    nameless = make_model("nameless", labels=None)
    named = result(capsys, make_model("named"), "--data", data)["models"][0]
    assert main(["evaluate", nameless, "--data", str(data), "--device", "cpu", "--out", "out"]) == 0
    out = capsys.readouterr().out
    assert "top-1            cannot be told" in out and "--classes" in out
    whole = json.loads(Path("out/result.json").read_text())
    (found,) = whole["models"]
    assert (found["matched_by"], found["images"]) == ("order", 20)
    for name in ("top1", "top5", "loss", "class_mean", "calibration", "confusion", "classes"):
        assert found[name] is None, name
    assert found["if_in_order"]["top1"] == named["top1"]
    assert not {"right", "losses", "labels"} & set(np.load("out/predictions.npz"))
    assert "cannot be told" in Path("out/report.html").read_text(encoding="utf-8")
    said = result(capsys, nameless, "--data", data, "--classes", "data-order")["models"][0]
    assert (said["matched_by"], said["top1"]) == ("number", named["top1"])
    assert "top-1" not in printed(capsys, nameless, nameless, "--data", data).split("mean ±")[-1]


def test_guesses_that_are_no_class_of_the_data_are_counted_and_said(capsys, data) -> None:
    model = make_model("six", labels=(*CLASSES, "emu", "gnu"))
    found = result(capsys, model, "--data", data)["models"][0]
    outside = sum(one["guessed"] for one in found["classes"][4:])
    assert f"{outside} first guesses are none of the 4 classes of the data" in printed(capsys, model, "--data", data)


def test_a_model_that_learnt_from_these_images_is_told(capsys, data) -> None:
    path = make_model("learnt")
    config = json.loads(Path("learnt/config.json").read_text())
    config["provenance"] = {**config.get("provenance", {}), "data": str(data)}
    Path("learnt/config.json").write_text(json.dumps(config))
    for split, is_told in (("train", True), ("test", False)):
        assert main(["evaluate", path, "--data", str(data), "--split", split, "--device", "cpu"]) == 0
        assert ("maybe from these very images" in capsys.readouterr().err) == is_told


def test_names_decide_which_class_is_which(capsys, data) -> None:
    plain = result(capsys, make_model("plain"), "--data", data)["models"][0]
    other = vitrail.load_model("plain")
    order = [2, 0, 3, 1]
    with torch.no_grad():
        other.head.weight.copy_(other.head.weight[order])
        other.head.bias.copy_(other.head.bias[order])
    other.labels = tuple(CLASSES[number] for number in order)
    vitrail.save_model(other, "turned")
    turned = result(capsys, "turned", "--data", data)["models"][0]
    assert turned["top1"] == plain["top1"]
    assert turned["matched_by"] == "name"


def test_classes_that_do_not_fit_are_a_sentence(capsys, data) -> None:
    error, _ = failure(capsys, 3, make_model("other", ("cat", "dog", "bee")), "--data", data)
    assert "2 of the 4 classes of the data are unknown to the model: 'ant', 'cow'" in error
    error, _ = failure(capsys, 3, make_model("many", None, outputs=7), "--data", data)
    assert "the data has 4 classes and the model 7, whose names are not known" in error
    assert main(["evaluate", make_model("nameless", None), "--data", str(data), "--device", "cpu"]) == 0
    assert "note: nameless: the names of its 4 classes are not known" in capsys.readouterr().err


def test_a_file_names_the_outputs(capsys, data) -> None:
    Path("names.txt").write_text("\n".join(["zebra", *reversed(CLASSES)]) + "\n")
    path = make_model("nameless", None, outputs=5)
    found = result(capsys, path, "--data", data, "--classes", "names.txt")["models"][0]
    assert [one["name"] for one in found["classes"]] == ["zebra", *reversed(CLASSES)]
    assert [one["images"] for one in found["classes"]] == [0, 5, 5, 5, 5]
    error, _ = failure(capsys, 2, make_model("four"), "--data", data, "--classes", "names.txt")
    assert error == "error: names.txt: there are 5 class names; wanted 4, one for each output of four."


def test_one_class_or_no_images_are_a_sentence(capsys, tmp_path, model) -> None:
    make_images(tmp_path / "one/test", classes=("ant",))
    error, _ = failure(capsys, 3, model, "--data", "one")
    assert "one, test: all 12 images are of one class, 'ant'; wanted two or more" in error
    for name in CLASSES:
        (tmp_path / "none/test" / name).mkdir(parents=True)
    error, _ = failure(capsys, 3, model, "--data", "none", "--allow-empty")
    assert "there are no images" in error


def test_bad_files_stop_it_before_it_begins_or_are_counted(capsys, tmp_path, model) -> None:
    make_images(tmp_path / "data/test", per_class=3)
    (tmp_path / "data/test/bee/001.png").write_bytes(b"\x89PNG nothing")
    error, _ = failure(capsys, 3, model, "--data", "data")
    assert "1 of 12 images cannot be read" in error
    whole = result(capsys, model, "--data", "data", "--skip-bad")
    assert whole["data"]["images"] == whole["models"][0]["images"] == 11
    assert "1 of 12 images left out" in whole["data"]["notes"][0]
    assert "1 of 12 images left out" in printed(capsys, model, "--data", "data", "--skip-bad")


def test_real_labels_are_found_by_the_numbers_of_the_files(capsys, tmp_path, model) -> None:
    numbers = iter([3, 1, 6, 2, 5, 4])
    for name in ("ant", "bee", "cow"):
        (tmp_path / "val" / name).mkdir(parents=True)
        for _ in range(2):
            pixels = np.random.default_rng(7).integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "val" / name / f"ILSVRC2012_val_{next(numbers):08}.PNG")
    (tmp_path / "images").mkdir()
    (tmp_path / "val").rename(tmp_path / "images/val")
    # The numbers of ant, bee and cow are 3, 1; 6, 2; 5, 4.
    Path("real.json").write_text(json.dumps([[0, 1, 2, 3], [], [0, 1, 2, 3], [2], [], [1]]))
    found = result(capsys, model, "--data", "images", "--real", "real.json")["models"][0]
    real = found["real"]
    assert (real["images"], real["labelled"], real["skipped"]) == (6, 4, 2)
    # All images are alike, so one guess decides.
    guess = next(one["number"] for one in found["classes"] if one["guessed"])
    assert real["top1"]["right"] == 2 + (guess == 2) + (guess == 1)
    out = printed(capsys, model, "--data", "images", "--real", "real.json")
    assert "4 of 6 images have ReaL labels; 2 without are skipped" in out
    Path("real.json").write_text("[[1]]")
    error, _ = failure(capsys, 3, model, "--data", "images", "--real", "real.json")
    assert error.startswith("error: real.json: there are labels of 1 images; wanted the 50,000")


def test_several_labels_per_image(capsys, tmp_path) -> None:
    make_images(tmp_path / "pictures", per_class=3)
    labels = {"ant": "ant|bee", "bee": "bee", "cow": "", "dog": "dog|ant"}
    rows = [f"pictures/{name}/{number:03}.png,{labels[name]},test" for name in CLASSES for number in range(3)]
    Path("many.csv").write_text("\n".join(["path,labels,split", *rows]) + "\n")
    path = make_model("several", ("ant", "bee", "dog"))
    found = result(capsys, path, "--data", "many.csv", "--out", "found")["models"][0]
    assert (found["task"], found["images"], found["hit"]["images"]) == ("several classes", 12, 9)
    assert "confusion" not in found
    assert [one["images"] for one in found["classes"]] == [6, 6, 3]
    out = printed(capsys, path, "--data", "many.csv")
    for name in ("mAP", "hit@1", "exact match", "micro F1", "macro F1", "(sigmoid"):
        assert name in out
    assert "mean average precision on 12 test images" in Path("found/report.html").read_text()
    assert not Path("found/figures").exists()
    Path("real.json").write_text("[[1]]")
    error, _ = failure(capsys, 2, path, "--data", "many.csv", "--real", "real.json")
    assert "many.csv: the data has several labels per image; wanted ImageNet for --real" in error


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "error: there is no model; wanted vitrail evaluate MODEL --data DATA."),
        (["model", "--batch-size", "0"], 2, "batch-size is 0"),
        (["model", "--workers", "-1"], 2, "workers is -1"),
        (["model", "--preprocessing", "googel"], 2, "Did you mean 'google'?"),
        (["model", "--split", "dev ["], 2, "the split is 'dev ['"),
        (["model", "--device", "tpu"], 2, "the device is 'tpu'"),
        (["model", "--classes", "nowhere.txt"], 3, "nowhere.txt: cannot be read"),
        (["model", "--real", "nowhere.json"], 3, "nowhere.json: cannot be read"),
        (["model", "--processes", "0"], 2, "--processes is '0'"),
    ],
)
def test_options_that_cannot_be(capsys, data, model, words, code, message) -> None:
    assert main(["evaluate", *words, "--data", str(data)]) == code
    found = capsys.readouterr()
    assert message in found.err
    assert found.out == ""


def test_a_file_that_does_not_say_how_its_images_were_prepared(capsys, data, model) -> None:
    bare = vitrail.load_model(model)
    bare.preprocessing = None
    vitrail.save_model(bare, "bare")
    error, _ = failure(capsys, 2, "bare", "--data", data)
    assert "does not say how its images were prepared" in error
    found = result(capsys, "bare", "--data", data, "--preprocessing", "augreg")["models"][0]
    assert found["top1"] == result(capsys, model, "--data", data)["models"][0]["top1"]


def test_another_image_size_and_precision(capsys, data, model) -> None:
    found = result(capsys, model, "--data", data, "--image-size", 48, "--precision", "bfloat16")["models"][0]
    assert found["preprocessing"]["size"] == [48, 48]
    assert found["precision"] == "bfloat16"
    assert found["images"] == 20


def test_embedded_images_need_no_files(capsys) -> None:
    path = make_model("reader", tuple("0123456789"))
    whole = result(capsys, path, "--data", "digits")
    assert (whole["data"]["split"], whole["data"]["images"]) == ("test", 359)


def test_one_model_has_no_summary() -> None:
    assert summarised([{"top1": {"share": 0.5}, "loss": 1.0}]) is None
    found = summarised([{"loss": 1.0}, {"loss": 2.0, "top1": {"share": 0.5}}])
    assert found is not None and set(found) == {"loss"}, "a mean is over all models or none"


def trained_on_plain(folder: Path) -> list[str]:
    """A run that held some images of `plain` out, and which they are."""
    make_images(folder / "plain", per_class=10)
    words = ["train", "vit-digits", "--data", "plain", "--held-out", "0.25", "--epochs", "1", "--workers", "0"]
    assert main([*words, "--name", "held", "--device", "cpu"]) == 0
    with Path("runs/held/held_out.csv").open(encoding="utf-8", newline="") as file:
        return sorted(row["where"] for row in csv.DictReader(file))


def measured_on(monkeypatch) -> list[str]:
    """Where the images lie that are measured from now on."""
    seen: list[str] = []
    once = evaluate.preflight

    def noted(source, **how):
        seen[:] = sorted(source.where(index) for index in range(len(source)))
        return once(source, **how)

    monkeypatch.setattr(evaluate, "preflight", noted)
    return seen


def test_of_a_folder_that_has_grown_what_was_held_out_then_is_measured(capsys, tmp_path, monkeypatch) -> None:
    held = trained_on_plain(tmp_path)
    for number, name in enumerate(CLASSES):
        for index in range(15):
            pixels = np.random.default_rng([7, number, index]).integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "plain" / name / f"a{index}.png")
    capsys.readouterr()
    seen = measured_on(monkeypatch)
    assert result(capsys, "runs/held", "--data", "plain")["data"]["images"] == len(held)
    assert seen == held


def test_held_out_images_that_are_gone_or_others_are_not_replaced_by_what_was_learnt(capsys, tmp_path) -> None:
    held = trained_on_plain(tmp_path)
    capsys.readouterr()
    last = Path(held[-1])
    learnt = next(file for file in sorted(last.parent.iterdir()) if str(file) not in held)
    kept = last.read_bytes()
    for content in (learnt.read_bytes(), None):
        last.write_bytes(content) if content else last.unlink()
        error, _ = failure(capsys, 3, "runs/held", "--data", "plain")
        assert f"1 of the {len(held)} images" in error and str(last) in error and "--split train" in error
    last.write_bytes(kept)
    assert result(capsys, "runs/held", "--data", "plain")["data"]["images"] == len(held)


def test_a_run_without_a_list_splits_again_only_what_has_not_changed(capsys, tmp_path, monkeypatch) -> None:
    held = trained_on_plain(tmp_path)
    # As version 0.1 left it.
    Path("runs/held/held_out.csv").unlink()
    record = Path("runs/held/config.json")
    values = json.loads(record.read_text(encoding="utf-8"))
    del values["config"]["data"]["copies"]
    record.write_text(json.dumps(values), encoding="utf-8")
    capsys.readouterr()
    seen = measured_on(monkeypatch)
    assert result(capsys, "runs/held", "--data", "plain")["data"]["images"] == len(held)
    assert seen == held
    Path(held[0]).rename(Path(held[0]).with_name("other.png"))
    error, _ = failure(capsys, 3, "runs/held", "--data", "plain")
    assert "changed" in error and "cannot be told" in error


def test_a_val_part_that_was_learnt_from_is_not_measured_as_if_it_were_not(capsys, tmp_path) -> None:
    make_images(tmp_path / "both/train", per_class=2)
    make_images(tmp_path / "both/val", per_class=8, first=50)
    words = ["--split", "val", "--held-out", "0.25", "--epochs", "1", "--workers", "0", "--name", "all"]
    assert main(["train", "vit-digits", "--data", "both", *words, "--device", "cpu"]) == 0
    capsys.readouterr()
    found = result(capsys, "runs/all", "--data", "both")["data"]
    assert (found["images"], found["split"]) == (8, "val, held-out")


def test_a_student_has_learnt_from_what_its_teacher_was_given(tmp_path) -> None:
    make_images(tmp_path / "plain", per_class=3)
    for name in ("lesson", "loose"):
        (tmp_path / name).mkdir()
    labelled, unlabelled = (
        Origin(data=str((tmp_path / name).resolve()), split="train", digest="") for name in ("plain", "loose")
    )
    nothing = np.empty(0, np.int64)
    record = TaughtRecord(classes=CLASSES, labelled=labelled, unlabelled=unlabelled, lineage={})
    write_taught(tmp_path / "lesson", record, Lesson(learnt=nothing, held_out=nothing, taught=nothing, classes=nothing))
    student = evaluate.Look("student", {"data": f"taught:{tmp_path / 'lesson'}", "split": "train"}, lambda _: None)
    assert evaluate._learners([student], "plain") == evaluate._learners([student], "loose") == ["student"]
    assert evaluate._learners([student], "lesson") == []


def test_all_that_a_model_started_from_counts(tmp_path) -> None:
    for name in ("plain", "elsewhere"):
        make_images(tmp_path / name, per_class=3)
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, start, data in ((first, None, "plain"), (second, str(first), "elsewhere")):
        folder.mkdir()
        about = {"start": start, "data": {"data": str((tmp_path / data).resolve())}}
        (folder / "config.json").write_text(json.dumps({"format": "vitrail-run/1", "config": about}))
    # What other programs write about themselves may be anything.
    third = evaluate.Look("third", {"start": str(second), "data": "x", "split": "training set, all"}, lambda _: None)
    assert evaluate._learners([third], "plain") == [str(first)]
    assert evaluate._learners([third], "elsewhere", {"train"}) == [str(second)]
    assert evaluate._learners([third], "x", {"val"}) == []
