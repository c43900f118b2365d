import io
import json
import os
import zipfile
from pathlib import Path

import pytest
from tests.cli.photos import draw
from tests.evaluation.small import model_folder

import vitrail
from vitrail.cli import main
from vitrail.exporting import open_exported
from vitrail.weights.card import MARK


def failure(capsys, code: int, *words: object) -> str:
    assert main(["export", *map(str, words)]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert "Traceback" not in printed.err
    return printed.err


def test_a_model_folder_to_torch(place, capsys) -> None:
    model = vitrail.load_model("model")
    # Without names nobody knows which output is which folder, and no accuracy is told.
    model.labels = ("ant", "bee", "cow")[: model.config.num_classes]
    vitrail.save_model(model, "model")
    assert main(["export", "model", "--to", "torch", "--data", "photos"]) == 0
    out = capsys.readouterr().out
    target = Path("model/exports/model.pt2")
    assert f"{target}: torch, " in out
    assert "15 test images of photos and 49 crops of the two photographs that scikit-learn carries" in " ".join(
        out.split()
    )
    assert max(map(len, out.splitlines())) <= 80
    assert "in batches of 1, 2, 7" in out
    assert "accuracy" in out
    assert f"next: vitrail predict {target} photo.jpg" in out
    exported = open_exported(target)
    assert exported.described.labels == vitrail.load_model("model").labels
    cards = [Path("model/exports/README.md"), Path("model/README.md")]
    for card in cards:
        text = card.read_text(encoding="utf-8")
        assert MARK in text
        assert text.count("## Exports") == 1
        assert "in torch," in text
    assert "### exports/model.pt2" in cards[1].read_text(encoding="utf-8")
    assert 'Predictor("model.pt2")' in cards[0].read_text(encoding="utf-8")
    assert sorted(path.name for path in Path("model").iterdir()) == [
        "README.md",
        "config.json",
        "exports",
        "model.safetensors",
    ]
    assert "is there already" in failure(capsys, 2, "model", "--to", "torch")


def test_a_run_without_labels_is_compared_on_its_own_images(place, capsys) -> None:
    flat = Path("flat")
    flat.mkdir()
    for number, file in enumerate(sorted(Path("photos/train").rglob("*.png"))):
        file.rename(flat / f"{number}.png")
    # The run goes on without it, and so does the export, whatever is held out.
    for number in range(9):
        (flat / f"bad{number}.png").write_bytes(b"\x89PNG")
    sizes = ["--model.depth", "1", "--model.width", "16", "--model.mlp-width", "16", "--image-size", "32"]
    words = ["--steps", "1", "--batch-size", "4", "--workers", "0", "--skip-bad", "--name", "m", "--device", "cpu"]
    assert main(["train", "mpp-folder", "--data", "flat", *sizes, *words]) == 0
    capsys.readouterr()
    assert main(["export", "runs/m", "--to", "torch"]) == 0
    printed = capsys.readouterr()
    assert "cannot be opened" not in printed.err
    out = " ".join(printed.out.split())
    assert f"compared with torch: 3 train, held-out images of {flat.resolve()} and 61 crops" in out
    assert "largest difference of a feature" in out and "first class" not in out
    assert out.endswith("next: vitrail predict runs/m/exports/model.pt2 photo.jpg --embed features.npz")
    for card in ("runs/m/exports/README.md", "runs/m/model/README.md"):
        text = Path(card).read_text(encoding="utf-8")
        assert "| largest difference of a feature |" in text
        assert "logit" not in text and "first class" not in text
        assert "--embed features.npz" in text
    # A folder without classes can also be named; any of its images will do, so bad ones are told and left out.
    assert main(["export", "runs/m", "--to", "torch", "--data", "flat", "--out", "other/net.pt2"]) == 0
    printed = capsys.readouterr()
    assert "bad0.png" in printed.err and "cannot be" not in printed.out
    assert Path("other/net.pt2").is_file()


def test_class_names_for_weights_that_came_without(place, capsys) -> None:
    count = vitrail.load_model("model").config.num_classes
    names = [f"kind {number}" for number in range(count)]
    Path("names.txt").write_text("\n".join(names), encoding="utf-8")
    words = ["export", "model", "--to", "torch", "--classes", "names.txt", "--out", "named/net.pt2"]
    assert main([*words, "--images", "photos/test/ant"]) == 0
    assert open_exported("named/net.pt2").described.labels == tuple(names)
    capsys.readouterr()
    Path("names.txt").write_text("one", encoding="utf-8")
    assert "there are 1 class names" in failure(capsys, 2, *words[1:], "--overwrite")


def test_json_and_a_card_that_a_person_wrote(place, capsys) -> None:
    Path("model/README.md").write_text("# mine", encoding="utf-8")
    words = ["model", "--to", "torch", "--json", "--out", "somewhere/net.pt2", "--images", "photos/test/ant"]
    assert main(["export", *words]) == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert told["files"] == ["somewhere/net.pt2"]
    assert told["bytes"] == Path("somewhere/net.pt2").stat().st_size
    assert told["compared"]["count"] == 64
    assert told["compared"]["labelled"] == 0
    assert told["cards"] == ["somewhere/README.md"]
    assert Path("model/README.md").read_text(encoding="utf-8") == "# mine"
    assert "model/README.md is not a card of ours and stays as it is" in printed.err


def test_the_card_tells_of_these_weights_alone(place, capsys) -> None:
    """A model saved anew keeps what lies beside it; files of the old weights are not told as its exports."""
    assert main(["export", "model", "--to", "torch"]) == 0
    Path("model/exports/model.pt2").rename("model/exports/older.pt2")
    model_folder(Path("model"), seed=1)
    capsys.readouterr()
    assert main(["export", "model", "--to", "torch"]) == 0
    told = capsys.readouterr().err
    assert told.count("older.pt2 was exported from other weights") == 1
    for card in ("model/README.md", "model/exports/README.md"):
        text = Path(card).read_text(encoding="utf-8")
        assert "model.pt2" in text
        assert "older.pt2" not in text


def test_a_file_that_says_nonsense_of_its_comparison(place, capsys) -> None:
    assert main(["export", "model", "--to", "torch"]) == 0
    Path("model/exports/model.pt2").rename("model/exports/strange.pt2")
    content = Path("model/exports/strange.pt2").read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as good, zipfile.ZipFile("model/exports/strange.pt2", "w") as bad:
        for name in good.namelist():
            bad.writestr(name, b'{"count": "many"}' if name.endswith("vitrail_compared") else good.read(name))
    assert main(["export", "model", "--to", "torch"]) == 0
    assert "strange" not in Path("model/README.md").read_text(encoding="utf-8")


def test_no_card_in_a_folder_of_other_things(place, capsys) -> None:
    assert main(["export", "model", "--to", "torch", "--out", "net.pt2"]) == 0
    assert not Path("README.md").exists()
    assert Path("net.pt2").exists()


def test_wrong_words(place, capsys) -> None:
    assert "Unknown kind of export 'onxx'. Did you mean 'onnx'?" in failure(capsys, 2, "model", "--to", "onxx")
    told = failure(capsys, 2, "model", "--to", "torch", "--data", "photos", "--images", "photos/test")
    assert "wanted one of them" in told
    assert "wanted 64 or more" in failure(capsys, 2, "model", "--to", "torch", "--count", "8")
    assert "without --data" in failure(capsys, 2, "model", "--to", "torch", "--split", "val")
    assert "wanted .pt2 for torch" in failure(capsys, 2, "model", "--to", "torch", "--out", "a.onnx")
    assert "no such file or folder" in failure(capsys, 3, "nothing", "--to", "torch")


def test_never_into_the_data(place, capsys) -> None:
    before = sorted(Path("photos").rglob("*"))
    told = failure(capsys, 2, "model", "--to", "torch", "--data", "photos", "--out", "photos/test/net.pt2")
    assert "inside the data" in told
    told = failure(capsys, 2, "model", "--to", "torch", "--images", "photos/test", "--out", "photos/test/net.pt2")
    assert "beside your images" in told
    assert sorted(Path("photos").rglob("*")) == before


def test_images_that_cannot_be_read(place, capsys) -> None:
    Path("bad.jpg").write_bytes(b"not a picture")
    assert main(["export", "model", "--to", "torch", "--images", "bad.jpg"]) == 3
    assert "bad.jpg" in capsys.readouterr().err
    assert not Path("model/exports").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written(place, capsys) -> None:
    Path("closed").mkdir(mode=0o500)
    assert main(["export", "model", "--to", "torch", "--out", "closed/net.pt2"]) == 5
    # What it was about to do comes first.
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("error: ") and "could not be written" in said[-1]


def test_without_the_extra(place, capsys, monkeypatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "onnx" else found(name, *rest))
    assert "pip install 'vitrail[export]'" in failure(capsys, 2, "model", "--to", "onnx")


def test_preprocessing_has_to_be_known(place, capsys) -> None:
    model = vitrail.load_model("model")
    model.preprocessing = None
    vitrail.save_model(model, "bare")
    assert "wanted one of the presets" in failure(capsys, 2, "bare", "--to", "torch")
    assert main(["export", "bare", "--to", "torch", "--preprocessing", "google"]) == 0
    assert open_exported("bare/exports").described.preprocessing == vitrail.config.preset("google")


@pytest.mark.slow
def test_a_run_is_compared_on_its_own_test_images(place, capsys) -> None:
    draw(Path("photos/val"), ant=3, bee=3, cow=3)
    words = ["vit-cifar10", "--data", "photos", "--epochs", "1", "--name", "mine"]
    assert main(["train", *words, "--model.depth", "1"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["export", "runs/mine", "--to", "onnx"]) == 0
    assert "15 test images of" in capsys.readouterr().out
    assert Path("runs/mine/exports/model.onnx").is_file()
    assert "### ../exports/model.onnx" in Path("runs/mine/model/README.md").read_text(encoding="utf-8")
