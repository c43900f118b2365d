"""`vitrail data check` as a person or a program calls it."""

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from PIL import Image, ImageOps
from tests.data.check.scenes import make_folder, scene
from tests.data.conftest import state_of
from tests.data.pictures import encoded

from vitrail.cli import main
from vitrail.data.check.page import GENERATOR


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "data", {"train": 12, "val": 6})


@pytest.fixture
def faulty(clean: Path) -> Path:
    (clean / "train" / "cat" / "cut.jpg").write_bytes(encoded(scene(90), "JPEG")[:-300])
    (clean / "val" / "cat" / "leak.jpg").write_bytes(encoded(ImageOps.mirror(scene(0)), "JPEG", quality=80))
    (clean / "train" / "dog" / "same.png").write_bytes(encoded(scene(91), "PNG"))
    (clean / "train" / "cat" / "same.png").write_bytes(encoded(scene(91), "PNG"))
    return clean


def called(capsys, code: int, *words: object) -> tuple[str, str]:
    assert main(["data", "check", *map(str, words)]) == code
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return printed.out, printed.err


def test_a_clean_folder_ends_with_code_0(capsys, clean):
    before = state_of(clean)
    out, err = called(capsys, 0, clean)
    lines = out.splitlines()
    assert lines[0] == str(clean)
    assert lines[1] == "  18 images (train 12, val 6); 2 classes, 6 to 6 images each in train"
    assert lines[2] == "  pixels: 72 to 72 (median 72) wide, 64 to 64 (median 64) high; JPEG 18"
    assert lines[4:] == ["Nothing is wrong with it."]
    assert err == ""
    assert state_of(clean) == before


def test_problems_are_one_screen_with_leaks_first_and_code_3(capsys, faulty):
    before = state_of(faulty)
    out, err = called(capsys, 3, faulty)
    assert len(out.splitlines()) < 40
    leak = out.index("1 group of copies lies in more than one split (0 exact, 1 near)")
    bad = out.index("1 file cannot be used")
    label = out.index("1 picture has two labels")
    assert leak < bad < label
    assert "train/cat/0000.jpg ~ val/cat/leak.jpg" in out
    assert "train/cat/cut.jpg: the JPEG data is damaged or cut off" in out
    assert "train/cat/same.png (cat) = train/dog/same.png (dog)" in out
    assert err == (
        f"error: {faulty}: 1 bad file, 1 group of copies across splits, 1 picture with two labels. `vitrail data check "
        f"{faulty} --page check.html` shows them; --write-split split.csv writes a table without bad files and copies "
        "across splits.\n"
    )
    assert state_of(faulty) == before


def test_notes_alone_are_no_problem(capsys, clean):
    (clean / "train" / "__MACOSX").mkdir()
    (clean / "train" / "cat" / "again.jpg").write_bytes((clean / "train" / "cat" / "0000.jpg").read_bytes())
    (clean / "train" / "cat" / "behind.jpg ").write_bytes(encoded(scene(95), "JPEG"))
    out, err = called(capsys, 0, clean)
    assert "1 group of copies lies inside a split (1 exact, 0 near; 2 images)" in out
    assert "train/cat/0000.jpg = train/cat/again.jpg\n" in out
    assert "Nothing is wrong" not in out and "all copies of an image or none" in out
    assert "__MACOSX was ignored: it is no class." in out
    assert "1 strange name, such as 'train/cat/behind.jpg ': begins or ends with a space" in out
    assert err == ""


def test_groups_of_copies_are_named_and_the_rest_is_counted(capsys, clean):
    cats = sorted((clean / "train" / "cat").iterdir())
    for number, cat in enumerate(cats):
        for copy in range(number + 1):
            (cat.parent / f"{cat.stem}-{copy}.jpg").write_bytes(cat.read_bytes())
    out, _ = called(capsys, 0, clean)
    lines = [line.strip() for line in out.splitlines()]
    place = next(number for number, line in enumerate(lines) if line.startswith("6 groups of copies lie inside"))
    assert lines[place + 1] == "train/cat/0000-0.jpg = train/cat/0000.jpg"
    assert lines[place + 3] == "train/cat/0004-0.jpg = train/cat/0004-1.jpg = train/cat/0004-2.jpg and 1 more"
    assert lines[place + 6] == "and 1 more"


def test_json_is_one_document_with_everything(capsys, faulty):
    out, err = called(capsys, 3, faulty, "--json")
    told = json.loads(out)
    assert [one["image"]["path"] for one in told["bad"]] == [str(faulty / "train" / "cat" / "cut.jpg")]
    assert [group["kind"] for group in told["exact"] + told["near"]] == ["exact", "near"]
    assert told["splits"] == {"train": 15, "val": 7}
    assert err.startswith("error: ")


