"""`vitrail inspect`: what it writes and prints, and what it says about what cannot be inspected."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.photos import measured

import vitrail
from vitrail.cli import main
from vitrail.config import preset

FEW = ("--figures", "distance", "rollout", "--dpi", "40")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_without_images_the_weights_are_shown(place, capsys) -> None:
    before = files(place / "photos")
    assert main(["inspect", "model", "--dpi", "40"]) == 0
    out = capsys.readouterr().out
    pictures = {f"{name}.{ending}" for name in ("filters", "positions") for ending in ("png", "svg")}
    assert files(place / "inspection-model") == {*pictures, "inspection.json", "numbers.npz", "captions.md"}
    assert re.search(r"filters +15 components explain 100% of 16 filters of 4x4 pixels", out)
    assert "inspection-model/captions.md: what each shows" in out
    # The same command again takes the place of what it wrote.
    assert main(["inspect", "model", "--dpi", "40"]) == 0
    assert files(place / "photos") == before


def test_a_set_is_counted_whole_and_a_few_are_shown(place, capsys) -> None:
    words = ("inspect", "model", "--data", "photos", "--out", "there", "--show", "2", *FEW)
    found = measured(capsys, *words)
    assert found["format"] == "vitrail-inspection/1"
    assert found["images"] == {"from": "photos", "split": "test", "count": 15}
    distance, rollout = found["figures"]
    assert distance["facts"]["images"] == 15
    assert [Path(one["image"]).parent.name for one in rollout["facts"]["images"]] == ["ant", "cow"]
    with np.load("there/numbers.npz") as numbers:
        assert numbers["distance_of_images"].shape == (15, 1, 2)
        assert numbers["rollout"].shape == (2, 2, 2)
        np.testing.assert_allclose(numbers["distance"], np.array(distance["facts"]["mean"]), rtol=1e-6)
    record = json.loads(Path("there/inspection.json").read_text(encoding="utf-8"))
    assert record == found
    # A part of it, spread evenly.
    assert main([*words[:6], "--limit", "4", "--split", "train", "--figures", "filters", "--dpi", "40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == {"from": "photos", "split": "train", "count": 4}


def test_files_and_folders_of_images_are_taken_as_they_are_named(place, capsys) -> None:
    found = measured(
        capsys, "inspect", "model", "photos/test/cow/1.png", "photos/test/ant", "--out", "there", "--layers", "-1", *FEW
    )
    distance, rollout = found["figures"]
    assert distance["facts"]["images"] == 6 and distance["facts"]["layers"] == [0]
    assert [Path(one["image"]).name for one in rollout["facts"]["images"]] == [
        "1.png", "0.png", "1.png", "2.png", "3.png", "4.png",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["model", "--figures", "rolout"], 2, "Unknown figure 'rolout'. Did you mean 'rollout'?"),
        (["model", "--figures", "rollout"], 2, "there are no images for the figure 'rollout'"),
        (["model", "photos", "--layers", "1"], 2, "layer 1 is not there; wanted a number from 0 to 0"),
        (["model", "nowhere.jpg"], 3, "nowhere.jpg: there is no such file or folder"),
        (["model", "empty"], 3, "empty: there is no image in this folder"),
        (["model", "broken.jpg", "--out", "there/x"], 3, "broken.jpg: the content is no image we read"),
        (["model", "photos", "--data", "photos"], 2, "there are images and --data"),
        (["model", "--split", "test"], 2, "--split is of a data set, and there is none"),
        (["model", "photos", "--limit", "0"], 2, "limit is 0"),
        (["model", "photos", "--show", "0"], 2, "show is 0"),
        (["model", "photos", "--out", "photos/x"], 2, "photos/x: it would lie beside your images in"),
        (["model", "--data", "photos", "--out", "photos/x"], 2, "photos/x: it would lie inside the data"),
        (["model", "broken.jpg"], 2, "inspection-model: it would lie beside your images in"),
        (["model", "--out", "full"], 2, "full: is there already and holds something else than an inspection"),
        (["model", "--out", "broken.jpg"], 2, "broken.jpg: is there already and is no folder"),
        (["photos"], 3, "photos: is a folder without a model"),
        ([], 2, "there is no model; wanted vitrail inspect MODEL [IMAGES ...]"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(place, capsys, words, code, told) -> None:
    (place / "empty").mkdir()
    (place / "there").mkdir()
    (place / "full").mkdir()
    (place / "full" / "diary.txt").write_text("mine", encoding="utf-8")
    (place / "broken.jpg").write_text("no picture", encoding="utf-8")
    assert main(["inspect", *words, "--dpi", "40"] if words else ["inspect"]) == code
    printed = capsys.readouterr()
    assert told in printed.err and "Traceback" not in printed.err
    assert (place / "full" / "diary.txt").read_text(encoding="utf-8") == "mine"


def test_what_can_be_made_is_kept_when_something_else_cannot(place, capsys) -> None:
    bit = vitrail.create_model("bit-r50x1", width=32, blocks=(1, 1, 1, 1), num_classes=2, image_size=32)
    bit.preprocessing = preset("google")
    vitrail.save_model(bit, "bit")
    assert main(["inspect", "bit", "photos/test", "--dpi", "40", "--figures", "rollout", "filters"]) == 2
    printed = capsys.readouterr()
    assert "BitResNet has no attention, so there is no attention rollout" in printed.err
    assert "filters.png" in files(place / "inspection-bit")
    # Without being asked for it is no error.
    assert main(["inspect", "bit", "photos/test", "--dpi", "40"]) == 0
    printed = capsys.readouterr()
    assert "no rollout: BitResNet has no attention" in printed.out


def test_weights_that_are_no_numbers_are_told(place, capsys) -> None:
    model = vitrail.load_model("model")
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.fill_(float("nan"))  # type: ignore[index, union-attr, operator]
    vitrail.save_model(model, "diverged")
    assert main(["inspect", "diverged", "photos/test", "--figures", "filters", "distance", "--dpi", "40"]) == 3
    assert "the attention is not finite" in capsys.readouterr().err
    assert "filters.png" in files(place / "inspection-diverged")
