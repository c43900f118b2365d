"""Class folders as people, archives and desktops leave them."""

import errno
import os
import socket
import time
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.data.pictures import encoded, photo

from vitrail.data import OpenOptions, open_data
from vitrail.data.decoding.decode import decode
from vitrail.data.pack import PackOptions, pack
from vitrail.data.sources.classes import ensure_trainable
from vitrail.data.sources.files import shown
from vitrail.data.sources.folder import in_order, open_folder, split_folders
from vitrail.errors import DataError, Notice, UsageError

JPEG = encoded(Image.fromarray(photo()), "JPEG")
NOT_AS_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


def grow(root: Path, *names: str | bytes, content: bytes = JPEG) -> Path:
    """Make files, with the folders they need; a name that ends in a slash is an empty folder."""
    for name in names:
        path = Path(os.fsdecode(os.path.join(os.fsencode(root), os.fsencode(name))))  # noqa: PTH118
        if os.fsencode(name).endswith(b"/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def listed(source) -> list[tuple[str, str]]:
    """(class, path) of every image."""
    return [(source.classes[source.labels.values[index]], source.paths[index]) for index in range(len(source))]


def notes_of(root: Path, split: str = "train", **options) -> str:
    with pytest.warns(Notice) as caught:
        source = open_folder(root, split, **options)
    assert tuple(str(warning.message) for warning in caught) == source.notes
    return "\n".join(source.notes)


def refusal(root: Path, split: str = "train", **options) -> str:
    with pytest.raises(DataError) as caught:
        open_folder(root, split, **options)
    assert str(root) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_class_folders_at_the_top(tmp_path, watched) -> None:
    root = watched(grow(tmp_path / "pets", "dogs/2.jpg", "dogs/1.jpg", "cats/deep/er/3.JPG", "cats/1.png"))
    source = open_folder(root)
    assert source.classes == ("cats", "dogs")
    assert listed(source) == [
        ("cats", "cats/1.png"),
        ("cats", "cats/deep/er/3.JPG"),
        ("dogs", "dogs/1.jpg"),
        ("dogs", "dogs/2.jpg"),
    ]
    assert source.notes == ()
    assert source.read(0) == JPEG
    assert source.where(0) == str(root / "cats/1.png")
    assert decode(source.read(0), where=source.where(0)).format == "JPEG"


def test_a_relative_root_gives_the_same_paths(tmp_path, monkeypatch) -> None:
    grow(tmp_path, "data/train/a/1.jpg", "data/train/b/1.jpg")
    wanted = listed(open_folder(tmp_path / "data"))
    assert wanted == [("a", "train/a/1.jpg"), ("b", "train/b/1.jpg")]
    monkeypatch.chdir(tmp_path / "data" / "train" / "a")
    for root in (Path("../.."), Path("../../../data"), Path("./../../")):
        assert listed(open_folder(root)) == wanted
        assert open_folder(root).read(1) == JPEG
    monkeypatch.chdir(tmp_path / "data")
    assert listed(open_folder(Path())) == wanted
    monkeypatch.chdir(tmp_path / "data" / "train")
    assert listed(open_folder(Path())) == [("a", "a/1.jpg"), ("b", "b/1.jpg")]


def test_splits_share_the_classes_of_training_by_name(tmp_path, watched) -> None:
    root = watched(
        grow(tmp_path / "d", "train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "valid/c/7.jpg", "TEST/b/8.jpg")
    )
    assert open_folder(root).classes == ("a", "b", "c")
    for split, wanted in {"val": [("c", "valid/c/7.jpg")], "test": [("b", "TEST/b/8.jpg")]}.items():
        source = open_folder(root, split)
        assert source.classes == ("a", "b", "c")
        assert listed(source) == wanted


def test_a_class_that_training_does_not_know_is_named(tmp_path) -> None:
    root = grow(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg", "val/lynx/1.jpg")
    told = refusal(root, "val")
    assert f"{root / 'val'}: the class 'lynx' is not one of the 2 known ones; wanted classes among 'a', 'b'" in told


def test_a_missing_split_says_what_is_there_and_how_to_hold_out(tmp_path) -> None:
    root = grow(tmp_path, "train/a/1.jpg", "test/a/1.jpg")
    told = refusal(root, "val")
    assert "there is no 'val' part; it has train, test" in told
    assert "'train[90%:]'" in told
    flat = grow(tmp_path / "flat", "a/1.jpg", "b/1.jpg")
    assert "its classes are at the top, so all of it is 'train'" in refusal(flat, "test")


def test_a_class_may_be_called_test(tmp_path) -> None:
    root = grow(tmp_path, "test/1.jpg", "exam/1.jpg")
    assert split_folders(root) == {}
    assert open_folder(root).classes == ("exam", "test")


def test_litter_beside_splits_makes_them_no_classes(tmp_path) -> None:
    root = grow(tmp_path, "val/a/1.jpg", "test/a/1.jpg", "__MACOSX/a/1.jpg", ".git/HEAD")
    assert set(split_folders(root)) == {"val", "test"}


def test_litter_is_ignored_with_a_note(tmp_path, watched) -> None:
    names = ["a/1.jpg", "b/1.jpg", "__MACOSX/a/._1.jpg", ".hidden/1.jpg", "@eaDir/1.jpg"]
    names += ["a/.ipynb_checkpoints/1-checkpoint.jpg", "a/._1.jpg", "a/.DS_Store", "a/Thumbs.db", "readme.txt"]
    root = watched(grow(tmp_path / "d", *names))
    told = notes_of(root)
    for folder in ("__MACOSX", ".hidden", "@eaDir", "a/.ipynb_checkpoints"):
        assert f"{root / folder} was ignored" in told
    with pytest.warns(Notice):
        source = open_folder(root)
    assert listed(source) == [("a", "a/1.jpg"), ("b", "b/1.jpg")]


def test_files_that_are_no_images_are_counted_in_one_note(tmp_path) -> None:
    root = grow(tmp_path, "a/1.jpg", "b/1.jpg")
    grow(root, "a/notes.txt", "b/labels.xml", "b/boxes.json", content=b"BM and RIFF are how some texts begin")
    grow(root, "a/sound", content=b"RIFF\x24\0\0\0WAVEfmt ")
    assert notes_of(root) == f"{root / 'a/notes.txt'} and 3 more files ignored: no image by name or content."


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"])
def test_an_image_without_an_ending_is_found_by_its_content(kind, tmp_path) -> None:
    grow(tmp_path, "a/1", "b/1.txt", content=encoded(Image.fromarray(photo()), kind))
    assert listed(open_folder(tmp_path)) == [("a", "a/1"), ("b", "b/1.txt")]


def test_damaged_files_stay_in_the_list(tmp_path) -> None:
    """Reading them says what is wrong; leaving them out would be silent."""
    grow(tmp_path, "a/empty.jpg", content=b"")
    grow(tmp_path, "b/page.jpg", content=b"<html>404</html>")
    source = open_folder(tmp_path)
    for index, told in enumerate(("the file is empty", "the content is an HTML page")):
        with pytest.raises(DataError, match=told) as caught:
            decode(source.read(index), where=source.where(index))
        assert caught.value.where == source.where(index)


def test_a_flat_folder_shows_the_layout(tmp_path) -> None:
    told = refusal(grow(tmp_path, "1.jpg", "2.jpg"))
    assert "images lie in the folder itself" in told
    assert "sub-folders named after the classes (cats/1.jpg, dogs/2.jpg), or train/, val/ and test/" in told
    assert f"`vitrail train mae-folder --data {tmp_path}` learns from images without classes." in told


def test_an_empty_or_missing_folder(tmp_path) -> None:
    assert "there are no class folders; wanted sub-folders" in refusal(tmp_path)
    assert "the folder could not be read (No such file" in refusal(tmp_path / "gone")
    assert "could not be read (Not a directory)" in refusal(grow(tmp_path, "file.txt") / "file.txt")


def test_an_empty_class_is_named_or_allowed(tmp_path) -> None:
    root = grow(tmp_path, "a/1.jpg", "birds/", "c/1.jpg")
    told = refusal(root)
    assert f"{root / 'birds'}: the class 'birds' has no images" in told
    assert "data.allow_empty=True" in told
    source = open_folder(root, allow_empty=True)
    assert source.classes == ("a", "birds", "c")
    assert source.labels.counts().tolist() == [1, 0, 1]
    assert open_data(root, options=OpenOptions(allow_empty=True)).classes == source.classes


def test_one_class_cannot_be_learnt(tmp_path) -> None:
    source = open_folder(grow(tmp_path, "cats/1.jpg"))
    with pytest.raises(DataError, match=r"there is one class, 'cats'; wanted two or more"):
        ensure_trainable(source)


def test_numbers_are_sorted_as_numbers(tmp_path) -> None:
    assert open_folder(grow(tmp_path / "all", "100/1.jpg", "2/1.jpg", "10/1.jpg")).classes == ("2", "10", "100")
    assert open_folder(grow(tmp_path / "some", "100/1.jpg", "2/1.jpg", "b/1.jpg")).classes == ("100", "2", "b")


@pytest.mark.parametrize(
    "name",
    [
        "two words",
        'it\'s "quoted"',
        "<script>alert(1)<script>",
        "🐈‍⬛ 고양이",
        "new\nline",
        "tab\tand\x1b[31mescape",
        "a..b",
        "a..",
        "-rf",
        "$(id) `id` %s {0}",
    ],
)
def test_strange_names_of_classes_and_files(name, tmp_path, watched) -> None:
    root = watched(grow(tmp_path / "d", f"{name}/{name}.jpg", "z/1.jpg"))
    source = open_folder(root)
    assert set(source.classes) == {unicodedata.normalize("NFC", name), "z"}
    index = 0 if source.classes[0] != "z" else 1
    assert source.read(index) == JPEG
    assert source.path(index).is_file()
    assert not any(unicodedata.category(letter) == "Cc" for letter in source.where(index))


def test_a_name_of_255_bytes(tmp_path) -> None:
    name, file = "가" * 85, "x" * 251 + ".jpg"
    assert len(name.encode()) == len(file) == 255
    source = open_folder(grow(tmp_path, f"{name}/{file}", "a/1.jpg"))
    assert source.classes == ("a", name)
    assert source.read(1) == JPEG


def test_names_that_are_no_utf_8(tmp_path, watched) -> None:
    root = watched(grow(tmp_path / "d", b"caf\xe9/\xff.jpg", b"a/1.jpg"))
    source = open_folder(root)
    assert source.classes == ("a", "caf\\xe9")
    assert source.read(1) == JPEG
    assert source.where(1) == f"{root}/caf\\xe9/\\xff.jpg"
    for text in (*source.classes, source.where(1), source.digest()):
        text.encode("utf-8")


def test_a_new_line_in_a_name_does_not_break_a_message() -> None:
    assert shown("a\nb\x1b[0m\x7f가 é") == "a\\x0ab\\x1b[0m\\x7f가 é"


def test_hangul_in_two_spellings_is_one_class(tmp_path, watched) -> None:
    composed, decomposed = (unicodedata.normalize(form, "고양이") for form in ("NFC", "NFD"))
    assert composed != decomposed
    root = watched(grow(tmp_path / "d", f"{composed}/1.jpg", f"{decomposed}/2.jpg", "개/1.jpg"))
    assert f"the class {composed!r} is in 2 folders spelled differently in Unicode; merged" in notes_of(root)
    with pytest.warns(Notice):
        source = open_folder(root)
    assert source.classes == ("개", composed)
    assert source.labels.counts().tolist() == [1, 2]
    assert [source.read(index) for index in range(3)] == [JPEG] * 3


def test_training_and_validation_in_two_spellings(tmp_path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "고양이") for form in ("NFC", "NFD"))
    root = grow(tmp_path, f"train/{composed}/1.jpg", "train/a/1.jpg", f"val/{decomposed}/2.jpg")
    source = open_folder(root, "val")
    assert source.classes == ("a", composed)
    assert source.labels.values.tolist() == [1]


def test_names_that_differ_in_capitals_stay_apart_with_a_note(tmp_path) -> None:
    root = grow(tmp_path, "Cat/1.jpg", "cat/1.jpg")
    assert "the classes 'Cat', 'cat' differ only in capitals; they stay apart" in notes_of(root)
    with pytest.warns(Notice):
        assert open_folder(root).classes == ("Cat", "cat")


def test_a_dead_link_is_listed_and_named_when_it_is_read(tmp_path, watched) -> None:
    root = grow(tmp_path / "d", "a/1.jpg", "b/1.jpg")
    (root / "a" / "2.jpg").symlink_to(tmp_path / "gone.jpg")
    (root / "a" / "3.jpg").symlink_to("3.jpg")
    source = open_folder(watched(root))
    assert [path for _, path in listed(source)] == ["a/1.jpg", "a/2.jpg", "a/3.jpg", "b/1.jpg"]
    with pytest.raises(DataError, match=r"a/2\.jpg: the link leads nowhere"):
        source.read(1)
    with pytest.raises(DataError, match=r"a/3\.jpg: the link fails \(Too many levels"):
        source.read(2)


def test_a_class_that_is_a_dead_link_is_noted(tmp_path) -> None:
    root = grow(tmp_path, "a/1.jpg", "b/1.jpg")
    (root / "c").symlink_to(tmp_path / "gone")
    assert notes_of(root) == f"{root / 'c'} was ignored: the link leads nowhere."


def test_links_to_folders_are_followed_once_and_never_upwards(tmp_path, watched) -> None:
    root = grow(tmp_path / "d", "train/a/1.jpg", "train/b/1.jpg")
    grow(tmp_path / "elsewhere", "9.jpg")
    train = root / "train"
    (train / "a" / "more").symlink_to(tmp_path / "elsewhere")
    (train / "a" / "more again").symlink_to(tmp_path / "elsewhere")
    (train / "a" / "self").symlink_to(".")
    (train / "a" / "up").symlink_to("..")
    (train / "a" / "top").symlink_to(root)
    (train / "a" / "above").symlink_to(tmp_path)
    watched(root)
    told = notes_of(root)
    for name in ("more again", "self", "up", "top", "above"):
        assert f"{train / 'a' / name} was ignored: the link leads back" in told
    with pytest.warns(Notice):
        source = open_folder(root)
    assert listed(source) == [("a", "train/a/1.jpg"), ("a", "train/a/more/9.jpg"), ("b", "train/b/1.jpg")]


def test_a_class_may_be_a_link(tmp_path) -> None:
    grow(tmp_path / "disk", "1.jpg")
    root = grow(tmp_path / "d", "b/1.jpg")
    (root / "a").symlink_to(tmp_path / "disk")
    assert listed(open_folder(root)) == [("a", "a/1.jpg"), ("b", "b/1.jpg")]


def test_a_pipe_does_not_hang(tmp_path) -> None:
    root = grow(tmp_path, "a/1.jpg", "b/1.jpg")
    os.mkfifo(root / "a" / "pipe.jpg")
    os.mkfifo(root / "a" / "pipe")
    told = notes_of(root)
    assert "pipe.jpg was ignored" in told
    assert "pipe was ignored" in told


def test_a_file_that_vanished_or_became_a_folder(tmp_path) -> None:
    root = grow(tmp_path, "a/1.jpg", "b/1.jpg")
    source = open_folder(root)
    (root / "a/1.jpg").unlink()
    with pytest.raises(DataError, match=r"a/1\.jpg: the file could not be read \(No such file"):
        source.read(0)
    (root / "a/1.jpg").mkdir()
    with pytest.raises(DataError, match=r"a/1\.jpg: this is no file"):
        source.read(0)


@NOT_AS_ROOT
def test_files_and_folders_without_read_permission(tmp_path) -> None:
    root = grow(tmp_path, "a/1.jpg", "b/1.jpg")
    source = open_folder(root)
    (root / "a/1.jpg").chmod(0)
    with pytest.raises(DataError, match=r"a/1\.jpg: the file could not be read \(Permission denied"):
        source.read(0)
    (root / "b").chmod(0)
    try:
        assert "the folder could not be read (Permission denied)" in refusal(root)
    finally:
        (root / "b").chmod(0o700)


def test_a_scan_error_is_told_for_any_user(tmp_path, monkeypatch) -> None:
    root = grow(tmp_path, "a/1.jpg", "b/1.jpg")
    scan = os.scandir

    def denied(path):
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert f"{root / 'b'}: the folder could not be read (Permission denied)" in refusal(root)


def test_ten_thousand_files_open_in_a_moment(tmp_path) -> None:
    for name in range(10):
        (tmp_path / str(name)).mkdir()
        for number in range(1000):
            (tmp_path / str(name) / f"{number}.jpg").touch()

    def seconds(count) -> float:
        """Of this thread, whatever else the machine does."""
        start = time.thread_time()
        assert count() == 10_000
        return time.thread_time() - start

    # Sooner than to look at every file once.
    looked_at = min(seconds(lambda: sum(path.is_file() for path in tmp_path.rglob("*"))) for _ in range(3))
    assert min(seconds(lambda: len(open_folder(tmp_path))) for _ in range(3)) < looked_at


@pytest.mark.parametrize("labelled", [True, False])
def test_what_cannot_be_read_to_its_end_is_told_wherever_it_lies(labelled, tmp_path) -> None:
    root = grow(tmp_path / "d", "a/1.jpg", "b/1.jpg")
    # The name of a socket has to be short.
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as here:
        here.chdir(root)
        server.bind("s")
    os.mkfifo(root / "pipe")
    os.mkfifo(root / "top.jpg")
    os.mkfifo(root / "a" / "deep.jpg")
    (root / "zero.png").symlink_to("/dev/zero")
    with pytest.warns(Notice) as told:
        source = open_data(root, options=OpenOptions(labelled=labelled))
    assert len(source) == 2
    for name in ("s", "pipe", "top.jpg", "a/deep.jpg", "zero.png"):
        (note,) = [note for note in source.notes if note.startswith(f"{root / name} ")]
        assert "a pipe, a socket or a device" in note and note in [str(one.message) for one in told]


@pytest.mark.filterwarnings("ignore:.*copies:vitrail.errors.Notice")
def test_the_folder_is_never_written_to(tmp_path, folder_state) -> None:
    """Everything that opens and reads, on a folder whose hash is taken before and after."""
    root = grow(tmp_path / "d", "train/a/1.jpg", "train/a/2.jpg", "train/b/1.jpg", "train/b/2.jpg", "val/a/1.jpg")
    (root / "train/a/cut.jpg").write_bytes(JPEG[:-2])
    before = folder_state(root)
    for split in ("train", "val", "train[:50%]"):
        source = open_data(root, split)
        source.digest()
        for index in range(len(source)):
            try:
                decode(source.read(index), where=source.where(index))
            except DataError as error:
                assert "cut.jpg" in str(error)
    assert folder_state(root) == before
    (root / "train/a/1.jpg").touch()
    assert folder_state(root) != before


@pytest.fixture
def deep(tmp_path) -> Iterator[Path]:
    """A file below 1,200 folders, made and removed one by one: Python's own functions would call themselves."""
    folders = [tmp_path / "b" / ("d/" * depth) for depth in range(1201)]
    for folder in folders:
        folder.mkdir()
    file = folders[-1] / "1.jpg"
    file.write_bytes(JPEG)
    yield file
    file.unlink()
    for folder in reversed(folders):
        folder.rmdir()


def test_twelve_hundred_folders_in_each_other(tmp_path, deep) -> None:
    grow(tmp_path, "a/1.jpg")
    source = open_data(tmp_path)
    assert [source.path(index) for index in range(2)] == [tmp_path / "a" / "1.jpg", deep]
    assert source.read(1) == JPEG


def test_every_folder_that_is_not_read_is_told(tmp_path) -> None:
    names = [f"{split}/{name}/1.jpg" for split in ("train", "Train", "val", "validation") for name in "ab"]
    root = grow(tmp_path, *names, "extra/1.jpg")
    told = notes_of(root)
    assert told == f"{root}: not read, beside train/, val/: Train/, extra/, validation/."
    with pytest.warns(Notice):
        assert {path for _, path in listed(open_folder(root))} == {"train/a/1.jpg", "train/b/1.jpg"}


def test_a_class_called_train_among_other_classes(tmp_path) -> None:
    root = grow(tmp_path, "bus/1.jpg", "car/1.jpg", "train/1.jpg")
    assert split_folders(root) == {}
    assert open_folder(root).classes == ("bus", "car", "train")


def test_a_folder_called_train_that_may_be_a_split_or_a_class(tmp_path) -> None:
    root = grow(tmp_path, "bus/1.jpg", "car/1.jpg", "train/steam/1.jpg", "train/diesel/1.jpg")
    with pytest.raises(DataError, match="'train' holds folders and may be the training split, or a class beside 'bus'"):
        open_data(root)


def test_folders_without_images_beside_train_are_told_and_no_classes(tmp_path) -> None:
    root = grow(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "notes/todo.txt")
    assert "not read, beside train/: notes/" in notes_of(root)


def test_the_order_of_files_does_not_depend_on_their_spelling(tmp_path) -> None:
    names = ["é.jpg", "f.jpg", "e.jpg", "z/é.jpg", "z/a.jpg"]
    orders, digests = [], []
    for form in ("NFC", "NFD"):
        root = grow(tmp_path / form / "d", *(f"a/{unicodedata.normalize(form, name)}" for name in names), "b/1.jpg")
        source = open_folder(root)
        orders.append([unicodedata.normalize("NFC", path) for path in source.paths])
        digests.append(source.digest())
    assert orders[0] == orders[1]
    assert digests[0] == digests[1]


def test_a_file_too_large_for_an_image_is_refused_unread(tmp_path) -> None:
    root = grow(tmp_path, "a/1.jpg", "b/1.jpg")
    os.truncate(root / "a" / "1.jpg", 2**30 + 1)
    with pytest.raises(DataError, match=r"a/1\.jpg: the file has 1,073,741,825 bytes; wanted at most 1,073,741,824"):
        open_folder(root).read(0)


def test_classes_of_thousands_of_digits_are_in_order() -> None:
    assert in_order(["1" * 5000, "2", "10", "02", "0"]) == ("0", "02", "2", "10", "1" * 5000)


@pytest.mark.parametrize("data", ["", " ", "hf:", "wds:"])
def test_no_data_at_all(data) -> None:
    with pytest.raises(UsageError, match="wanted a path or a name"):
        open_data(data)


@pytest.mark.parametrize("data", ["n" * 5000, "~nobody-of-this-name/x", "a\0b", "hf:" + "n" * 5000, "hf:~nobody-of/x"])
def test_what_can_be_no_path(data) -> None:
    with pytest.raises(DataError) as caught:
        open_data(data)
    assert len(str(caught.value)) < 700


def test_splits_go_by_any_of_their_names(tmp_path) -> None:
    root = grow(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "valid/b/1.jpg", "valid/b/2.jpg")
    for name in ("val", "validation", "Valid", "dev"):
        assert open_data(root, name).split == "val"
    # Both are one picture.
    assert len(open_data(root, "validation[:50%]", options=OpenOptions(copies="apart"))) == 1


@pytest.mark.parametrize("stored", ["val", "validation"])
def test_the_splits_of_a_pack_go_by_any_of_their_names(tmp_path, stored) -> None:
    root = grow(tmp_path / "data", "train/a/1.jpg", "train/b/1.jpg", "val/b/1.jpg")
    pack({"train": open_data(root), stored: open_data(root, "val")}, tmp_path / "pack", PackOptions())
    for name in ("val", "validation"):
        assert len(open_data(tmp_path / "pack", name)) == 1


def test_pictures_beside_the_class_folders_are_told(tmp_path) -> None:
    root = grow(tmp_path, "a/1.jpg", "b/1.jpg", "loose.jpg", "more.png")
    with pytest.warns(Notice, match=r"loose\.jpg and 1 more ignored: beside the class folders"):
        assert len(open_folder(root)) == 2


def test_a_look_that_fails_for_a_moment_makes_no_other_data(tmp_path, monkeypatch):
    source = open_folder(grow(tmp_path / "data", "a/1.jpg", "b/2.jpg"))
    wanted, look, failed = source.digest(), Path.stat, set()

    def failing(path: Path, **options: bool) -> os.stat_result:
        if path.suffix == ".jpg" and path not in failed:
            failed.add(path)
            raise OSError(errno.ESTALE, "no answer")
        return look(path, **options)

    monkeypatch.setattr(Path, "stat", failing)
    monkeypatch.setattr("vitrail.data.sources.files.PATIENCE", 0)
    assert open_folder(tmp_path / "data").digest() == wanted
    assert len(failed) == 2


def test_a_touched_file_is_told_from_another_where_its_content_is_known(tmp_path):
    root = grow(tmp_path / "data", "a/1.jpg", "b/2.jpg")
    source = open_folder(root)
    source.recall(np.array([0]), np.array([zlib.crc32(JPEG)]))
    source.digest()
    for path in root.rglob("*.jpg"):
        os.utime(path, (1, 1))
    assert source.read(0) == JPEG
    with pytest.raises(DataError, match="is not known") as caught:
        source.read(1)
    assert "skip_bad" not in str(caught.value) and "2.jpg" in str(caught.value)
    (root / "a" / "1.jpg").write_bytes(JPEG[::-1])
    with pytest.raises(DataError, match=r"1\.jpg.*written anew"):
        source.read(0)
