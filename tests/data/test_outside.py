"""What is written lies outside the data, whatever kind it is of."""

import tarfile
from pathlib import Path

import pytest
from tests.data.check.scenes import make_folder, scene
from tests.data.conftest import state_of
from tests.data.loading.tiny import make_arrays
from tests.data.pictures import encoded

from vitrail.cli import main
from vitrail.data.open import open_data
from vitrail.data.outside import ensure_outside
from vitrail.data.pack import PackOptions, pack
from vitrail.errors import UsageError


def is_refused(data: str | Path, target: Path, split: str = "train") -> bool:
    try:
        ensure_outside([open_data(data, split)], target)
    except UsageError as error:
        assert str(error).startswith(f"{target}: it would lie inside the data, ")
        assert str(error).endswith(" Choose a place outside: data is never touched.")
        return True
    return False


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos", {"train": 4, "val": 2})


def test_class_folders(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos)
    (tmp_path / "link").symlink_to(photos)
    for target in (photos / "x", photos / "train" / "cat" / "x", tmp_path / "link" / "x", Path("x"), photos):
        assert is_refused(photos, target)
        assert is_refused(photos, target, "train[:50%]")
    for target in (tmp_path / "x", tmp_path / "photos2", tmp_path / "photos.csv", Path("../x")):
        assert not is_refused(photos, target)


def test_classes_that_are_links_to_other_folders(photos, tmp_path):
    make_folder(tmp_path / "elsewhere", {"": 4})
    (photos / "train" / "fox").symlink_to(tmp_path / "elsewhere" / "cat")
    assert is_refused(photos, tmp_path / "elsewhere" / "cat" / "x")


def test_a_table_is_the_users_own_but_its_images_are_not(photos, tmp_path):
    (tmp_path / "beside.png").write_bytes(encoded(scene(0), "PNG"))
    other = make_folder(tmp_path.parent / f"{tmp_path.name}-other", {"": 2}) / "cat"
    table = tmp_path / "table.csv"
    first, *_ = sorted((photos / "train" / "cat").iterdir())
    far, *_ = sorted(other.iterdir())
    table.write_text(f"path,label\nbeside.png,a\n{first.relative_to(tmp_path)},b\n{far},b\n")
    for target in (photos / "x.csv", photos / "train" / "cat" / "x.csv", photos / "val" / "x.csv", other / "x.csv"):
        assert is_refused(table, target)
    for target in (tmp_path / "x.csv", tmp_path / "new" / "x.csv", other.parent / "x.csv"):
        assert not is_refused(table, target)


def test_shards(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        with tarfile.open(tmp_path / split / "0.tar", "w") as shard:
            for name, content in (("1.jpg", encoded(scene(1), "JPEG")), ("1.cls", b"0")):
                (tmp_path / name).write_bytes(content)
                shard.add(tmp_path / name, name)
    assert is_refused(f"wds:{tmp_path}/{{split}}/*.tar", tmp_path / "train" / "x")
    assert not is_refused(f"wds:{tmp_path}/{{split}}/*.tar", tmp_path / "x")


def test_parquet_and_saved_folders(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"image": [encoded(scene(number), "PNG") for number in range(4)], "label": ["a", "b", "a", "b"]}
    made = datasets.Dataset.from_dict(rows)
    (tmp_path / "files").mkdir()
    made.to_parquet(tmp_path / "files" / "train.parquet")
    datasets.DatasetDict({"train": made}).save_to_disk(tmp_path / "saved")
    for data in (tmp_path / "files", tmp_path / "files" / "train.parquet"):
        assert is_refused(data, tmp_path / "files" / "x")
        assert not is_refused(data, tmp_path / "x")
    assert is_refused(tmp_path / "saved", tmp_path / "saved" / "x")


def test_packs_and_what_is_in_memory(tmp_path):
    pack({"train": make_arrays(12)}, tmp_path / "copy", PackOptions())
    assert is_refused(tmp_path / "copy", tmp_path / "copy" / "x")
    assert not is_refused(tmp_path / "copy", tmp_path / "x")
    assert not is_refused("digits", tmp_path / "x")


@pytest.mark.parametrize("words", [["--page", "check.html"], ["--write-split", "split.csv"]])
def test_a_check_writes_no_page_and_no_split_into_the_data(photos, capsys, monkeypatch, words):
    monkeypatch.chdir(photos)
    before = state_of(photos)
    assert main(["data", "check", ".", *words]) == 2
    assert f"{words[1]}: it would lie inside the data, {photos}. Choose a place outside" in capsys.readouterr().err
    assert state_of(photos) == before


def test_a_split_may_lie_beside_the_table_it_comes_from(photos, tmp_path, capsys):
    rows = [f"{path.relative_to(tmp_path)},{path.parent.name}\n" for path in sorted(photos.rglob("*.jpg"))]
    (tmp_path / "table.csv").write_text("path,label\n" + "".join(rows))
    assert main(["data", "check", str(tmp_path / "table.csv"), "--write-split", str(tmp_path / "split.csv")]) == 0
    assert (tmp_path / "split.csv").is_file()
    assert main(["data", "check", str(tmp_path / "table.csv"), "--write-split", str(photos / "split.csv")]) == 2
    assert "Choose a place outside: data is never touched." in capsys.readouterr().err