def test_no_near(capsys, faulty):
    out, _ = called(capsys, 3, faulty, "--json", "--no-near")
    assert json.loads(out)["near"] is None


def test_one_split_or_a_part(capsys, faulty):
    out, _ = called(capsys, 0, faulty, "--split", "val")
    assert "7 images (val 7)" in out
    out, _ = called(capsys, 0, faulty, "--split", "val[:50%]")
    assert "3 images (val[:50%] 3)" in out


def test_a_page_is_written_and_may_be_written_again(capsys, faulty, tmp_path):
    page = tmp_path / "pages" / "check.html"
    for _ in range(2):
        _, err = called(capsys, 3, faulty, "--page", page)
        assert f"note: The page is {page}." in err
        assert f"Open {page}; --write-split" in err
    assert GENERATOR in page.read_text(encoding="utf-8")
    assert [path.name for path in page.parent.iterdir()] == ["check.html"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--page", "thesis.html"], "thesis.html: is there already and is no page of ours. Choose another name."),
        (["--page", "data/train/cat/0000.jpg"], "wanted a name that ends in .html."),
        (["--write-split", "labels.csv"], "labels.csv: is there already. Choose another name."),
        (["--write-split", "split.txt"], "wanted a name that ends in .csv."),
        (["--max-pixels", "0"], "max_pixels is 0"),
        (["--workers", "-1"], "workers is -1"),
        (["--split", "trian[:"], "the split is 'trian[:'"),
    ],
)
def test_nothing_is_overwritten_and_mistakes_are_told_at_once(capsys, clean, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.html").write_text("<html>mine")
    (tmp_path / "labels.csv").write_text("mine")
    before = state_of(clean)
    _, err = called(capsys, 2, clean, *words)
    assert message in err
    assert err.count("\n") == 1
    assert (tmp_path / "thesis.html").read_text() == "<html>mine"
    assert (tmp_path / "labels.csv").read_text() == "mine"
    assert state_of(clean) == before


def test_a_split_is_written_that_data_takes(capsys, faulty, tmp_path):
    (faulty / "train" / "dog" / "same.png").unlink()
    target = tmp_path / "split.csv"
    _, err = called(capsys, 3, faulty, "--write-split", target)
    assert f"note: {target}: train 12, val 8; 1 image put into another split. Use it in place of the folder." in err
    assert f"note: 1 image that training could not use left out of {target}." in err
    out, err = called(capsys, 0, target)
    assert "20 images (train 12, val 8)" in out
    assert err == ""


def test_a_folder_without_splits_is_divided(capsys, tmp_path):
    data = make_folder(tmp_path / "flat", {"": 40})
    target = tmp_path / "split.csv"
    before = state_of(data)
    _, err = called(capsys, 0, data, "--write-split", target)
    assert "train 32, val 4, test 4; 8 images put into another split" in err
    assert state_of(data) == before


def test_a_split_of_images_that_are_no_files(capsys, tmp_path):
    _, err = called(capsys, 2, "digits", "--write-split", tmp_path / "split.csv")
    assert "digits is not made of image files" in err


def test_the_embedded_digits_are_clean(capsys):
    out, _ = called(capsys, 0, "digits")
    assert "1,797 images (train 1,438, test 359); 10 classes" in out
    assert "Nothing is wrong with it." in out


def test_an_unknown_class_and_an_empty_one_are_told(capsys, clean):
    (clean / "train" / "empty").mkdir()
    (clean / "val" / "zebra").mkdir()
    (clean / "val" / "zebra" / "z.jpg").write_bytes(encoded(scene(80), "JPEG"))
    out, err = called(capsys, 3, clean)
    assert "'empty' in train has no images" in out
    assert "'zebra' in val is not a class of train" in out
    assert "2 classes at fault" in err
    out, err = called(capsys, 3, clean, "--allow-empty")
    assert "1 class at fault" in err


def test_strange_names_do_not_reach_the_terminal_as_they_are(capsys, clean):
    (clean / "train" / "cat" / "line\nbreak\x1b[31m.jpg").touch()
    nfd = clean / "train" / unicodedata.normalize("NFD", "고양이")
    nfd.mkdir()
    (nfd / "[bold]👩‍👩‍👧.jpg").touch()
    out, err = called(capsys, 3, clean)
    assert "\x1b" not in out + err
    assert "break\\x1b[31m.jpg: the file is empty" in out
    assert "[bold]" in out


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_what_cannot_be_opened_is_one_error(capsys, tmp_path, name):
    (tmp_path / "empty").mkdir()
    out, err = called(capsys, 3, tmp_path / name)
    assert out == ""
    assert err.startswith(f"error: {tmp_path / name}")
    assert err.count("\n") == 1


def test_help_explains_the_command(capsys):
    for words in (["data", "--help"], ["data", "check", "--help"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 0
        assert "Decode every image and tell what is wrong" in capsys.readouterr().out.replace("\n", " ")


def test_an_unknown_command_is_a_mistake(capsys):
    assert main(["data", "chek", "x"]) == 2
    assert capsys.readouterr().err == "error: Unknown command of `vitrail data` 'chek'. Did you mean 'check'?\n"


def test_a_whole_process_with_workers_returns_the_code(faulty):
    words = [sys.executable, "-m", "vitrail", "data", "check", str(faulty), "--workers", "2", "--json"]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert finished.returncode == 3
    assert len(json.loads(finished.stdout)["bad"]) == 1


def test_near_copies_with_two_labels_are_named(capsys, clean):
    first, other = sorted(folder for folder in (clean / "train").iterdir() if folder.is_dir())[:2]
    picture = sorted(first.iterdir())[0]
    Image.open(picture).convert("RGB").save(other / "again.jpg", quality=60)
    out, _ = called(capsys, 0, clean, "--workers", 0)
    assert f"look alike and have two labels: train/{first.name}/{picture.name} ({first.name}) ~" in out
    assert f"train/{other.name}/again.jpg ({other.name})" in out


def flat_folder(root: Path, *, splits: tuple[str, ...] = ("",)) -> Path:
    number = 0
    for split in splits:
        (root / split).mkdir(parents=True)
        for _ in range(4):
            (root / split / f"{number}.jpg").write_bytes(encoded(scene(number), "JPEG", quality=90))
            number += 1
    return root


def test_a_folder_without_classes_is_checked_as_a_run_without_labels_takes_it(capsys, tmp_path):
    flat = flat_folder(tmp_path / "flat")
    (flat / "cut.jpg").write_bytes(encoded(scene(90), "JPEG")[:-300])
    (flat / "again.png").write_bytes(encoded(scene(91), "PNG"))
    (flat / "same.png").write_bytes(encoded(scene(91), "PNG"))
    (flat / "notes.txt").write_text("no image")
    before = state_of(flat)
    out, err = called(capsys, 3, flat, "--page", tmp_path / "page.html", "--write-split", tmp_path / "split.csv")
    assert "  7 images (train 7); no classes\n" in out
    assert "cut.jpg: " in out
    assert "1 group of copies lies inside a split (1 exact, 0 near; 2 images)" in out
    assert "again.png = same.png\n" in out
    assert "notes.txt ignored" in out
    # One class would be told as nothing to tell apart.
    assert "class, " not in out and "nothing to tell apart" not in out
    assert f"vitrail train mae-folder --data {flat}" in err
    assert "Class balance" not in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert state_of(flat) == before
    # Nothing has to be tested: all is there to learn from but the bad file.
    rows = (tmp_path / "split.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(rows) == 6 and all(row.endswith(",train") for row in rows)
    # What was written is data for the same run.
    assert called(capsys, 0, tmp_path / "split.csv", "--no-labelled")[0].splitlines()[1].endswith("; no classes")


def test_flat_splits_leak_too(capsys, tmp_path):
    flat = flat_folder(tmp_path / "flat", splits=("train", "val"))
    (flat / "val" / "leak.jpg").write_bytes((flat / "train" / "0.jpg").read_bytes())
    out, _ = called(capsys, 3, flat)
    assert "9 images (train 4, val 5); no classes" in out
    assert "1 group of copies lies in more than one split" in out


def test_classes_are_left_out_where_that_is_asked_for(capsys, faulty):
    (faulty / "train" / "dog" / "empty").mkdir()
    out, _ = called(capsys, 3, faulty, "--no-labelled")
    assert "no classes" in out and "two labels" not in out
    assert '"labels": []' in called(capsys, 3, faulty, "--no-labelled", "--json")[0]


def test_a_flat_test_split_beside_class_folders_is_still_an_error(capsys, clean):
    (clean / "test").mkdir()
    (clean / "test" / "1.jpg").write_bytes(encoded(scene(70), "JPEG"))
    out, err = called(capsys, 3, clean)
    assert out == ""
    assert "images lie in the folder itself" in err
