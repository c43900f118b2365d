"""Data sets by name: small trees laid out as the real ones, read through torchvision's own readers."""

import dataclasses
import gzip
import hashlib
import http.server
import json
import os
import pickle
import re
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from torchvision import datasets

from vitrail.data.sources.named import NAMED, open_named
from vitrail.data.sources.source import Source
from vitrail.errors import DataError, DiskError, Notice, UsageError


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VITRAIL_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def opened(name: str, split: str, root: Path, **options: Any) -> Source:
    """Open a small copy, of which it is told that it is small."""
    with pytest.warns(Notice, match=rf"^{name}, .* images are here, of "):
        return open_named(name, split, root=root, **options)


def refusal(name: str, split: str, root: Path, kind: type[Exception] = DataError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        open_named(name, split, root=root, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    return message


def file(path: Path) -> None:
    """A file that says where it lies, so that a test can see which one was read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)


def seen(source: Source) -> list[tuple[str, str]]:
    return [
        (bytes(source.read(index)).decode(), source.classes[source.labels.classes_of(index)[0]])
        for index in range(len(source))
    ]


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def idx(folder: Path, prefix: str, pixels: np.ndarray, labels: list[int], pack: bool = False) -> None:
    """The files of MNIST: a magic number with type and rank, the shape, then bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images", pixels), ("labels", np.array(labels, dtype=np.uint8))):
        header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        content = header + array.astype(np.uint8).tobytes()
        name = f"{prefix}-{kind}-idx{array.ndim}-ubyte"
        if pack:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def mnist(folder: Path, pack: bool = False) -> np.ndarray:
    pixels = np.arange(3 * 28 * 28).reshape(3, 28, 28).astype(np.uint8)
    idx(folder, "train", pixels, [5, 0, 9], pack)
    idx(folder, "t10k", pixels[:2], [7, 7], pack)
    return pixels


@pytest.mark.parametrize(
    ("name", "reader", "first"),
    [("mnist", "MNIST", "5"), ("fashion-mnist", "FashionMNIST", "Sandal"), ("kmnist", "KMNIST", "ha")],
)
def test_mnist_and_its_family(root, name, reader, first):
    pixels = mnist(root / reader / "raw")
    source = opened(name, "train", root)
    assert np.array_equal(source.read(1), pixels[1])
    assert source.classes[source.labels.values[0]] == first
    assert len(source.classes) == 10
    assert opened(name, "test", root).labels.values.tolist() == [7, 7]
    assert (source.name, source.split, source.where(2)) == (name, "train", f"{name}, train image 2")
    again = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert again.digest() == source.digest() != opened(name, "test", root).digest()


def test_one_set_of_digits_has_the_classes_of_another(root):
    mnist(root / "MNIST" / "raw")
    assert opened("mnist", "train", root).classes == open_named("digits", "train").classes


def cifar(folder: Path, monkeypatch, hundred: bool = False) -> np.ndarray:
    reader = datasets.CIFAR100 if hundred else datasets.CIFAR10
    home = folder / reader.base_folder
    home.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    names = [f"class {number}" for number in range(100 if hundred else 10)]
    parts = {"train_list": slice(0, 3), "test_list": slice(3, 4)}
    for attribute, chosen in parts.items():
        key = "fine_labels" if hundred else "labels"
        batch = {"data": pixels[chosen].reshape(-1, 3072), key: [2, 0, 9, 1][chosen]}
        path = home / attribute
        path.write_bytes(pickle.dumps(batch))
        monkeypatch.setattr(reader, attribute, [[path.name, md5(path)]])
    meta = {**reader.meta, "filename": "meta"}
    (home / "meta").write_bytes(pickle.dumps({meta["key"]: names}))
    monkeypatch.setattr(reader, "meta", {**meta, "md5": md5(home / "meta")})
    return pixels


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar(root, monkeypatch, name):
    pixels = cifar(root, monkeypatch, name == "cifar100")
    source = opened(name, "train", root)
    assert np.array_equal(source.read(2), pixels[2].transpose(1, 2, 0))
    assert source.read(0).flags["C_CONTIGUOUS"]
    assert (source.labels.values.tolist(), source.classes[2]) == ([2, 0, 9], "class 2")
    assert np.array_equal(opened(name, "test", root).read(0), pixels[3].transpose(1, 2, 0))


class Bomb:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("file_name", ["train_list", "test_list", "meta"])
def test_a_cifar_file_that_is_not_the_published_one_is_not_unpickled(root, monkeypatch, file_name):
    cifar(root, monkeypatch)
    home = root / "cifar-10-batches-py"
    (home / file_name).write_bytes(pickle.dumps(Bomb(str(root / "executed"))))
    message = refusal("cifar10", "train", root)
    assert message.startswith(f"{home}: CIFAR-10 is incomplete or damaged (Dataset ")
    assert message.endswith("not found or corrupted). Remove it and fetch it again with data.download=True.")
    assert not (root / "executed").exists()


def test_svhn(root, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 3), dtype=np.uint8)
    scipy.io.savemat(root / "train_32x32.mat", {"X": pixels, "y": np.array([[10], [1], [9]], dtype=np.uint8)})
    listed = ["http://127.0.0.1:9/x", "train_32x32.mat", md5(root / "train_32x32.mat")]
    monkeypatch.setattr(datasets.SVHN, "split_list", {**datasets.SVHN.split_list, "train": listed})
    source = opened("svhn", "train", root)
    assert [np.array_equal(source.read(index), pixels[..., index]) for index in range(3)] == [True] * 3
    assert [source.classes[number] for number in source.labels.values] == ["0", "1", "9"]
    assert f"{root}/test_32x32.mat: SVHN is not there; wanted the files of 'test'" in refusal("svhn", "test", root)


def test_stl10(root, monkeypatch):
    home = root / "stl10_binary"
    home.mkdir()
    # Stored by channel, then column, then row.
    pixels = np.random.default_rng(0).integers(0, 256, (2, 96, 96, 3), dtype=np.uint8)
    for split in ("train", "test"):
        (home / f"{split}_X.bin").write_bytes(pixels.transpose(0, 3, 2, 1).tobytes())
        (home / f"{split}_y.bin").write_bytes(bytes([1, 10]))
    (home / "unlabeled_X.bin").write_bytes(b"")
    for attribute in ("train_list", "test_list"):
        names = [name for name, _ in getattr(datasets.STL10, attribute)]
        monkeypatch.setattr(datasets.STL10, attribute, [[name, md5(home / name)] for name in names])
    assert "there are 0 classes; wanted 10" in refusal("stl10", "train", root)
    (home / "class_names.txt").write_text("".join(f"thing {number}\n" for number in range(10)))
    source = opened("stl10", "test", root)
    assert np.array_equal(source.read(1), pixels[1])
    assert [source.classes[number] for number in source.labels.values] == ["thing 0", "thing 9"]


def flowers(root: Path, monkeypatch) -> None:
    home = root / "flowers-102"
    home.mkdir()
    for number in range(1, 7):
        file(home / "jpg" / f"image_{number:05}.jpg")
    scipy.io.savemat(home / "imagelabels.mat", {"labels": [1, 2, 102, 1, 2, 3]})
    scipy.io.savemat(home / "setid.mat", {"trnid": [2, 3], "valid": [1, 6], "tstid": [4, 5]})
    listed = {
        key: (name, md5(home / name) if (home / name).exists() else digest)
        for key, (name, digest) in datasets.Flowers102._file_dict.items()
    }
    monkeypatch.setattr(datasets.Flowers102, "_file_dict", listed)


def test_flowers_and_two_splits_together(root, monkeypatch):
    flowers(root, monkeypatch)
    train = [("image_00002.jpg", "hard-leaved pocket orchid"), ("image_00003.jpg", "blackberry lily")]
    val = [("image_00001.jpg", "pink primrose"), ("image_00006.jpg", "canterbury bells")]
    assert seen(opened("flowers102", "train", root)) == train
    assert seen(opened("flowers102", "validation", root)) == val
    both = opened("flowers102", "train+val", root)
    assert (seen(both), both.split) == (train + val, "train+val")
    assert len(set(both.classes)) == 102
    with pytest.warns(Notice, match=r"train\+val: 4 images are here, of 2,040 in Oxford Flowers-102"):
        open_named("flowers102", "train+val", root=root)
    assert both.where(0) == f"{root}/flowers-102/jpg/image_00002.jpg"


def pets(root: Path, breeds: int = 37) -> None:
    home = root / "oxford-iiit-pet"
    (home / "annotations").mkdir(parents=True)
    for split, image in (("trainval", 1), ("test", 2)):
        lines = []
        for number in reversed(range(breeds)):
            stem = f"{'Cat' if number % 2 else 'great_dog'}_kind{number:02}_{image}"
            file(home / "images" / f"{stem}.jpg")
            lines.append(f"{stem} {number + 1} {number % 2 + 1} 1\n")
        (home / "annotations" / f"{split}.txt").write_text("".join(lines))


def test_pets(root):
    pets(root)
    source = opened("oxford-pets", "train", root)
    assert len(source) == 37
    assert seen(source)[0] == ("great_dog_kind36_1.jpg", "Great Dog Kind36")
    assert seen(source)[-2:] == [("Cat_kind01_1.jpg", "Cat Kind01"), ("great_dog_kind00_1.jpg", "Great Dog Kind00")]
    assert seen(opened("oxford-pets", "test", root))[0] == ("great_dog_kind36_2.jpg", "Great Dog Kind36")
    assert "there is no 'val' part; it has train, test. Take a part" in refusal("oxford-pets", "val", root)
    again = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert (again.digest(), again.read(3)) == (source.digest(), source.read(3))


def test_a_set_with_a_class_missing(root):
    pets(root, breeds=36)
    assert f"{root}/oxford-iiit-pet: there are 36 classes; wanted 37. Fetch it again" in refusal(
        "oxford-pets", "train", root
    )


def test_a_set_whose_lists_are_damaged(root):
    pets(root)
    (root / "oxford-iiit-pet" / "annotations" / "trainval.txt").write_text("one two\n")
    message = refusal("oxford-pets", "train", root)
    assert message.startswith(f"{root}/oxford-iiit-pet: Oxford-IIIT Pets is incomplete or damaged (not enough values")


def test_a_torchvision_that_keeps_its_lists_elsewhere(root, monkeypatch):
    pets(root)
    monkeypatch.setattr(datasets, "OxfordIIITPet", lambda root, **options: object())
    message = refusal("oxford-pets", "train", root)
    assert (
        "torchvision" in message
        and "no longer says which files Oxford-IIIT Pets has. Install an earlier release" in message
    )


def test_dtd(root):
    home = root / "dtd" / "dtd"
    textures = [f"texture{number:02}" for number in range(47)]
    (home / "labels").mkdir(parents=True)
    for split in ("train", "val", "test"):
        for texture in textures:
            file(home / "images" / texture / f"{texture}_{split}.jpg")
        lines = [f"{texture}/{texture}_{split}.jpg\n" for texture in reversed(textures)]
        (home / "labels" / f"{split}1.txt").write_text("".join(lines))
    assert seen(opened("dtd", "val", root))[:2] == [(f"{name}_val.jpg", name) for name in ("texture46", "texture45")]
    assert len(opened("dtd", "train+val", root)) == 94


def test_food(root):
    home = root / "food-101"
    (home / "meta").mkdir(parents=True)
    dishes = [f"dish{number:03}" for number in range(101)]
    for split in ("train", "test"):
        for dish in dishes:
            file(home / "images" / dish / f"{split}-{dish}.jpg")
        listed = {dish: [f"{dish}/{split}-{dish}"] for dish in reversed(dishes)}
        (home / "meta" / f"{split}.json").write_text(json.dumps(listed))
    assert seen(opened("food101", "test", root))[:2] == [(f"test-{dish}.jpg", dish) for dish in ("dish100", "dish099")]


def test_cars(root):
    home = root / "stanford_cars"
    (home / "devkit").mkdir(parents=True)
    names = [f"car {number}" for number in range(196)]
    kinds = [("fname", object), ("class", object)]
    scipy.io.savemat(home / "devkit" / "cars_meta.mat", {"class_names": np.array(names, dtype=object)})
    listed = np.array([("a.jpg", 196), ("b.jpg", 1)], dtype=kinds)
    for split, path in (
        ("train", home / "devkit" / "cars_train_annos.mat"),
        ("test", home / "cars_test_annos_withlabels.mat"),
    ):
        scipy.io.savemat(path, {"annotations": listed})
        for image in ("a.jpg", "b.jpg"):
            file(home / f"cars_{split}" / image)
    for split in ("train", "test"):
        source = opened("stanford-cars", split, root)
        assert seen(source) == [("a.jpg", "car 195"), ("b.jpg", "car 0")]
        assert source.where(0) == f"{root}/stanford_cars/cars_{split}/a.jpg"


def test_aircraft(root):
    home = root / "fgvc-aircraft-2013b" / "data"
    (home / "images").mkdir(parents=True)
    variants = [f"plane-{number} x" for number in range(100)]
    (home / "variants.txt").write_text("".join(f"{name}\n" for name in variants))
    for split, number in (("train", "0001"), ("val", "0002"), ("test", "0003")):
        file(home / "images" / f"{number}.jpg")
        (home / f"images_variant_{split}.txt").write_text(f"{number} plane-7 x\n")
    assert seen(opened("fgvc-aircraft", "train+val", root)) == [("0001.jpg", "plane-7 x"), ("0002.jpg", "plane-7 x")]


def test_traffic_signs(root):
    home = root / "gtsrb"
    for number in range(43):
        file(home / "GTSRB" / "Training" / f"{number:05}" / f"{number}.ppm")
    file(home / "GTSRB" / "Final_Test" / "Images" / "00000.ppm")
    (home / "GT-final_test.csv").write_text("Filename;Width;ClassId\n00000.ppm;53;16\n")
    assert seen(opened("gtsrb", "train", root))[-1] == ("42.ppm", "42")
    assert seen(opened("gtsrb", "test", root)) == [("00000.ppm", "16")]


def test_country_and_rendered_reviews(root):
    countries = [f"C{number:03}" for number in range(211)]
    for folder in ("train", "valid", "test"):
        for country in countries:
            file(root / "country211" / folder / country / f"{country}-{folder}.jpg")
        for kind in ("negative", "positive"):
            file(root / "rendered-sst2" / folder / kind / f"{kind}-{folder}.png")
    assert seen(opened("country211", "val", root))[210] == ("C210-valid.jpg", "C210")
    assert len(opened("country211", "train+val", root)) == 422
    assert seen(opened("rendered-sst2", "val", root)) == [
        ("negative-valid.png", "negative"),
        ("positive-valid.png", "positive"),
    ]


def own(name: str, split: str, root: Path) -> Source:
    with pytest.warns(Notice) as told:
        source = open_named(name, split, root=root)
    assert ["has no official split; this is our own: " in str(notice.message) for notice in told] == [True, False]
    assert [str(notice.message) for notice in told] == list(source.notes)
    return source


def test_eurosat_is_split_in_proportion(root):
    kinds = [f"Land{number}" for number in range(10)]
    for kind in kinds:
        for image in range(10):
            file(root / "eurosat" / "2750" / kind / f"{kind}_{image}.jpg")
    parts = {split: seen(own("eurosat", split, root)) for split in ("train", "val", "test")}
    assert {split: len(part) for split, part in parts.items()} == {"train": 60, "val": 20, "test": 20}
    assert len({name for part in parts.values() for name, _ in part}) == 100
    assert all(name.startswith(f"{kind}_") for part in parts.values() for name, kind in part)
    for kind in kinds:
        assert abs([found for _, found in parts["train"]].count(kind) - 6) <= 1
    both = own("eurosat", "train+val", root)
    assert sorted(seen(both)) == sorted(parts["train"] + parts["val"])
    assert both.notes[0] == (
        "EuroSAT has no official split; this is our own: 60 % train, 20 % val, 20 % test, every class in proportion."
    )
    assert (both.name, both.split) == ("eurosat", "train+val")


def test_caltech_has_no_class_of_backgrounds(root):
    home = root / "caltech101" / "101_ObjectCategories"
    file(home / "BACKGROUND_Google" / "image_0001.jpg")
    for number in range(101):
        for image in range(1, 6):
            file(home / f"thing{number:03}" / f"image_{image:04}.jpg")
    train, test = own("caltech101", "train", root), own("caltech101", "test", root)
    assert (len(train), len(test)) == (404, 101)
    assert train.classes == test.classes == tuple(f"thing{number:03}" for number in range(101))
    places = [source.where(index) for source in (train, test) for index in range(len(source))]
    assert len(set(places)) == 505
    assert all(f"/{train.classes[number]}/" in train.where(index) for index, number in enumerate(train.labels.values))


def test_scenes_come_in_an_order_that_no_disk_decides(root, monkeypatch):
    home = root / "SUN397"
    names = [f"/{chr(97 + number % 26)}/scene{number:03}" for number in range(396)] + ["/a/attic/inside"]
    for name in names:
        for image in range(2):
            file(home / name[1:] / f"sun_{name[3:].replace('/', '')}{image}.jpg")
    (home / "ClassName.txt").write_text("".join(f"{name}\n" for name in names))
    first = own("sun397", "train", root)
    assert "attic/inside" in first.classes
    assert all(text == f"sun_{kind.replace('/', '')}{text[-5]}.jpg" for text, kind in seen(first))
    rglob = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: reversed(list(rglob(self, pattern))))
    second = own("sun397", "train", root)
    assert second.digest() == first.digest()
    assert [second.where(index) for index in range(9)] == [first.where(index) for index in range(9)]


