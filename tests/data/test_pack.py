"""Packing: the copy is what Pillow makes of the images, an interrupted one ends the same, and data is never touched."""

import io
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from tests.data.loading.tiny import left_running, make_arrays, make_folder, picture

from vitrail.config import DecodePolicy
from vitrail.data import pack as packing
from vitrail.data.decoding.decode import decode, pixels
from vitrail.data.loading.workers import WorkerError
from vitrail.data.open import OpenOptions, open_data
from vitrail.data.pack import PackOptions, estimate_bytes, pack
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.packed import Packed, open_packed
from vitrail.data.sources.source import Arrays, Encoded, Source
from vitrail.data.sources.table import open_table
from vitrail.errors import DataError, DiskError, UsageError, VitrailError

OPTIONS = PackOptions(short_side=18)


@pytest.fixture
def photos(tmp_path: Path, watched: Callable[[Path], Path]) -> Path:
    """Twenty photos to learn from and six to measure on, which stay as they are."""
    make_folder(tmp_path / "photos" / "train", 20)
    make_folder(tmp_path / "photos" / "val", 6)
    return watched(tmp_path / "photos")


def splits(photos: Path) -> dict[str, Source]:
    return {split: open_folder(photos, split) for split in ("train", "val")}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refusal(kind: type[VitrailError], sources: dict[str, Source], target: Path, options: PackOptions = OPTIONS) -> str:
    with pytest.raises(kind) as caught:
        pack(sources, target, options)
    assert left_running() == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What is in a copy.


