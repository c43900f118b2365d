"""All 19 tasks on small files in their real formats: labels by the rule, splits apart, nothing written beside them."""

import csv
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.data.vtab.made import DEPTHS, MAKE, example, field, matrix, record

from vitrail.data import OpenOptions, open_data
from vitrail.data.check.origin import holders, identities
from vitrail.data.decoding.decode import decode
from vitrail.data.sources.source import Source
from vitrail.data.vtab.dsprites import sixteenths
from vitrail.data.vtab.kitti import video_pools
from vitrail.data.vtab.open import missing_files, task_split
from vitrail.data.vtab.tasks import GROUPS, TASKS
from vitrail.data.vtab.tfrecord import masked_crc
from vitrail.data.vtab.thresholds import class_of_distance
from vitrail.errors import DataError, DiskError

pytestmark = pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def opened(name: str, split: str, root: Path) -> Source:
    return open_data(f"vtab:{name}", split, options=OpenOptions(root=root))


def by_id(name: str, root: Path) -> dict[str, str]:
    """The class of every image of a task, by its id."""
    split, _ = task_split(name, root=root)
    return {
        listed.ids[index]: listed.source.classes[number]
        for listed in (split.learn, split.measured)
        for index, number in enumerate(listed.source.labels.values.tolist())
    }


def refusal(name: str, root: Path) -> str:
    with pytest.raises(DataError) as caught:
        opened(name, "train", root)
    return str(caught.value)


def test_there_are_nineteen_in_the_order_of_the_paper():
    assert list(TASKS) == list(MAKE)
    assert [task.group for task in TASKS.values()] == [GROUPS[0]] * 7 + [GROUPS[1]] * 4 + [GROUPS[2]] * 8
    # BiT, appendix F.
    assert [name for name, task in TASKS.items() if not task.flip] == [
        *("dsprites-location", "dsprites-orientation", "snorb-azimuth")
    ]
    assert [name for name, task in TASKS.items() if not task.crop] == [
        *("clevr-count", "clevr-distance", "dmlab", "dsprites-location", "kitti-distance")
    ]


@pytest.mark.parametrize("name", MAKE)
def test_every_task_opens(name, root, monkeypatch, watched):
    task = TASKS[name]
    assert set(missing_files(task, root)) == {str(root / pattern) for pattern in task.files}
    message = refusal(name, root)
    assert message.startswith(f"vtab:{name}: {task.column} is not there; wanted ")
    assert all(str(root / pattern) in message for pattern in task.files)
    MAKE[name](root, monkeypatch)
    watched(root)
    assert missing_files(task, root) == []
    parts = {split: opened(name, split, root) for split in ("train", "val", "train+val", "test")}
    assert {len(part.classes) for part in parts.values()} == {task.classes}
    assert len({part.classes for part in parts.values()}) == 1
    places = {split: [part.where(index) for index in range(len(part))] for split, part in parts.items()}
    assert places["train+val"] == places["train"] + places["val"]
    everything = places["train+val"] + places["test"]
    assert all(places.values()) and len(set(everything)) == len(everything)
    assert [parts[split].split for split in parts] == ["train800", "val200", "train1000", "test"]
    for part in parts.values():
        assert part.name == f"vtab:{name}"
        assert any("our own split" in note for note in part.notes)
        assert any("images are here" in note for note in part.notes)
        again = pickle.loads(pickle.dumps(part))  # noqa: S301
        first, second = part.read(0), again.read(0)
        assert np.array_equal(np.asarray(first), np.asarray(second))
        assert again.digest() == part.digest()
        assert len(identities(part)) == len(part)
        assert all(path.is_file() for path in holders(part))
    assert len({part.digest() for part in parts.values()}) == 4


def test_the_background_is_a_class_and_thirty_of_each_are_learnt(root, monkeypatch):
    MAKE["caltech101"](root, monkeypatch)
    assert "BACKGROUND_Google" in opened("caltech101", "train", root).classes
    split, _ = task_split("caltech101", root=root)
    learnt = [name for part in ("train800", "val200") for name in split.ids()[part]]
    assert sum(name.startswith("thing000/") for name in learnt) == 30
    assert len(split.test) == 10
    assert len(split.train) == 90 * (101 * 2 + 30) // 100