@pytest.fixture
def small_imagenet(monkeypatch) -> None:
    monkeypatch.setitem(
        NAMED, "imagenet", dataclasses.replace(NAMED["imagenet"], classes=3, images={"train": 6, "val": 3})
    )


def imagenet(home: Path, wnids: tuple[str, ...] = ("n03126707", "n02012849", "n01440764")) -> None:
    for wnid in wnids:
        file(home / "train" / wnid / f"{wnid}_1.JPEG")
        file(home / "train" / wnid / f"{wnid}_2.JPEG")
        file(home / "val" / wnid / f"val_{wnid}.JPEG")


@pytest.mark.usefixtures("small_imagenet")
@pytest.mark.parametrize("inside", ["imagenet", "."])
def test_imagenet_as_class_folders(root, inside):
    imagenet(root / inside)
    train, val = (open_named("imagenet", split, root=root) for split in ("train", "val"))
    assert train.classes == ("n01440764", "n02012849", "n03126707")
    assert (train.name, len(train)) == ("imagenet", 6)
    assert seen(val)[0] == ("val_n01440764.JPEG", "n01440764")
    assert "there is no 'test' part; it has train, val" in refusal("imagenet", "test", root)
    assert "there is no 'train+val' part" in refusal("imagenet", "train+val", root)


