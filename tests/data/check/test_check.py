"""Planted faults are found exactly, and a clean folder raises no alarm."""

import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from tests.data.check.scenes import make_folder, scene
from tests.data.pictures import bomb, encoded

from vitrail.config.decoding import DecodePolicy
from vitrail.config.values import to_json
from vitrail.data.check import Findings, check, open_splits
from vitrail.data.open import OpenOptions
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Arrays
from vitrail.errors import DataError, UsageError


def checked(folder: Path, split: str = "all", **options) -> Findings:
    return check(open_splits(folder, split), workers=0, **options)


def paths(groups) -> list[set[str]]:
    return [{Path(place.path).name for place in group.images} for group in groups]


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "data", {"train": 24, "val": 8, "test": 8})


def test_a_clean_folder_raises_no_alarm(clean, watched):
    findings = checked(watched(clean))
    assert findings.splits == {"train": 24, "val": 8, "test": 8}
    assert findings.bad == findings.exact == findings.near == findings.class_faults == findings.strange_names == ()
    assert findings.notes == ()
    assert not findings.has_problems
    assert findings.formats == {"JPEG": 40}
    assert findings.sizes is not None
    assert (findings.sizes.width, findings.sizes.height) == ((72, 72, 72), (64, 64, 64))
    assert [(cell.width <= 72 < 2 * cell.width, cell.images) for cell in findings.sizes.cells] == [(True, 40)]
    assert {one.name: one.images for one in findings.classes} == {
        "cat": {"train": 12, "val": 4, "test": 4},
        "dog": {"train": 12, "val": 4, "test": 4},
    }


BAD = {
    "zero.jpg": (lambda: b"", "the file is empty"),
    "page.jpg": (lambda: b"<html>404</html>", "the content is an HTML page"),
    "text.png": (lambda: b"hello " * 30, "no image we read"),
    "cut.jpg": (lambda: encoded(scene(100), "JPEG")[:-400], "damaged or cut off"),
    "cut.png": (lambda: encoded(scene(101), "PNG")[:-400], "damaged or cut off"),
    "cut.webp": (lambda: encoded(scene(102), "WEBP")[:-200], "damaged or cut off"),
    "bomb.png": (lambda: bomb(10_000), "wanted at most 89,478,485 (max_pixels)"),
    "line.png": (lambda: encoded(Image.new("L", (1, 5000)), "PNG"), "1 x 5,000 pixels"),
    "flat.png": (lambda: encoded(Image.new("L", (5000, 2)), "PNG"), "5,000 x 2 pixels"),
    "float.tif": (lambda: encoded(Image.fromarray(np.ones((40, 40), np.float32)), "TIFF"), "floating-point"),
}


def test_bad_files_are_listed_with_path_and_reason(clean, watched):
    for name, (content, _) in BAD.items():
        (clean / "train" / "dog" / name).write_bytes(content())
    (clean / "train" / "dog" / "dead.jpg").symlink_to("nowhere.jpg")
    (clean / "train" / "dog" / "loop.jpg").symlink_to("loop.jpg")
    findings = checked(watched(clean))
    told = {Path(one.image.path).name: one for one in findings.bad}
    assert told.keys() == {*BAD, "dead.jpg", "loop.jpg"}
    for name, (_, reason) in BAD.items():
        assert reason in told[name].reason
        assert str(clean) not in told[name].reason
        assert told[name].image.path == str(clean / "train" / "dog" / name)
        assert (told[name].image.split, told[name].image.labels) == ("train", ("dog",))
    assert told["dead.jpg"].reason == "the link leads nowhere"
    assert told["loop.jpg"].reason.startswith("the link fails")
    assert findings.has_problems
    assert findings.exact == findings.near == ()
    assert findings.splits["train"] == 24 + 12


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_listed(clean):
    path = clean / "train" / "cat" / "0000.jpg"
    path.chmod(0)
    (one,) = checked(clean).bad
    assert "Permission denied" in one.reason


