"""`vitrail inspect`: what it writes and prints, and what it says about what cannot be inspected."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from markdown_it import MarkdownIt
from tests.cli.photos import measured
from tests.reports.runs import FULL, make_run, run_config

import vitrail
from vitrail.cli import main
from vitrail.config import preset
from vitrail.models import build
from vitrail.reports.inspection_folder import as_markdown
from vitrail.runtime.lock import only_one
from vitrail.training import checkpoint as checkpoints

FEW = ("--figures", "distance", "rollout", "--dpi", "40")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_without_images_the_weights_are_shown(place, capsys) -> None:
    before = files(place / "photos")
    assert main(["inspect", "model", "--dpi", "40"]) == 0
    out = capsys.readouterr().out
    pictures = {f"{name}.{ending}" for name in ("filters", "positions") for ending in ("png", "svg")}
    assert files(place / "inspection-model") == {*pictures, "inspection.json", "numbers.npz", "captions.md"}
    assert re.search(r"filters +15 components are all that 16 filters of 4x4 pixels can have", out)
    assert "inspection-model/captions.md: what each shows" in out
    # The same command again takes the place of what it wrote.
    assert main(["inspect", "model", "--dpi", "40"]) == 0
    assert files(place / "photos") == before


def test_a_set_is_counted_whole_and_a_few_are_shown(place, capsys) -> None:
    words = ("inspect", "model", "--data", "photos", "--out", "there", "--show", "2", *FEW)
    found = measured(capsys, *words)
    assert found["format"] == "vitrail-inspection/1"
    assert found["images"].items() >= {"from": "photos", "split": "test", "count": 15}.items()
    distance, rollout = found["figures"]
    assert distance["facts"]["images"] == 15
    assert [Path(one["image"]).parent.name for one in rollout["facts"]["images"]] == ["ant", "cow"]
    # Two are drawn, and all that count are named.
    names = json.loads(Path("there/inspection.json").read_text(encoding="utf-8"))["images"]["names"]
    assert {Path(name).resolve() for name in names} == {path.resolve() for path in Path("photos/test").rglob("*.png")}
    assert len(names) == found["images"]["count"]
    with np.load("there/numbers.npz") as numbers:
        assert numbers["distance_of_images"].shape == (15, 1, 2)
        assert numbers["rollout"].shape == (2, 2, 2)
        np.testing.assert_allclose(numbers["distance"], np.array(distance["facts"]["mean"]), rtol=1e-6)
    record = json.loads(Path("there/inspection.json").read_text(encoding="utf-8"))
    assert record == found
    # A part of it, spread evenly.
    assert main([*words[:6], "--limit", "4", "--split", "train", "--figures", "filters", "--dpi", "40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["images"].items() >= {"from": "photos", "split": "train", "count": 4}.items()


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
        (["model", "wrong/broken.jpg", "--out", "there/x"], 3, "broken.jpg: the content is no image we read"),
        (["model", "photos", "--data", "photos"], 2, "there are images and --data"),
        (["model", "--split", "test"], 2, "--split is of a data set, and there is none"),
        (["model", "photos", "--limit", "0"], 2, "limit is 0"),
        (["model", "photos", "--show", "0"], 2, "show is 0"),
        (["model", "photos", "--out", "photos/x"], 2, "photos/x: it would lie beside your images in"),
        (["model", "--data", "photos", "--out", "photos/x"], 2, "photos/x: it would lie inside the data"),
        (["model", "wrong/broken.jpg"], 3, "broken.jpg: the content is no image we read"),
        (["model", "photos", "--dpi", "200000"], 2, "dpi is 200000; wanted a whole number from 1 to 1,200"),
        (["model", "--out", "photos/train/insp"], 2, "photos/train/insp: it would lie among the images in"),
        (["model", "--out", "photos/train/cow/insp"], 2, "photos/train/cow/insp: it would lie among the images in"),
        (["model", "--out", "full"], 2, "full: is there already and holds something else than an inspection"),
        (["model", "--out", "notes.txt"], 2, "notes.txt: is there already and is no folder"),
        (["photos"], 3, "photos: is a folder without a model"),
        ([], 2, "there is no model; wanted vitrail inspect MODEL [IMAGES ...]"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(place, capsys, words, code, told) -> None:
    (place / "empty").mkdir()
    (place / "there").mkdir()
    (place / "full").mkdir()
    (place / "full" / "diary.txt").write_text("mine", encoding="utf-8")
    (place / "notes.txt").write_text("mine", encoding="utf-8")
    (place / "wrong").mkdir()
    (place / "wrong" / "broken.jpg").write_text("no picture", encoding="utf-8")
    before = files(place)
    assert main(["inspect", *words, *([] if "--dpi" in words else ["--dpi", "40"])] if words else ["inspect"]) == code
    assert {file for file in files(place) if not file.startswith("cache/")} == before
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
    assert main(["inspect", "bit", "photos/test", "--figures", "rollout", "lens", "--out", "nothing"]) == 2
    assert capsys.readouterr().err.count("BitResNet has no attention") == 1
    assert not Path("nothing").exists()
    # Without being asked for it is no error.
    assert main(["inspect", "bit", "photos/test", "--dpi", "40"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("BitResNet has no attention") == 1
    assert "no positions, distance, figure-7, rollout, lens: BitResNet has no attention; wanted" in printed.out


def test_weights_that_are_no_numbers_are_told(place, capsys) -> None:
    model = vitrail.load_model("model")
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.fill_(float("nan"))  # type: ignore[index, union-attr, operator]
    vitrail.save_model(model, "diverged")
    assert main(["inspect", "diverged", "photos/test", "--figures", "filters", "distance", "--dpi", "40"]) == 3
    assert "the attention is not finite" in capsys.readouterr().err
    assert "filters.png" in files(place / "inspection-diverged")


def remember(place: Path, data: str) -> None:
    """Let the model know what it was trained on."""
    model = vitrail.load_model("model")
    model.provenance = {"data": data}
    vitrail.save_model(model, "model")


def test_pictures_of_a_photo_go_elsewhere_where_it_lies(place, capsys, monkeypatch) -> None:
    before = files(place / "photos")
    monkeypatch.chdir(place / "photos" / "test" / "ant")
    words = ["inspect", "../../../model", "0.png", "--figures", "rollout", "--dpi", "40"]
    assert main(words) == 0
    assert "rollout.png" in files(place / "inspection-model")
    # A place of the user's choice is refused with one that works.
    assert main([*words, "--out", "figs"]) == 2
    told = capsys.readouterr().err
    assert "figs: it would lie among the images in" in told
    out = re.search(r"This works: --out (\S+)\.\n", told)
    assert out and main([*words, "--out", out[1]]) == 0
    # In a folder of class folders a folder of pictures would be one more class.
    monkeypatch.chdir(place / "photos" / "train")
    assert main(["inspect", "../../model", "cow", "--limit", "2", *words[3:]]) == 0
    assert main(["inspect", "../../model", "cow/1.png", "--out", "ant/insp", *words[3:]]) == 2
    assert files(place / "photos") == before


def test_an_image_in_the_working_folder_does_not_make_it_data(place, capsys) -> None:
    Path("screenshot.png").write_bytes(Path("photos/test/ant/0.png").read_bytes())
    assert main(["inspect", "model", "screenshot.png", "--out", "here", *FEW]) == 0
    assert main(["inspect", "model", "photos/test/ant", "--out", "there/deep", *FEW]) == 0
    assert main(["inspect", "model", "--out", "weights", "--dpi", "40"]) == 0
    assert "rollout.png" in files(place / "here")
    assert "rollout.png" in files(place / "there" / "deep")
    # Nobody asked for a place: then it is none beside an image.
    assert main(["inspect", "model", "screenshot.png", *FEW]) == 0
    assert not Path("inspection-model").exists()


def test_the_folder_of_a_run_takes_the_pictures_that_have_no_place_here(place, capsys, monkeypatch) -> None:
    make_run(place / "runs" / "ds", FULL)
    (place / "model").rename(place / "runs" / "ds" / "model")
    monkeypatch.chdir(place / "photos" / "train")
    assert main(["inspect", "../../runs/ds", "cow", "--limit", "1", "--figures", "rollout", "--dpi", "40"]) == 0
    assert "rollout.png" in files(place / "runs" / "ds" / "inspection")


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_nothing_is_written_into_the_data_that_the_model_was_trained_on(place, capsys, kind) -> None:
    data = place / "photos"
    if kind == "table":
        data = place / "table.csv"
        data.write_text("path,label\n" + "".join(f"photos/train/ant/{n}.png,ant\n" for n in range(3)), encoding="utf-8")
    remember(place, str(data))
    (place / "photos" / "train" / "ant" / "notes").mkdir()
    before = files(place / "photos")
    assert main(["inspect", "model", "--out", "photos/train/ant/notes/insp", "--dpi", "40"]) == 2
    assert "it would lie inside the data" in capsys.readouterr().err
    assert files(place / "photos") == before


def test_a_wrong_name_is_told_before_torch_is_loaded(place) -> None:
    program = (
        "import sys; from vitrail.cli import main\n"
        "for words in (['model', '--figures', 'rolout'], ['model', 'nowhere.jpg'],"
        " ['model', 'photos', '--out', 'photos/x']):\n"
        "    assert main(['inspect', *words]) in (2, 3)\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_image_that_cannot_be_read_is_left_out_and_told_once(place, capsys) -> None:
    (place / "photos" / "test" / "ant" / "bad.png").write_bytes(b"\x89PNG no more")
    found = measured(capsys, "inspect", "model", "photos/test/ant", "--out", "there", *FEW)
    assert found["images"]["count"] == 5 and found["left_out"] == []
    assert main(["inspect", "model", "photos/test/ant", "--out", "there", *FEW]) == 0
    told = capsys.readouterr().err
    assert told.count("bad.png") == 1 and "1 of 6 images cannot be read" in told and "skip-bad" not in told


def test_what_was_there_before_goes_with_its_record(place, capsys) -> None:
    assert main(["inspect", "model", "photos/test", "--limit", "2", "--out", "there", "--dpi", "40"]) == 0
    Path("there/mine.png").write_bytes(b"mine")
    vitrail.save_model(vitrail.load_model("model"), "other")
    capsys.readouterr()
    assert main(["inspect", "other", "--figures", "filters", "--out", "there", "--dpi", "40"]) == 0
    assert "there: the inspection of model is replaced." in capsys.readouterr().err
    assert files(place / "there") == {
        *("filters.png", "filters.svg", "mine.png"),
        *("inspection.json", "numbers.npz", "captions.md"),
    }


def test_captions_are_text_whatever_a_class_is_called(place, capsys) -> None:
    name = "a_b_c \\*x\\* [link](http://e.vil) ![i](y) `code` <b>b</b> &amp; | ~~s~~ **bold** $m$ www.e.vil x@y.z"
    shown = MarkdownIt("gfm-like", {"linkify": False}).enable("strikethrough").render(as_markdown(name))
    assert html.unescape(shown.removeprefix("<p>").removesuffix("</p>\n")) == name
    assert "<" not in shown.removeprefix("<p>").removesuffix("</p>\n")
    assert not re.search(r"https?://|www\.|x@y", as_markdown(name))


def test_what_an_image_is_and_is_taken_for(place, capsys) -> None:
    model = vitrail.load_model("model")
    model.labels = labels = ("cow", "ant", "bee")
    vitrail.save_model(model, "named")
    found = measured(capsys, "inspect", "named", "--data", "photos", "--out", "there", *FEW, "--show", "15")
    images = found["figures"][1]["facts"]["images"]
    assert [labels[one["truth"]] for one in images] == [Path(one["image"]).parent.name for one in images]
    svg = Path("there/rollout.svg").read_text(encoding="utf-8")
    assert re.search(r"is (ant|bee|cow), taken for (ant|bee|cow), \d+%", svg) and ">0.png<" in svg
    # Nothing says what loose images are.
    found = measured(capsys, "inspect", "named", "photos/test", "--out", "there", *FEW)
    assert "truth" not in found["figures"][1]["facts"]["images"][0]


def test_a_run_that_is_being_trained_is_waited_for(place, capsys) -> None:
    folder = make_run(place / "runs" / "ds", FULL[:2])
    assert main(["inspect", "runs/ds"]) == 3
    assert "`vitrail train --resume runs/ds` goes on with it" in capsys.readouterr().err
    with only_one(folder.lock, busy="busy"):
        assert main(["inspect", "runs/ds"]) == 3
    told = capsys.readouterr().err
    assert "It is being trained now: wait for its end." in told and "--resume" not in told


def test_a_run_without_a_model_is_shown_by_its_last_checkpoint(place, capsys) -> None:
    folder = make_run(place / "runs" / "ds", FULL[:2])
    state = build(run_config().model).state_dict()
    checkpoints.save(folder.checkpoints, 1234, {"model": state}, {})
    words = ("inspect", "runs/ds", "--figures", "positions", "--dpi", "40", "--json")
    assert main([*words, "--image-size", "16", "--out", "larger"]) == 0
    printed = capsys.readouterr()
    assert "runs/ds: this run has kept no model yet. Shown are its weights at step 1,234." in printed.err
    assert json.loads(printed.out)["config"]["image_size"] == [16, 16]
    # With images too: how they are prepared is what the run says.
    assert main(["inspect", "runs/ds", "photos", "--limit", "2", *FEW, "--out", "seen"]) == 0
    with np.load("seen/numbers.npz") as numbers:
        assert numbers["rollout"].shape == (2, 2, 2)
    (next(folder.checkpoints.glob("step-*")) / "state.json").unlink()
    assert main(list(words)) == 3
    assert "none of its checkpoints can be read" in capsys.readouterr().err


def test_what_is_wrong_with_a_model_is_told_before_an_image_is_read(place, capsys, monkeypatch) -> None:
    bare = vitrail.load_model("model")
    bare.preprocessing = None
    vitrail.save_model(bare, "bare")

    def read(*_: object, **__: object) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr("vitrail.cli.inspect.preflight", read)
    for model, code, told in (("bare", 2, "--preprocessing"), ("gone", 3, "no such file")):
        assert main(["inspect", model, "photos/test"]) == code
        assert told in capsys.readouterr().err