@pytest.mark.usefixtures("small_imagenet")
def test_names_for_people_where_the_file_with_them_is(root):
    imagenet(root)
    path = root / "LOC_synset_mapping.txt"
    path.write_text("n01440764 tench, Tinca tinca\nn02012849 crane\nn03126707 crane\n")
    source = open_named("imagenet", "val", root=root)
    assert source.classes == ("tench, Tinca tinca", "crane (n02012849)", "crane (n03126707)")
    assert seen(source)[2] == ("val_n03126707.JPEG", "crane (n03126707)")
    path.write_text("n01440764 tench\n")
    assert f"{path}: there is no name for the class 'n02012849'" in refusal("imagenet", "val", root)


def test_imagenet_that_is_not_there_or_not_all_there(root):
    message = refusal("imagenet", "train", root, download=True)
    assert message.startswith(f"{root}/imagenet: ImageNet (ILSVRC-2012) is not there; wanted the files of 'train'")
    assert message.endswith("It cannot be fetched from here; say with data.root where it is.")
    imagenet(root / "imagenet")
    assert f"{root}/imagenet: there are 3 classes; wanted 1,000." in refusal("imagenet", "train", root)


def pcam(root: Path, h5py: Any) -> np.ndarray:
    (root / "pcam").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (4, 96, 96, 3), dtype=np.uint8)
    with h5py.File(root / "pcam" / "camelyonpatch_level_2_split_valid_x.h5", "w") as written:
        written["x"] = pixels
    with h5py.File(root / "pcam" / "camelyonpatch_level_2_split_valid_y.h5", "w") as written:
        written["y"] = np.array([1, 0, 1, 1], dtype=np.uint8).reshape(4, 1, 1, 1)
    return pixels