def test_labels_of_the_natural_ones(root, monkeypatch):
    for name in ("cifar100", "dtd", "flowers102", "oxford-pets", "sun397", "svhn"):
        MAKE[name](root, monkeypatch)
    assert by_id("cifar100", root)["train_00000"] == "class 2"
    assert by_id("dtd", root)["texture46/texture46_val.jpg"] == "texture46"
    assert by_id("flowers102", root)["image_00003.jpg"] == "blackberry lily"
    assert by_id("oxford-pets", root)["great_dog_kind36_1.jpg"] == "Great Dog Kind36"
    assert by_id("svhn", root)["train_00009"] == "0"
    scenes = by_id("sun397", root)
    assert scenes["c/church/outdoor/sun_churchoutdoor.jpg"] == "church/outdoor"
    # TFDS leaves it out as well.
    assert "c/church/outdoor/sun_bhenjvsvrtumjuri.jpg" not in scenes and len(scenes) == 397


def test_labels_of_the_specialized_ones(root, monkeypatch):
    for name in ("patch-camelyon", "eurosat", "resisc45", "retinopathy"):
        MAKE[name](root, monkeypatch)
    assert [by_id("patch-camelyon", root)[f"val_{index:05d}"] for index in range(4)] == [
        *("normal", "tumor", "tumor", "normal")
    ]
    both = opened("patch-camelyon", "train+val", root)
    assert [int(np.asarray(both.read(index))[0, 0, 0]) for index in range(8)] == [ord("t")] * 4 + [ord("v")] * 4
    assert by_id("eurosat", root)["Land3_004.jpg"] == "Land3"
    assert by_id("resisc45", root)["scene44_001.jpg"] == "scene44"
    eyes = by_id("retinopathy", root)
    assert (eyes["0_left"], eyes["1_right"]) == ("4 proliferative", "1 mild")
    assert [opened("retinopathy", split, root).labels.counts().sum() for split in ("val", "test")] == [2, 3]


def test_clevr_counts_objects_and_measures_the_closest(root, monkeypatch):
    MAKE["clevr-count"](root, monkeypatch)
    counts, distances = by_id("clevr-count", root), by_id("clevr-distance", root)
    names = [f"CLEVR_train_{number:06d}.png" for number in range(len(DEPTHS))]
    assert [counts[name] for name in names] == [f"{3 + number % 8} objects" for number in range(len(DEPTHS))]
    first = ["up to 8", "up to 8", "8 to 8.5", "8.5 to 9", "9 to 9.5", "9.5 to 10", "9.5 to 10"]
    assert [distances[name] for name in names] == [*first, "more than 10", "more than 10", "8.5 to 9"]
    assert {name.split("_")[1] for name in task_split("clevr-count", root=root)[0].ids()["test"]} == {"val"}


@pytest.mark.parametrize("content", ["{", "[]", '{"scenes": 3}', '{"scenes": [{"image_filename": "a"}]}'])
def test_scenes_that_are_none(content, root, monkeypatch):
    MAKE["clevr-count"](root, monkeypatch)
    path = root / "clevr" / "CLEVR_v1.0" / "scenes" / "CLEVR_train_scenes.json"
    path.write_text(content)
    assert refusal("clevr-count", root).startswith(f"{path}: the scenes cannot be read (")


def test_thresholds_are_below_the_class():
    thresholds = (-100.0, 8.0, 20.0, 999.0)
    assert [class_of_distance(value, thresholds, "") for value in (-3, 8, 8.0001, 20, 999, 1000)] == [0, 0, 1, 1, 2, 3]
    with pytest.raises(DataError, match=r"^here: the distance is -100; wanted more than -100\.$"):
        class_of_distance(-100, thresholds, "here")


