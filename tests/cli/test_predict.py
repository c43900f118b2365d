"""`vitrail predict` as it is typed: what it says, writes, refuses, and keeps when something fails."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.cli.test_evaluate import make_model
from tests.data.conftest import state_of
from tests.training.tiny_run import make_images

from vitrail.cli import main
from vitrail.prediction import Predictor

NAMES = ("개미", "bee <b>", "cow, black", "dog\n2")


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Iterator[Path]:
    """Eight images, which must be as they were when the test ends."""
    make_images(tmp_path / "photos", per_class=2)
    before = state_of(tmp_path / "photos")
    yield Path("photos")
    assert state_of(tmp_path / "photos") == before


@pytest.fixture
def model(tmp_path: Path) -> str:
    return make_model("model", NAMES)


def test_one_image_is_a_list_of_classes(model, photos, capsys) -> None:
    assert main(["predict", model, "photos/ant/000.png"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "photos/ant/000.png"
    assert len(lines) == 5
    assert "dog\\n2" in said.out
    assert "computed by torch" in said.err


def test_several_are_a_line_each(model, photos, capsys) -> None:
    assert main(["predict", model, "photos", "--top", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert all(line.startswith("photos/") and "%" in line for line in lines)


def test_long_names_of_classes_fit_into_80_columns(photos, capsys) -> None:
    names = tuple(f"{kind} terrier, which is a dog with a long name" for kind in ("ant", "bee", "cow", "dog"))
    model = make_model("model", names)
    for words in (["photos"], ["photos", "--top", "4"], ["photos/ant/000.png"]):
        assert main(["predict", model, *words]) == 0
        out = capsys.readouterr().out
        lines = out.splitlines()
        assert max(map(len, lines)) <= 80, words
        if words[0] == "photos":
            # Nothing is lost: the others are told below.
            assert sum(line.startswith("photos/") for line in lines) == 8
            assert " ".join(out.split()).count(" terrier, which") == 8 * (4 if "--top" in words else 3)
        else:
            assert len({line.index("%") for line in lines[1:]}) == 1


def test_a_line_has_as_many_classes_as_are_asked_for(model, photos, capsys) -> None:
    for words, classes in (([], 3), (["--top", "4"], 4), (["--top", "1"], 1)):
        assert main(["predict", model, "photos", *words]) == 0
        assert all(line.count("%") == classes for line in capsys.readouterr().out.splitlines())


def test_a_place_that_cannot_be_written_is_found_before_anything_is_computed(photos, capsys) -> None:
    Path("file").write_text("in the way")
    assert main(["predict", "no-such-model", "photos", "--embed", "file/features.npz"]) == 5
    assert "file/features.npz: could not be written" in capsys.readouterr().err


def test_where_no_image_can_be_read_no_others_are_spoken_of(model, capsys) -> None:
    assert main(["predict", model, "nowhere.png"]) == 3
    assert "error: no image could be read. The reason is above.\n" in capsys.readouterr().err


def test_json_is_one_document_and_what_python_says(model, photos, capsys) -> None:
    assert main(["predict", model, "photos", "--json", "--top", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [record["image"] for record in found["images"]]
    expected = Predictor(model)(names, top_k=2)
    for record, answers in zip(found["images"], expected, strict=True):
        assert [(one["label"], one["probability"]) for one in record["predictions"]] == answers
        assert NAMES[record["predictions"][0]["class"]] == answers[0][0]


def test_csv_has_a_row_for_every_image(model, photos, capsys) -> None:
    Path("cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert main(["predict", model, "photos", "cut.png", "--csv", "--top", "3"]) == 3
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 9
    assert rows[0]["label_1"] in NAMES
    assert 0 < float(rows[0]["probability_3"]) < 1
    assert "cut.png" in rows[-1]["error"]
    assert not rows[-1]["label_1"]


def test_a_bad_file_is_named_and_the_rest_is_done(model, photos, capsys) -> None:
    Path("bad.jpg").write_text("<html>")
    assert main(["predict", model, "bad.jpg", "gone.jpg", "photos/bee"]) == 3
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert "bad.jpg: the content is an HTML page" in said.err
    assert "gone.jpg" in said.err
    assert "2 of 4 images could not be read" in said.err


@pytest.mark.parametrize("name", ["features.npz", "features.parquet", "new/folder/features.npz"])
def test_features_are_written_in_order(model, photos, capsys, name) -> None:
    Path("bad.jpg").write_text("no image")
    assert main(["predict", model, "photos/cow", "bad.jpg", "photos/ant", "--embed", name]) == 3
    assert "features of 4 images" in capsys.readouterr().out
    if name.endswith(".npz"):
        with np.load(name, allow_pickle=False) as file:
            names, features = list(file["image"]), file["features"]
    else:
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(name)
        names, features = table["image"].to_pylist(), np.array(table["features"].to_pylist(), dtype=np.float32)
    assert names == [f"photos/{one}/00{number}.png" for one in ("cow", "ant") for number in (0, 1)]
    assert np.array_equal(features, Predictor(model).embed(names))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["photos", "--embed", "features.txt"], ".npz or .parquet"),
        (["photos", "--embed", "photos/features.npz"], "data is never touched"),
        (["photos", "--embed", "photos/new/features.npz"], "data is never touched"),
        (["photos", "--json", "--csv"], "--json and --csv"),
        ([], "there is no image"),
        (["photos", "--top", "0"], "top"),
        (["photos", "--backend", "tensorrt"], "Unknown backend"),
    ],
)
def test_what_is_refused_before_anything_is_computed(model, photos, capsys, words, reason) -> None:
    assert main(["predict", model, *words]) == 2
    said = capsys.readouterr()
    assert reason in said.err
    assert not said.out


def test_a_model_that_is_not_there(photos, capsys) -> None:
    assert main(["predict", "nothing", "photos"]) == 3
    assert "no such file" in capsys.readouterr().err


def test_an_image_on_standard_input(model, photos, monkeypatch, capsys) -> None:
    encoded = io.BytesIO(Path("photos/ant/000.png").read_bytes())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(encoded))
    assert main(["predict", model, "-", "--json"]) == 0
    [record] = json.loads(capsys.readouterr().out)["images"]
    assert record["image"] == "standard input"
    [expected] = Predictor(model)("photos/ant/000.png")
    assert record["predictions"][0]["label"] == expected[0][0]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_output_that_takes_few_letters(model, photos, monkeypatch, encoding) -> None:
    def printed(*words: str) -> str:
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr("sys.stdout", out)
        assert main(["predict", model, "photos/ant/000.png", *words]) == 0
        return out.buffer.getvalue().decode(encoding)

    assert "  ####" in printed()
    [record] = json.loads(printed("--json"))["images"]
    assert {one["label"] for one in record["predictions"]} == set(NAMES)
    assert "\\uac1c\\ubbf8" in printed("--csv")


def test_a_class_name_that_is_no_text(photos, capsysbinary) -> None:
    model = Path(make_model("model", NAMES))
    record = json.loads((model / "config.json").read_text(encoding="utf-8"))
    record["labels"][0] = "half \ud83d"
    (model / "config.json").write_text(json.dumps(record))
    for words in ([], ["--json"], ["--csv"]):
        assert main(["predict", str(model), "photos/ant/000.png", *words]) == 0
        assert b"half \\ud83d" in capsysbinary.readouterr().out