def test_tissue_is_read_one_image_at_a_time(root):
    pixels = pcam(root, pytest.importorskip("h5py"))
    source = opened("pcam", "val", root)
    assert np.array_equal(source.read(2), pixels[2])
    assert [source.classes[number] for number in source.labels.values] == ["tumor", "normal", "tumor", "tumor"]
    dumped = pickle.dumps(source)
    assert len(dumped) < 2_000
    again = pickle.loads(dumped)  # noqa: S301
    assert np.array_equal(again.read(3), pixels[3])
    assert again.digest() == source.digest()
    assert source.where(1) == f"{root}/pcam/camelyonpatch_level_2_split_valid_x.h5: x[1]"
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(source.read(1), pixels[1]) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(source.read(0), pixels[0])


def test_a_damaged_hdf5_file(root):
    pcam(root, pytest.importorskip("h5py"))
    path = root / "pcam" / "camelyonpatch_level_2_split_valid_y.h5"
    path.write_bytes(path.read_bytes()[:100])
    assert f"{path}: the file is missing, damaged or cut off" in refusal("pcam", "val", root)


def test_tissue_without_the_package_for_it(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert refusal("pcam", "train", root, UsageError) == ("HDF5 files need the package 'h5py'. Run `pip install h5py`.")


def test_the_embedded_digits_need_no_files(root):
    train, test = (open_named("digits", split, root=root) for split in ("train", "test"))
    assert (len(train), len(test)) == (1_438, 359)
    assert "digits: there is no 'val' part; it has train, test" in refusal("digits", "val", root)
    assert list(root.iterdir()) == []


def test_where_files_are_looked_for(tmp_path, monkeypatch):
    assert f"{tmp_path}/cache/datasets/MNIST: MNIST is not there" in refusal("mnist", "train", None)
    monkeypatch.setenv("VITRAIL_DATA", str(tmp_path / "mine"))
    assert f"{tmp_path}/mine/MNIST: MNIST is not there" in refusal("mnist", "train", None)
    assert f"{tmp_path}/given/MNIST: MNIST is not there" in refusal("mnist", "train", tmp_path / "given")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert f"{tmp_path}/home/data/MNIST: MNIST is not there" in refusal("mnist", "train", Path("~/data"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name, row in NAMED.items() if row.kind not in ("embedded", "hdf5")])
def test_nothing_is_fetched_or_made_unless_asked_for(root, monkeypatch, name):
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("the network was used"))
    message = refusal(name, "train", root)
    size = NAMED[name].megabytes
    if NAMED[name].can_download:
        assert "Pass data.download=True to fetch it" in message
        assert size is None or f"(about {size:,} MB)" in message
    assert str(root) in message
    assert list(root.iterdir()) == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch) -> Iterator[Path]:
    """MNIST on a server of this machine."""
    folder = tmp_path / "mirror"
    mnist(folder, pack=True)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: Quiet(*arguments, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setattr(datasets.MNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
    listed = [(name, md5(folder / name)) for name, _ in datasets.MNIST.resources]
    monkeypatch.setattr(datasets.MNIST, "resources", listed)
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_download_that_was_asked_for(root, mirror, capsys):
    source = opened("mnist", "train", root, download=True)
    assert source.labels.values.tolist() == [5, 0, 9]
    assert capsys.readouterr().out == ""
    for path in mirror.iterdir():
        path.unlink()
    assert len(opened("mnist", "test", root, download=True)) == 2
    assert len(opened("mnist", "test", root)) == 2


def test_a_download_that_is_not_what_was_published(root, mirror):
    (mirror / "train-images-idx3-ubyte.gz").write_bytes(b"<html>sign in</html>")
    message = refusal("mnist", "train", root, download=True)
    assert message.startswith(f"{root}/MNIST: MNIST could not be fetched or read (File not found or corrupted)")
    assert message.endswith(f"Check the network, or bring its files to {root}.")


@pytest.mark.parametrize(
    ("name", "reader", "attribute", "value"),
    [
        ("mnist", "MNIST", "mirrors", ["http://127.0.0.1:9/"]),
        ("cifar10", "CIFAR10", "url", "http://127.0.0.1:9/cifar.tar.gz"),
        ("dtd", "DTD", "_URL", "http://127.0.0.1:9/dtd.tar.gz"),
    ],
)
def test_no_network(root, monkeypatch, name, reader, attribute, value):
    monkeypatch.setattr(getattr(datasets, reader), attribute, value)
    message = refusal(name, "train", root, download=True)
    assert re.search(r"could not be fetched or read \(urlopen error \[Errno \d+\] Connection refused\)", message)
    assert "Check the network" in message


def test_no_space_for_a_download(root, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(datasets.MNIST, "download", full)
    message = refusal("mnist", "train", root, DiskError, download=True)
    assert message == f"{root}/MNIST: MNIST could not be written (No space left on device). Free some space."


def test_damaged_idx_files(root):
    mnist(root / "MNIST" / "raw")
    path = root / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-5])
    assert f"{root}/MNIST: MNIST is incomplete or damaged (" in refusal("mnist", "train", root)
    path.unlink()
    assert "MNIST is incomplete or damaged (Dataset not found)" in refusal("mnist", "train", root)


def test_images_and_labels_that_do_not_match(root):
    raw = root / "MNIST" / "raw"
    mnist(raw)
    header = struct.pack(">HBBI", 0, 8, 1, 2)
    (raw / "train-labels-idx1-ubyte").write_bytes(header + bytes([1, 2]))
    assert "3 images and 2 labels; wanted as many" in refusal("mnist", "train", root)
    (raw / "train-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, 3) + bytes([1, 2, 10]))
    assert "the labels go from 1 to 10; wanted 0 to 9" in refusal("mnist", "train", root)


@pytest.mark.parametrize(
    ("name", "near"), [("cifarr10", "cifar10"), ("CIFAR-10", "cifar10"), ("oxford-pet", "oxford-pets")]
)
def test_a_name_that_is_almost_right(root, name, near):
    assert refusal(name, "train", root, UsageError) == f"Unknown data set {name!r}. Did you mean {near!r}?"


@pytest.mark.parametrize("name", ["./mnist", "data/mnist", "mnist.csv", "C:\\mnist", "my photos"])
def test_what_must_be_a_path(root, name):
    message = refusal(name, "train", root)
    assert message.startswith(f"{name}: there is no such folder or file; wanted a folder of class folders, a .csv")
    assert "hf:owner/name" in message and "wds:path/*.tar" in message and "`vitrail list datasets`" in message


def test_the_table_of_names():
    for key, row in NAMED.items():
        assert row.key == key
        assert next(iter(row.images)) == "train"
        assert (row.kind == "unsplit") == bool(row.shares)
        assert not row.reader or hasattr(datasets, row.reader)
        assert row.class_names is None or len(row.class_names) == row.classes
        if row.shares:
            assert list(row.shares) == list(row.images)
            total = sum(row.images.values())
            assert [
                round(stop * total / 100) - round(start * total / 100) for start, stop in row.shares.values()
            ] == list(row.images.values())