def test_the_limit_on_pixels_can_be_set(clean):
    (clean / "train" / "dog" / "large.png").write_bytes(encoded(scene(7, (400, 300)), "PNG"))
    (one,) = checked(clean, policy=DecodePolicy(max_pixels=100_000)).bad
    assert "400 x 300" in one.reason
    assert checked(clean).bad == ()


def test_odd_files_that_can_be_read_are_fine(clean, watched):
    home = clean / "train" / "cat"
    deep = Image.fromarray(np.asarray(scene(200).convert("L")).astype(np.uint16) * 257)
    turned = Image.Exif()
    turned[0x0112] = 6
    files = {
        "deep.png": encoded(deep, "PNG"),
        "cmyk.jpg": encoded(scene(201).convert("CMYK"), "JPEG"),
        "alpha.png": encoded(scene(202).convert("LA"), "PNG"),
        "png-inside.jpg": encoded(scene(203), "PNG"),
        "turned.jpg": encoded(scene(204), "JPEG", exif=turned),
        "exif.jpg": encoded(scene(205), "JPEG", exif=b"Exif\0\0II*\0\xff\xff"),
    }
    for name, content in files.items():
        (home / name).write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        findings = checked(watched(clean))
    assert not findings.has_problems
    assert findings.splits["train"] == 30


def test_animations_and_pages_are_counted(clean):
    frames = [scene(300 + number) for number in range(3)]
    for kind, name in (("GIF", "a.gif"), ("WEBP", "b.webp"), ("TIFF", "c.tif")):
        content = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
        (clean / "val" / "cat" / name).write_bytes(content)
    findings = checked(clean)
    assert {Path(place.path).name for place in findings.several_frames} == {"a.gif", "b.webp", "c.tif"}
    assert findings.bad == ()


def plant(clean: Path, source: str, target: str, change=None, kind: str = "JPEG", **options) -> None:
    content = (clean / source).read_bytes()
    if change is not None:
        with Image.open(clean / source) as image:
            content = encoded(change(image), kind, **options)
    (clean / target).parent.mkdir(exist_ok=True)
    (clean / target).write_bytes(content)


def same(image: Image.Image) -> Image.Image:
    return image


def test_copies_across_splits_are_found_in_whatever_way_they_were_made(clean, watched):
    plant(clean, "train/cat/0000.jpg", "val/cat/bytes.jpg")
    plant(clean, "train/dog/0001.jpg", "test/dog/pixels.png", same, "PNG")
    plant(clean, "train/cat/0002.jpg", "test/cat/encoded.jpg", same, quality=60)
    plant(clean, "val/cat/0024.jpg", "test/cat/mirrored.jpg", ImageOps.mirror, quality=90)
    plant(clean, "train/dog/0003.jpg", "val/dog/half.webp", lambda image: ImageOps.scale(image, 0.5), "WEBP")
    findings = checked(watched(clean))
    exact = [{"0000.jpg", "bytes.jpg"}, {"0001.jpg", "pixels.png"}]
    near = [{"0002.jpg", "encoded.jpg"}, {"0003.jpg", "half.webp"}, {"0024.jpg", "mirrored.jpg"}]
    assert paths(findings.exact) == exact
    assert findings.near is not None
    assert paths(findings.near) == near
    assert paths(findings.across) == exact + near
    assert {place.split for place in findings.across[0].images} == {"train", "val"}
    assert findings.within == findings.conflicts == ()
    assert findings.has_problems


def test_an_image_turned_by_exif_is_the_same_as_one_turned_for_good(clean):
    turned = Image.Exif()
    turned[0x0112] = 6
    (clean / "train" / "cat" / "exif.png").write_bytes(encoded(scene(50), "PNG", exif=turned))
    upright = scene(50).transpose(Image.Transpose.ROTATE_270)
    (clean / "val" / "cat" / "upright.png").write_bytes(encoded(upright, "PNG"))
    assert paths(checked(clean).exact) == [{"exif.png", "upright.png"}]