def test_dmlab_reads_records(root, monkeypatch):
    MAKE["dmlab"](root, monkeypatch)
    assert by_id("dmlab", root)["validation14.jpg"] == "4"
    test = opened("dmlab", "test", root)
    assert sorted(bytes(test.read(index)) for index in range(12)) == sorted(
        f"test {shard} {number}".encode() * 20 for shard in range(2) for number in range(6)
    )
    # The check value of CRC-32C, and TensorFlow's mask of it.
    assert masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xd8\xff no record at all", "this is no TFRecord file, or it is damaged"),
        (record(example(b"x", "a.jpg", 3))[:-7], "the file is cut off"),
        (record(example(b"x", "a.jpg", 3)) + b"12", "the file is cut off"),
        (record(example(b"x", "a.jpg", 6)), "a label is 6; wanted 0 to 5"),
        (record(b""), "a record has nothing; wanted image, filename and label"),
        (record(b"\x0a\xff\x01"), "a record is damaged (a field goes beyond its message)"),
        (record(b"\xff" * 40), "a record is damaged (a number without an end)"),
        (record(b"\x0b"), "a record is damaged (a field of kind 3)"),
        (record(field(1, field(1, field(2, b"")))), "a record is damaged (a value without a name)"),
    ],
)
def test_records_that_are_none(content, reason, root, monkeypatch):
    MAKE["dmlab"](root, monkeypatch)
    (root / "dmlab" / "dmlab-train.tfrecord-00001-of-00002").write_bytes(content)
    assert reason in refusal("dmlab", root)


def test_a_folder_is_no_record_file(root, monkeypatch):
    MAKE["dmlab"](root, monkeypatch)
    (root / "dmlab" / "dmlab-train.tfrecord").mkdir()
    assert refusal("dmlab", root) == f"{root}/dmlab/dmlab-train.tfrecord: the file could not be read (Is a directory)."


def test_sprites_are_white_on_black_in_three_channels(root, monkeypatch):
    MAKE["dsprites-location"](root, monkeypatch)
    places, turns = by_id("dsprites-location", root), by_id("dsprites-orientation", root)
    assert [places[str(index)] for index in (0, 1, 2, 31)] == ["1 of 16", "1 of 16", "2 of 16", "16 of 16"]
    assert [turns[str(index)] for index in (0, 2, 3, 5, 39)] == [f"{number} of 16" for number in (1, 1, 2, 3, 16)]
    split, _ = task_split("dsprites-location", root=root)
    pixels = np.asarray(split.learn.source.read(7))
    assert pixels.shape == (64, 64) and pixels[7, 3] == 255 and pixels.sum() == 255
    shown = np.asarray(decode(pixels, "RGB", where="").image)
    assert shown.shape == (64, 64, 3) and shown[7, 3].tolist() == [255, 255, 255]


def test_sixteenths_are_those_of_the_original():
    assert np.bincount(sixteenths(np.arange(40), 40)).tolist() == [3, 2] * 8
    assert np.bincount(sixteenths(np.arange(32), 32)).tolist() == [2] * 16
    with pytest.raises(ValueError, match="values from 0 to 40, of 40"):
        sixteenths(np.arange(41), 40)