def test_images_are_reduced_to_the_short_side_as_pillow_does(photos, tmp_path):
    sources = splits(photos)
    copies = pack(sources, tmp_path / "copy", OPTIONS)
    for split, source in sources.items():
        assert len(copies[split]) == len(source)
        for index in range(len(source)):
            image = Image.open(source.path(index)).convert("RGB")
            if min(image.size) > 18:
                ratio = 18 / min(image.size)
                image = image.resize(tuple(round(ratio * side) for side in image.size), Image.Resampling.BICUBIC)
                assert min(image.size) == 18
            assert np.array_equal(copies[split].read(index), np.asarray(image))
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == [
        "pack.json",
        *("train.pixels", "train.safetensors", "val.pixels", "val.safetensors"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "photos"]


def test_labels_classes_and_names_are_kept(photos, tmp_path):
    sources = splits(photos)
    copies = pack(sources, tmp_path / "copy", OPTIONS)
    for split, source in sources.items():
        copy = copies[split]
        assert copy.classes == source.classes == ("ant", "bee", "cow")
        assert copy.labels.values.tolist() == source.labels.values.tolist()
        assert (copy.name, copy.split) == (str(tmp_path / "copy"), split)
        assert copy.where(3) == f"{tmp_path}/copy/{split}.pixels: image 3"
    record = json.loads((tmp_path / "copy" / "pack.json").read_text())
    assert record["format"] == "vitrail-pack/1"
    assert (record["name"], record["short_side"], record["quality"]) == (str(photos), 18, None)
    assert record["policy"]["background"] == [255, 255, 255]
    assert record["digests"] == {split: source.digest() for split, source in sources.items()}


def test_several_classes_per_image(tmp_path):
    source = make_arrays(20, several=True)
    copy = pack({"train": source}, tmp_path / "copy", OPTIONS)["train"]
    assert copy.labels.is_multi
    assert [copy.labels.classes_of(index) for index in range(20)] == [tuple(range(index % 3)) for index in range(20)]


def test_shares_of_classes_have_no_place_in_a_copy(tmp_path):
    source = make_arrays(4)
    source.labels = Labels(source.labels.values, 3, shares=np.full((4, 3), 1 / 3, np.float16))
    assert "shares" in refusal(UsageError, {"train": source}, tmp_path / "copy")


def test_grey_arrays_stay_grey(tmp_path):
    source = make_arrays(20, side=24, grey=True)
    copy = pack({"train": source}, tmp_path / "copy", PackOptions(short_side=12))["train"]
    assert (tmp_path / "copy" / "train.pixels").stat().st_size == 20 * 12 * 12
    expected = Image.fromarray(source.pixels[7]).resize((12, 12), Image.Resampling.BICUBIC)
    assert np.array_equal(copy.read(7), np.asarray(expected))
    as_colour = pixels(decode(copy.read(7), "RGB"))
    assert np.array_equal(as_colour, np.asarray(expected.convert("RGB")))


def test_small_arrays_are_untouched(tmp_path):
    source = make_arrays(20)
    copy = pack({"train": source}, tmp_path / "copy", PackOptions(short_side=8))["train"]
    assert np.array_equal(np.stack([copy.read(index) for index in range(20)]), source.pixels)


@pytest.mark.parametrize("quality", [1, 90, 100])
def test_jpegs_of_a_quality(photos, tmp_path, quality):
    sources = splits(photos)
    plain = pack(sources, tmp_path / "plain", OPTIONS)["val"]
    copy = pack(sources, tmp_path / "copy", PackOptions(short_side=18, quality=quality))["val"]
    for index in range(len(copy)):
        buffer = io.BytesIO()
        Image.fromarray(np.asarray(plain.read(index))).save(buffer, "JPEG", quality=quality, subsampling=0)
        assert copy.read(index) == buffer.getvalue()
    assert copy.damaged() == []


def test_images_are_decoded_by_the_policy(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    picture(0).transpose(Image.Transpose.ROTATE_90).save(tmp_path / "photos" / "a" / "turned.png", exif=turned)
    Image.new("RGBA", (5, 5), (0, 0, 0, 0)).save(tmp_path / "photos" / "b" / "clear.png")
    policy = DecodePolicy(background=(10, 20, 30))
    source = open_folder(tmp_path / "photos")
    copy = pack({"train": source}, tmp_path / "copy", PackOptions(short_side=99, policy=policy))["train"]
    assert np.array_equal(copy.read(0), np.asarray(picture(0)))
    assert copy.read(1)[2, 2].tolist() == [10, 20, 30]


def test_classes_are_matched_by_name(tmp_path):
    train = make_arrays(20)
    val = Arrays("tiny", "val", ("c", "x", "a"), Labels.of([0, 2, 2], 3), train.pixels[:3])
    copies = pack({"train": train, "val": val}, tmp_path / "copy", OPTIONS)
    assert copies["val"].classes == tuple("abcde")
    assert copies["val"].labels.values.tolist() == [2, 0, 0]
    stranger = Arrays("tiny", "val", ("c", "x"), Labels.of([1], 2), train.pixels[:1])
    assert "the class 'x' is not one of the 5 known ones" in refusal(
        DataError, {"train": train, "val": stranger}, tmp_path / "other"
    )


def test_notes_are_kept_and_told_once(tmp_path):
    sources = {"train": make_arrays(20), "val": make_arrays(8)}
    for source in sources.values():
        source.notes = ("3 hidden files ignored.",)
    assert pack(sources, tmp_path / "copy", OPTIONS)["val"].notes == ("3 hidden files ignored.",)


def test_what_is_lost_is_told(photos, tmp_path):
    larger = sum(min(Image.open(path).size) > 18 for path in photos.rglob("*.*"))
    assert pack(splits(photos), tmp_path / "copy", OPTIONS)["val"].notes == (
        f"packed at short side 18: {larger} larger images were reduced, so evaluating them from the copy gives other "
        "pixels than from the files, and training at more than 18 pixels enlarges them again.",
    )
    assert pack(splits(photos), tmp_path / "whole", PackOptions(short_side=99))["val"].notes == ()
    assert pack(splits(photos), tmp_path / "jpegs", PackOptions(short_side=99, quality=90))["val"].notes == (
        "packed as JPEGs of quality 90: evaluating them gives other pixels than the files.",
    )


def test_progress_counts_every_image(photos, tmp_path):
    counts: list[int] = []
    pack(splits(photos), tmp_path / "copy", OPTIONS, counts.append)
    assert sum(counts) == 26


def test_workers_write_the_same_bytes(photos, tmp_path):
    pack(splits(photos), tmp_path / "one", OPTIONS)
    pack(splits(photos), tmp_path / "two", PackOptions(short_side=18, workers=2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert left_running() == []


def test_a_target_in_folders_that_are_not_there_yet(photos, tmp_path):
    pack(splits(photos), tmp_path / "a" / "b" / "copy", OPTIONS)
    assert len(open_packed(tmp_path / "a" / "b" / "copy", "val")) == 6


# Opening it as data.


def test_a_copy_is_opened_like_any_data(photos, tmp_path):
    pack(splits(photos), tmp_path / "copy", OPTIONS)
    whole = open_data(tmp_path / "copy")
    assert isinstance(whole, Packed)
    first, second = (open_data(tmp_path / "copy", f"train[{part}]") for part in (":50%", "50%:"))
    assert (len(first), len(second)) == (10, 10)
    ids = [part.ids(np.arange(10)) for part in (first, second)]
    assert sorted(np.concatenate(ids).tolist()) == list(range(20))
    assert np.array_equal(first.read(4), whole.read(int(ids[0][4])))
    # The same images as of the folder.
    assert ids[0].tolist() == open_data(photos, "train[:50%]").ids(np.arange(10)).tolist()
    model = open_data(tmp_path / "copy", "val", options=OpenOptions(classes=("cow", "ant", "dog", "bee")))
    assert [model.classes[number] for number in model.labels.values] == ["ant", "ant", "bee", "bee", "cow", "cow"]
    with pytest.raises(DataError, match=r"copy: there is no 'test' part; it has train, val\. Take a part"):
        open_data(tmp_path / "copy", "test")


def test_a_copy_of_a_copy(photos, tmp_path):
    pack(splits(photos), tmp_path / "one", OPTIONS)
    sources = {split: open_data(tmp_path / "one", split) for split in ("train", "val")}
    pack(sources, tmp_path / "two", OPTIONS)
    assert contents(tmp_path / "one")["train.pixels"] == contents(tmp_path / "two")["train.pixels"]


# Interruptions.


class Stop(Exception):
    pass


def interrupt(sources: dict[str, Source], target: Path, options: PackOptions, after: int) -> Path:
    """Pack until so many images are done; returns the folder that is left."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if done >= after:
            raise Stop

    with pytest.raises(Stop):
        pack(sources, target, options, advance)
    assert not target.exists()
    assert left_running() == []
    return target.with_name(f".{target.name}.partial")


@pytest.fixture
def unbroken(photos: Path, tmp_path: Path) -> dict[str, bytes]:
    pack(splits(photos), tmp_path / "unbroken", OPTIONS)
    return contents(tmp_path / "unbroken")


@pytest.mark.parametrize(
    ("stops", "workers"),
    [([0], 0), ([1], 0), ([7, 18], 0), ([20], 0), ([23], 0), ([26], 0), ([3, 3, 4, 22], 0), ([3, 22], 2)],
)
def test_an_interrupted_copy_ends_byte_for_byte_the_same(photos, tmp_path, unbroken, stops, workers):
    options = PackOptions(short_side=18, workers=workers)
    for after in stops:
        interrupt(splits(photos), tmp_path / "copy", options, after)
    counts: list[int] = []
    pack(splits(photos), tmp_path / "copy", options, counts.append)
    assert contents(tmp_path / "copy") == unbroken
    assert counts[0] == min(stops[-1], 20)
    assert sum(counts) == 26
    assert not (tmp_path / ".copy.partial").exists()


class Counted(Arrays):
    """A set that counts how often it is read."""

    reads = 0

    def read(self, index: int) -> Encoded:
        self.reads += 1
        return super().read(index)


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "estimate_bytes", lambda *_given: 0)
    tiny = make_arrays(60)
    source = Counted(tiny.name, tiny.split, tiny.classes, tiny.labels, tiny.pixels)
    interrupt({"train": source}, tmp_path / "copy", OPTIONS, 50)
    source.reads = 0
    pack({"train": source}, tmp_path / "copy", OPTIONS)
    assert source.reads == 10


def torn_line(partial: Path) -> None:
    with (partial / "train.journal").open("ab") as file:
        file.write(b"\x01" * 7)


def more_pixels(partial: Path) -> None:
    with (partial / "train.pixels").open("ab") as file:
        file.write(bytes(1000))


def fewer_pixels(partial: Path) -> None:
    path = partial / "train.pixels"
    os.truncate(path, path.stat().st_size - 1000)


def no_pixels(partial: Path) -> None:
    (partial / "train.pixels").unlink()


def no_journal(partial: Path) -> None:
    (partial / "train.journal").unlink()


def no_record(partial: Path) -> None:
    (partial / "pack.json").unlink()


def torn_record(partial: Path) -> None:
    path = partial / "pack.json"
    os.truncate(path, path.stat().st_size // 2)


def foreign_record(partial: Path) -> None:
    (partial / "pack.json").write_text('{"format": "vitrail-pack/9"}')


DAMAGES = [torn_line, more_pixels, fewer_pixels, no_pixels, no_journal, no_record, torn_record, foreign_record]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_what_an_interruption_tears_is_made_whole(photos, tmp_path, unbroken, damage):
    damage(interrupt(splits(photos), tmp_path / "copy", OPTIONS, 13))
    pack(splits(photos), tmp_path / "copy", OPTIONS)
    assert contents(tmp_path / "copy") == unbroken


def test_an_interruption_before_the_last_move(photos, tmp_path, unbroken, monkeypatch):
    def stop(*_given: Path) -> None:
        raise Stop

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(packing, "put_in_place", stop)
        pack(splits(photos), tmp_path / "copy", OPTIONS)
    pack(splits(photos), tmp_path / "copy", OPTIONS)
    assert contents(tmp_path / "copy") == unbroken


@pytest.mark.parametrize(
    "other",
    [
        PackOptions(short_side=17),
        PackOptions(short_side=18, quality=80),
        PackOptions(short_side=18, policy=DecodePolicy(background=(0, 0, 0))),
    ],
)
def test_other_settings_start_afresh(photos, tmp_path, other):
    pack(splits(photos), tmp_path / "expected", other)
    interrupt(splits(photos), tmp_path / "copy", OPTIONS, 13)
    counts: list[int] = []
    pack(splits(photos), tmp_path / "copy", other, counts.append)
    assert counts[0] == 0
    assert contents(tmp_path / "copy") == contents(tmp_path / "expected")


def repaint(path: Path) -> None:
    """Other pixels in a file of the same size."""
    before = path.stat().st_size
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
    assert path.stat().st_size == before


def remove(path: Path) -> None:
    path.unlink()


def add_before(path: Path) -> None:
    picture(77).save(path.with_name("  new.png"))


def replace_by_a_larger_one(path: Path) -> None:
    Image.new("RGB", (50, 50)).save(path)


CHANGES = [(repaint, 4), (remove, 4), (add_before, 0), (replace_by_a_larger_one, 4)]


@pytest.mark.parametrize(("change", "kept"), CHANGES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_file_that_changed_is_read_again_and_those_before_it_are_kept(tmp_path, change, kept):
    for name in ("ant", "bee"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):
            picture(4 * number).save(tmp_path / "photos" / name / f"{number}.bmp")
    interrupt({"train": open_folder(tmp_path / "photos")}, tmp_path / "copy", OPTIONS, 13)
    change(tmp_path / "photos" / "ant" / "4.bmp")
    source = open_folder(tmp_path / "photos")
    pack({"train": source}, tmp_path / "expected", OPTIONS)
    counts: list[int] = []
    copy = pack({"train": source}, tmp_path / "copy", OPTIONS, counts.append)["train"]
    assert contents(tmp_path / "copy") == contents(tmp_path / "expected")
    assert (counts[0], sum(counts)) == (kept, len(source))
    assert len(copy) == len(source)


def test_labels_that_changed_are_those_of_now(tmp_path):
    make_folder(tmp_path / "photos", 12)
    paths = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "photos").rglob("*.*"))
    for first in ("a", "b"):
        rows = "".join(f"{path},{first if number == 0 else 'ab'[number % 2]}\n" for number, path in enumerate(paths))
        (tmp_path / "table.csv").write_text(f"path,label\n{rows}")
        if first == "a":
            interrupt({"train": open_table(tmp_path / "table.csv")}, tmp_path / "copy", OPTIONS, 9)
    copy = pack({"train": open_table(tmp_path / "table.csv")}, tmp_path / "copy", OPTIONS)["train"]
    assert copy.labels.values.tolist() == [1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]


def test_other_pixels_in_memory_start_afresh(tmp_path):
    source = make_arrays(20)
    interrupt({"train": source}, tmp_path / "copy", OPTIONS, 13)
    source.pixels = 255 - source.pixels
    copy = pack({"train": source}, tmp_path / "copy", OPTIONS)["train"]
    assert np.array_equal(np.stack([copy.read(index) for index in range(20)]), source.pixels)


def test_fewer_splits_leave_nothing_of_the_others(photos, tmp_path):
    interrupt(splits(photos), tmp_path / "copy", OPTIONS, 23)
    pack({"val": open_folder(photos, "val")}, tmp_path / "copy", OPTIONS)
    assert sorted(contents(tmp_path / "copy")) == ["pack.json", "val.pixels", "val.safetensors"]


# Bad files.


@pytest.fixture
def blemished(tmp_path: Path) -> Path:
    """Twenty photos of which the fourth and the tenth are bad."""
    source = open_folder(make_folder(tmp_path / "photos", 20))
    source.path(3).write_bytes(b"")
    source.path(9).write_text("<html>not found</html>")
    return tmp_path / "photos"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_file_stops_and_is_named(blemished, tmp_path, watched, workers):
    source = open_folder(watched(blemished))
    options = PackOptions(short_side=18, workers=workers)
    message = refusal(DataError, {"train": source}, tmp_path / "copy", options)
    assert message == (
        f"{source.path(3)}: the file is empty. "
        "Mend or remove the file, or pass data.skip_bad=True; the same command then goes on where it stopped."
    )
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("mended", [True, False])
def test_a_bad_file_that_is_mended_or_removed_goes_on_where_it_stopped(blemished, tmp_path, mended):
    source = open_folder(blemished)
    for stop in (3, 9):
        refusal(DataError, {"train": open_folder(blemished)}, tmp_path / "copy")
        if mended:
            picture(1).save(source.path(stop), "PNG")
        else:
            source.path(stop).unlink()
    counts: list[int] = []
    copy = pack({"train": open_folder(blemished)}, tmp_path / "copy", OPTIONS, counts.append)["train"]
    assert counts[0] == (9 if mended else 8)
    assert len(copy) == (20 if mended else 18)
    pack({"train": open_folder(blemished)}, tmp_path / "expected", OPTIONS)
    assert contents(tmp_path / "copy") == contents(tmp_path / "expected")


class Unreadable(Arrays):
    """A set of which one image cannot be read."""

    def read(self, index: int) -> Encoded:
        if index == 3:
            raise DataError("the row has no image", where=self.where(index))
        return super().read(index)


def test_a_bad_image_that_is_no_file(tmp_path):
    tiny = make_arrays(20)
    source = Unreadable(tiny.name, tiny.split, tiny.classes, tiny.labels, tiny.pixels)
    assert refusal(DataError, {"train": source}, tmp_path / "copy") == (
        "tiny, train image 3: the row has no image. "
        "Mend the data, which starts the copy afresh, or pass data.skip_bad=True, which goes on where it stopped."
    )


def test_bad_files_are_left_out_on_request(blemished, tmp_path):
    source = open_folder(blemished)
    copy = pack({"train": source}, tmp_path / "copy", PackOptions(short_side=99, skip_bad=True))["train"]
    assert len(copy) == 18
    assert copy.notes == ("2 of 20 images of 'train' left out: bad files.",)
    kept = [index for index in range(20) if index not in (3, 9)]
    assert copy.labels.values.tolist() == source.labels.values[kept].tolist()
    for place, index in enumerate(kept):
        assert np.array_equal(copy.read(place), np.asarray(Image.open(source.path(index)).convert("RGB")))


def test_bad_files_that_were_allowed_stop_the_one_who_does_not_allow_them(blemished, tmp_path):
    source = open_folder(blemished)
    interrupt({"train": source}, tmp_path / "copy", PackOptions(short_side=18, skip_bad=True), 15)
    assert f"{source.path(3)}: the file is empty" in refusal(DataError, {"train": source}, tmp_path / "copy")
    copy = pack({"train": source}, tmp_path / "copy", PackOptions(short_side=18, skip_bad=True))["train"]
    expected = pack({"train": source}, tmp_path / "expected", PackOptions(short_side=18, skip_bad=True))["train"]
    assert len(copy) == len(expected) == 18
    assert contents(tmp_path / "copy") == contents(tmp_path / "expected")


def test_nothing_but_bad_files(tmp_path):
    for path in make_folder(tmp_path / "photos", 4).rglob("*.*"):
        path.write_bytes(b"")
    source = open_folder(tmp_path / "photos")
    copy = pack({"train": source}, tmp_path / "copy", PackOptions(skip_bad=True))["train"]
    assert len(copy) == 0
    assert copy.notes == ("4 of 4 images of 'train' left out: bad files.",)


class Deadly(Arrays):
    """A set of which reading one image kills the process."""

    def read(self, index: int) -> Encoded:
        if index == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(index)


def test_a_worker_that_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "estimate_bytes", lambda *_given: 0)
    monkeypatch.setattr("vitrail.data.loading.workers._POLL_SECONDS", 0.5)
    tiny = make_arrays(60)
    source = Deadly(tiny.name, tiny.split, tiny.classes, tiny.labels, tiny.pixels)
    message = refusal(WorkerError, {"train": source}, tmp_path / "copy", PackOptions(workers=2))
    assert "SIGKILL" in message
    assert "data.workers=0" in message
    counts: list[int] = []
    pack({"train": tiny}, tmp_path / "copy", PackOptions(), counts.append)
    assert counts[0] == 16


# Where it may not go, and disks.


def test_a_target_that_is_there(photos, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    for name in ("other", "file", "photos"):
        message = refusal(UsageError, splits(photos), tmp_path / name)
        assert message == f"{tmp_path / name}: there is something already. Choose a folder that is not there."
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert len(pack(splits(photos), tmp_path / "empty", PackOptions())["train"]) == 20


def test_two_at_once(photos, tmp_path):
    def meddle(_count: int) -> None:
        with pytest.raises(UsageError, match="is being made by another process"):
            pack(splits(photos), tmp_path / "copy", PackOptions())

    assert len(pack(splits(photos), tmp_path / "copy", PackOptions(), meddle)["train"]) == 20
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []


@pytest.mark.parametrize("split", ["train[:90%]", "train[5:]"])
def test_a_part_is_no_split_to_open_again(photos, tmp_path, split):
    assert refusal(UsageError, {split: open_data(photos, split)}, tmp_path / "copy") == (
        f"the split to pack is '{split}'; wanted a whole one. "
        f"Pack the whole split; '{split}' can then be taken of the copy."
    )


def test_a_place_where_nothing_can_be_made(photos, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert f"{tmp_path}/file/.copy.lock: could not be written" in refusal(
        DiskError, splits(photos), tmp_path / "file" / "copy"
    )


def test_a_target_inside_the_data(photos, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(photos)
    monkeypatch.chdir(photos)
    for target in (photos / "copy", photos / "train" / "copy", tmp_path / "link" / "copy", Path("copy")):
        message = refusal(UsageError, splits(photos), target)
        assert message == (
            f"{target}: it would lie inside the data, {photos}. Choose a place outside: data is never touched."
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PackOptions(short_side=0), "short_side is 0; wanted a whole number from 1"),
        (PackOptions(quality=0), "quality is 0; wanted a number from 1 to 100"),
        (PackOptions(quality=101), "quality is 101; wanted"),
    ],
)
def test_settings_that_cannot_be(photos, tmp_path, options, message):
    assert message in refusal(UsageError, splits(photos), tmp_path / "copy", options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]


def test_the_size_is_estimated(photos, tmp_path, monkeypatch):
    sources = splits(photos)
    pack(sources, tmp_path / "copy", OPTIONS)
    exact = sum((tmp_path / "copy" / f"{split}.pixels").stat().st_size for split in sources)
    assert estimate_bytes(sources, OPTIONS) == exact
    monkeypatch.setattr(packing, "_SAMPLE", 4)
    assert 0.5 * exact < estimate_bytes(sources, OPTIONS) < 2 * exact


def test_a_disk_that_is_too_small_is_known_before(photos, tmp_path, monkeypatch):
    needed = estimate_bytes(splits(photos), OPTIONS)
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: SimpleNamespace(free=needed - 1))
    message = refusal(DiskError, splits(photos), tmp_path / "copy")
    assert message.startswith(f"{tmp_path}: the copy needs about 0.0 GB and 0.0 GB are free. Choose a smaller")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: SimpleNamespace(free=needed))
    assert len(pack(splits(photos), tmp_path / "copy", OPTIONS)["train"]) == 20


def test_what_is_there_already_needs_no_more_space(photos, tmp_path, monkeypatch):
    partial = interrupt(splits(photos), tmp_path / "copy", OPTIONS, 15)
    there = (partial / "train.pixels").stat().st_size
    free = estimate_bytes(splits(photos), OPTIONS) - there
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: SimpleNamespace(free=free))
    assert len(pack(splits(photos), tmp_path / "copy", OPTIONS)["train"]) == 20


def test_a_disk_that_fills_up_on_the_way(photos, tmp_path, unbroken):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        message = refusal(DiskError, splits(photos), tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert message == (
        f"{tmp_path}/.copy.partial/train.pixels: could not be written (File too large). "
        "Free some space; the same command then goes on where it stopped."
    )
    counts: list[int] = []
    pack(splits(photos), tmp_path / "copy", OPTIONS, counts.append)
    assert counts[0] > 0
    assert contents(tmp_path / "copy") == unbroken


def test_a_disk_that_gives_back_something_else(photos, tmp_path, unbroken):
    partial = interrupt(splits(photos), tmp_path / "copy", OPTIONS, 13)
    with (partial / "train.pixels").open("r+b") as file:
        file.seek(100)
        file.write(b"\0\1\2\3")
    message = refusal(DiskError, splits(photos), tmp_path / "copy")
    assert "train.pixels: image 0: 1 images read back differ from what was written. Run the same command" in message
    assert not (tmp_path / "copy").exists()
    pack(splits(photos), tmp_path / "copy", OPTIONS)
    assert contents(tmp_path / "copy") == unbroken