def test_copies_inside_a_split_are_no_problem(clean):
    plant(clean, "train/cat/0000.jpg", "train/cat/again.jpg")
    plant(clean, "train/cat/0002.jpg", "train/cat/encoded.jpg", same, quality=50)
    findings = checked(clean)
    assert paths(findings.within) == [{"0000.jpg", "again.jpg"}, {"0002.jpg", "encoded.jpg"}]
    assert findings.across == ()
    assert not findings.has_problems


def test_equal_pixels_with_two_labels_are_a_problem(clean):
    plant(clean, "train/cat/0000.jpg", "train/dog/same.jpg")
    findings = checked(clean)
    (group,) = findings.conflicts
    assert {(Path(place.path).name, place.labels) for place in group.images} == {
        ("0000.jpg", ("cat",)),
        ("same.jpg", ("dog",)),
    }
    assert findings.within == ()
    assert findings.has_problems


def test_a_group_with_exact_and_near_copies_is_told_as_both(clean):
    plant(clean, "train/cat/0000.jpg", "train/cat/again.jpg")
    plant(clean, "train/cat/0000.jpg", "val/cat/encoded.jpg", same, quality=50)
    findings = checked(clean)
    assert paths(findings.exact) == [{"0000.jpg", "again.jpg"}]
    assert findings.near is not None
    assert paths(findings.near) == [{"0000.jpg", "again.jpg", "encoded.jpg"}]


def test_near_copies_need_not_be_looked_for(clean):
    plant(clean, "train/cat/0000.jpg", "val/cat/bytes.jpg")
    plant(clean, "train/cat/0002.jpg", "val/cat/encoded.jpg", same, quality=50)
    findings = checked(clean, near=False)
    assert findings.near is None
    assert paths(findings.across) == [{"0000.jpg", "bytes.jpg"}]


def test_workers_find_what_one_process_finds(clean):
    for name, (content, _) in BAD.items():
        (clean / "train" / "dog" / name).write_bytes(content())
    plant(clean, "train/cat/0000.jpg", "val/cat/encoded.jpg", same, quality=60)
    splits, done = open_splits(clean), []
    assert check(splits, workers=2, advance=done.append) == check(splits, workers=0)
    assert sum(done) == sum(map(len, splits.values()))


def test_a_class_that_training_does_not_know_is_a_finding(clean):
    plant(clean, "val/cat/0024.jpg", "val/zebra/z.jpg", ImageOps.invert)
    findings = checked(clean)
    (fault,) = findings.class_faults
    assert (fault.name, fault.split, fault.reason) == ("zebra", "val", "is not a class of train")
    assert {one.name: one.images for one in findings.classes}["zebra"] == {"train": 0, "val": 1, "test": 0}
    assert {one.name: one.images for one in findings.classes}["cat"] == {"train": 12, "val": 4, "test": 4}
    assert findings.splits["val"] == 9
    assert findings.has_problems


def test_an_unknown_class_may_be_empty(clean):
    (clean / "val" / "zebra").mkdir()
    (fault,) = checked(clean).class_faults
    assert (fault.name, fault.split) == ("zebra", "val")


def test_an_empty_class_is_a_finding_unless_allowed(clean):
    (clean / "train" / "empty").mkdir()
    (fault,) = checked(clean).class_faults
    assert (fault.name, fault.reason) == ("empty", "has no images")
    assert checked(clean, allow_empty=True).class_faults == ()


def test_notes_say_what_is_odd_about_classes(tmp_path):
    folder = make_folder(tmp_path / "data", {"train": 20}, ("many",))
    make_folder(folder / "train", {"": 1}, ("one",))
    make_folder(folder / "val", {"": 2}, ("many",))
    (folder / "train" / ".cache").mkdir()
    notes = " ".join(checked(folder).notes)
    assert ".cache was ignored" in notes
    assert "train is uneven: 20 images of 'many', 1 of 'one'." in notes
    assert "the class 'one' has no image in val." in notes
    val = checked(folder, "val")
    assert val.notes == ("the class 'one' has no image in val.",)
    assert not val.has_problems
    assert any("the class 'one' has one image in train" in note for note in checked(folder, "train").notes)
    single = make_folder(tmp_path / "single", {"train": 2}, ("only",))
    assert checked(single).notes == ("there is one class, 'only': nothing to tell apart.",)