@pytest.fixture
def sprites(root, tmp_path, monkeypatch) -> Path:
    """The file of dSprites, and a cache of its own."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    MAKE["dsprites-location"](root, monkeypatch)
    return next(root.glob(TASKS["dsprites-location"].files[0]))


def refused_sprites(sprites: Path, root: Path) -> None:
    assert refusal("dsprites-location", root).startswith(f"{sprites}: the file is damaged or another one (")
    assert not list((root.parent / "cache").rglob("*.bits"))


@pytest.mark.parametrize("content", [b"", b"PK no archive", b"\x93NUMPY"])
def test_sprites_that_are_none(content, root, sprites):
    sprites.write_bytes(content)
    refused_sprites(sprites, root)


def test_sprites_in_another_file(root, sprites):
    with np.load(sprites, allow_pickle=False) as arrays:
        images, latents = arrays["imgs"], arrays["latents_classes"]
    with sprites.open("wb") as stored:
        np.save(stored, images)
    refused_sprites(sprites, root)
    np.savez(sprites, imgs=images, latents_classes=latents.astype(str))
    refused_sprites(sprites, root)


@pytest.mark.parametrize("entry", ["imgs.npy", "latents_classes.npy"])
@pytest.mark.parametrize("harm", ["encrypted", "packed in another way", "damaged"])
def test_sprites_in_an_odd_archive(harm, entry, root, sprites):
    with zipfile.ZipFile(sprites) as archive:
        found = archive.getinfo(entry)
    content = bytearray(sprites.read_bytes())
    listed = content.rindex(entry.encode()) - 46
    if harm == "encrypted":
        content[found.header_offset + 6] |= 1
        content[listed + 8] |= 1
    elif harm == "packed in another way":
        content[found.header_offset + 8] = content[listed + 10] = 99
    else:
        begin = found.header_offset + 30 + len(entry) + 20
        content[begin : begin + 8] = b"\xff" * 8
    sprites.write_bytes(content)
    refused_sprites(sprites, root)


def test_sprites_that_differ_from_their_checksum(root, sprites):
    with np.load(sprites, allow_pickle=False) as arrays:
        images, latents = arrays["imgs"], arrays["latents_classes"]
    # Not compressed, so that a pixel can be changed behind its back.
    np.savez(sprites, imgs=images, latents_classes=latents)
    content = bytearray(sprites.read_bytes())
    content[content.index(images.tobytes()[:64])] ^= 1
    sprites.write_bytes(content)
    refused_sprites(sprites, root)


def test_the_same_sprites_anew_are_the_same_data(root, sprites, tmp_path):
    before = opened("dsprites-location", "train", root).digest()
    other = sprites.with_name("other")
    other.write_bytes(sprites.read_bytes())
    os.utime(other, (1, 1))
    other.replace(sprites)
    assert opened("dsprites-location", "train", root).digest() == before
    assert len(list((tmp_path / "cache" / "vtab").iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_not_the_fault_of_the_sprites(root, sprites, tmp_path):
    (tmp_path / "cache").write_text("no folder")
    with pytest.raises(DiskError, match=r"cache/vtab/dsprites-.*: could not be written \("):
        opened("dsprites-location", "train", root)


def test_the_closest_vehicle_of_kitti(root, monkeypatch):
    MAKE["kitti-distance"](root, monkeypatch)
    found = by_id("kitti-distance", root)
    wanted = ["up to 8 m", "8 to 20 m", "more than 20 m", "no vehicle", "no vehicle"]
    assert [found[f"{number:06d}.png"] for number in range(30)] == wanted * 6


def test_other_files_beside_the_labels_of_kitti(root, monkeypatch):
    MAKE["kitti-distance"](root, monkeypatch)
    labels = root / "Kitti" / "raw" / "training" / "label_2"
    (labels / "._000000.txt").write_bytes(b"\x00\x05\x16\x07")
    (labels / "readme.txt").write_text("These are labels.")
    assert sorted(by_id("kitti-distance", root)) == [f"{number:06d}.png" for number in range(30)]


def test_no_video_of_kitti_is_in_two_pools(root, monkeypatch):
    MAKE["kitti-distance"](root, monkeypatch)
    train, val, test = video_pools(root / "Kitti" / "raw" / "mapping")
    assert (len(train), len(val), len(test)) == (24, 3, 3)
    # Image i is on line 30 - i, and a video has three lines.
    videos = [{(29 - image) // 3 for image in pool} for pool in (train, val, test)]
    assert not videos[0] & videos[1] and not videos[1] & videos[2] and not videos[0] & videos[2]
    # As numpy's old generator draws them with the seed of TFDS.
    random = np.random.RandomState(123)
    names = [f"2011_09_26_drive_{number:04d}_sync" for number in range(10)]
    drawn = random.choice(names, 1, replace=False)[0]
    assert videos[2] == {names.index(drawn)}


def test_labels_of_kitti_that_are_none(root, monkeypatch):
    MAKE["kitti-distance"](root, monkeypatch)
    path = root / "Kitti" / "raw" / "training" / "label_2" / "000007.txt"
    path.write_text("Car 0.00 0\n")
    assert refusal("kitti-distance", root).startswith(f"{path}: the labels cannot be read (")


def test_norb_is_seen_by_the_first_camera(root, monkeypatch):
    MAKE["snorb-azimuth"](root, monkeypatch)
    azimuths, elevations = by_id("snorb-azimuth", root), by_id("snorb-elevation", root)
    assert (azimuths["train_00017"], elevations["test_00010"]) == ("340 degrees", "35 degrees")
    split, _ = task_split("snorb-azimuth", root=root)
    assert {name[:5] for name in split.ids()["train800"]} == {"train"}
    assert {name[:5] for name in split.ids()["val200"] + split.ids()["test"]} == {"test_"}
    assert (len(split.val), len(split.test)) == (18, 18)
    pixels = np.asarray(split.learn.source.read(40))
    assert pixels.shape == (96, 96) and set(pixels.ravel().tolist()) == {4}


def test_norb_files_that_are_none(root, monkeypatch):
    MAKE["snorb-azimuth"](root, monkeypatch)
    stem = "smallnorb-5x46789x9x18x6x2x96x96-training"
    dat, info = root / "smallnorb" / f"{stem}-dat.mat", root / "smallnorb" / f"{stem}-info.mat"
    whole = dat.read_bytes()
    dat.write_bytes(whole[:-1])
    assert refusal("snorb-azimuth", root) == f"{dat}: the file is cut off."
    dat.write_bytes(b"\x1f\x8b\x08\x00" + bytes(20))
    assert refusal("snorb-azimuth", root).endswith("Unpack the .mat.gz with gunzip.")
    dat.write_bytes(struct.pack("<II", 0x1E3D4C55, 1 << 30) + whole)
    assert "this is no matrix of small NORB" in refusal("snorb-azimuth", root)
    dat.write_bytes(whole)
    matrix(info, np.zeros((3, 4), dtype="<i4"))
    assert "36 images and 3 labels; wanted as many" in refusal("snorb-azimuth", root)
    matrix(info, np.full((36, 4), 99, dtype="<i4"))
    assert "the labels go from 0 to 49; wanted 0 to 17" in refusal("snorb-azimuth", root)


def test_levels_of_retinopathy_that_are_none(root, monkeypatch):
    MAKE["retinopathy"](root, monkeypatch)
    table = root / "retinopathy" / "trainLabels.csv"
    for content in ("image,grade\na,1\n", "image,level\na,one\n", "image,level\na\n"):
        table.write_text(content)
        assert refusal("retinopathy", root).startswith(f"{table}: the table cannot be read (")
    table.write_text("image,level\na,5\n")
    assert "a level is 5 or 5; wanted 0 to 4" in refusal("retinopathy", root)


def test_a_damaged_folder_is_told_by_the_one_that_reads_it(root, monkeypatch):
    MAKE["eurosat"](root, monkeypatch)
    for path in (root / "eurosat" / "2750" / "Land9").iterdir():
        path.unlink()
    (root / "eurosat" / "2750" / "Land9").rmdir()
    assert "there are 9 classes; wanted 10" in refusal("eurosat", root)


def test_a_task_from_a_folder_or_a_table_that_a_user_prepared(root, tmp_path):
    rows = [("path", "label", "split")]
    for split, count in (("train", 5), ("test", 2)):
        for label in range(6):
            for number in range(count):
                path = root / "vtab" / "dmlab" / split / str(label) / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x")
                rows.append((str(path), str(label), split))
    split, notes = task_split("dmlab", root=root)
    # No val, so that a fifth of train is to choose on.
    assert (len(split.train), len(split.val), len(split.test)) == (24, 6, 12)
    assert f"in 80 % and 20 % of train of {root / 'vtab' / 'dmlab'}, which has no val." in notes[0]
    assert "pools of VTAB" not in notes[0]
    with (tmp_path / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    given, _ = task_split(f"dmlab={tmp_path / 'mine.csv'}", root=tmp_path)
    assert len(given.train) == 24
    with pytest.raises(DataError, match="there are 6 classes; wanted 16 for dsprites-location"):
        task_split(f"dsprites-location={tmp_path / 'mine.csv'}", root=tmp_path)