def test_strange_names_are_told(clean):
    os.link(clean / "train/cat/0000.jpg", clean / "train/cat/ front.jpg")
    (clean / "train/cat/0000.jpg").unlink()
    (strange,) = checked(clean).strange_names
    assert (strange.path, strange.reason) == ("train/cat/ front.jpg", "begins or ends with a space")


def test_pixels_in_memory_can_be_checked():
    pixels = np.stack([np.asarray(scene(number)) for number in (0, 1, 2, 0)])
    train = Arrays("arrays", "train", ("a", "b"), Labels.of([0, 1, 0, 1], 2), pixels)
    findings = check({"train": train}, workers=4)
    assert findings.formats == {"pixels": 4}
    (group,) = findings.conflicts
    assert [place.path for place in group.images] == ["arrays, train image 0", "arrays, train image 3"]


def test_several_labels_are_compared_as_sets():
    pixels = np.stack([np.asarray(scene(0))] * 3)
    labels = [[0, 1], [1, 0], []]
    same_sets = Arrays("multi", "train", ("a", "b"), Labels.of_many(labels[:2], 2), pixels[:2])
    assert check({"train": same_sets}).conflicts == ()
    other = Arrays("multi", "train", ("a", "b"), Labels.of_many(labels, 2), pixels)
    assert len(check({"train": other}).conflicts) == 1


def test_everything_is_plain_json(clean):
    import json

    plant(clean, "train/cat/0000.jpg", "val/dog/bytes.jpg")
    (clean / "train" / "cat" / "empty.jpg").write_bytes(b"")
    told = json.loads(json.dumps(to_json(checked(clean))))
    assert told["bad"][0]["reason"].startswith("the file is empty")
    assert told["exact"][0]["across_splits"] is True
    assert told["exact"][0]["labels_differ"] is True
    assert told["near"] == []


def test_nothing_that_can_be_decoded():
    none = Arrays("none", "train", ("a",), Labels.of([], 1), np.zeros((0, 4, 4), np.uint8))
    findings = check({"train": none}, allow_empty=True)
    assert findings.sizes is None
    assert findings.images == 0
    with pytest.raises(UsageError, match="no splits"):
        check({})


class TestOpening:
    def test_all_takes_the_splits_that_are_there(self, tmp_path, clean):
        assert list(open_splits(clean)) == ["train", "val", "test"]
        assert list(open_splits(clean, "val")) == ["val"]
        assert len(open_splits(clean, "train[:50%]")["train[:50%]"]) == 12
        assert list(open_splits(make_folder(tmp_path / "flat", {"": 4}))) == ["train"]
        assert list(open_splits(make_folder(tmp_path / "only", {"test": 4}))) == ["test"]

    def test_a_table(self, clean):
        rows = ["path,label,split", "train/cat/0000.jpg,cat,train", "val/cat/0024.jpg,cat,val"]
        (clean / "table.csv").write_text("\n".join(rows))
        assert {split: len(source) for split, source in open_splits(clean / "table.csv").items()} == {
            "train": 1,
            "val": 1,
        }

    def test_notes_are_kept_and_not_printed(self, clean):
        (clean / "train" / "__MACOSX").mkdir()
        assert "__MACOSX was ignored" in open_splits(clean)["train"].notes[0]

    def test_what_cannot_be_opened_is_an_error(self, tmp_path, clean):
        (tmp_path / "bare").mkdir()
        with pytest.raises(DataError, match="no class folders"):
            open_splits(tmp_path / "bare")
        shutil.rmtree(clean / "val" / "cat")
        shutil.rmtree(clean / "val" / "dog")
        with pytest.raises(DataError, match="no class folders"):
            open_splits(clean)

    def test_a_home_folder_can_be_written_with_a_tilde(self, clean, monkeypatch):
        monkeypatch.setenv("HOME", str(clean.parent))
        plant(clean, "val/cat/0024.jpg", "val/zebra/z.jpg")
        assert set(open_splits("~/data", options=OpenOptions())) == {"train", "val", "test"}
