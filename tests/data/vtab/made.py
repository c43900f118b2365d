"""Small data sets for all 19 tasks, in the formats and at the places of the real ones."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import scipy.io
from tests.data.sources.test_named import cifar, file, flowers, md5, pets
from torchvision import datasets

from vitrail.data.vtab.tfrecord import masked_crc

Make = Callable[[Path, object], None]


def class_folders(home: Path, names: list[str], each: int, ending: str) -> None:
    for name in names:
        for number in range(each):
            file(home / name / f"{name.rpartition('/')[2]}_{number:03d}{ending}")


def make_caltech(root: Path, patch) -> None:
    home = root / "caltech101" / "101_ObjectCategories"
    class_folders(home, ["BACKGROUND_Google", *(f"thing{number:03d}" for number in range(101))], 2, ".jpg")
    class_folders(home, ["thing000"], 40, ".jpg")


def make_cifar(root: Path, patch) -> None:
    cifar(root, patch, hundred=True)
    home = root / "cifar-100-python"
    # The names that the real files have.
    for old, new in (("train_list", "train"), ("test_list", "test")):
        (home / old).rename(home / new)
        patch.setattr(datasets.CIFAR100, old, [[new, md5(home / new)]])


def make_dtd(root: Path, patch) -> None:
    home = root / "dtd" / "dtd"
    textures = [f"texture{number:02}" for number in range(47)]
    (home / "labels").mkdir(parents=True)
    for split in ("train", "val", "test"):
        for texture in textures:
            file(home / "images" / texture / f"{texture}_{split}.jpg")
        (home / "labels" / f"{split}1.txt").write_text("".join(f"{name}/{name}_{split}.jpg\n" for name in textures))


def make_pets(root: Path, patch) -> None:
    pets(root)


def make_sun(root: Path, patch) -> None:
    names = [f"/{chr(97 + number % 26)}/scene{number:03}" for number in range(396)] + ["/c/church/outdoor"]
    for name in names:
        file(root / "SUN397" / name[1:] / f"sun_{name[3:].replace('/', '')}.jpg")
    file(root / "SUN397" / "c/church/outdoor/sun_bhenjvsvrtumjuri.jpg")
    (root / "SUN397" / "ClassName.txt").write_text("".join(f"{name}\n" for name in names))


def make_svhn(root: Path, patch) -> None:
    listed = dict(datasets.SVHN.split_list)
    for split in ("train", "test"):
        pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 10), dtype=np.uint8)
        path = root / f"{split}_32x32.mat"
        # A nought is stored as ten.
        scipy.io.savemat(path, {"X": pixels, "y": np.arange(1, 11, dtype=np.uint8)[:, None]})
        listed[split] = ["http://127.0.0.1:9/x", path.name, md5(path)]
    patch.setattr(datasets.SVHN, "split_list", listed)


def make_camelyon(root: Path, patch) -> None:
    home = root / "pcam"
    home.mkdir()
    listed = {}
    for split, ours in (("train", "train"), ("valid", "val"), ("test", "test")):
        names = {kind: f"camelyonpatch_level_2_split_{split}_{kind}.h5" for kind in ("x", "y")}
        with h5py.File(home / names["x"], "w") as stored:
            stored["x"] = np.full((4, 96, 96, 3), ord(split[0]), dtype=np.uint8)
        with h5py.File(home / names["y"], "w") as stored:
            stored["y"] = np.array([0, 1, 1, 0], dtype=np.uint8).reshape(4, 1, 1, 1)
        listed[ours] = {
            "images": (names["x"], "id", md5(home / names["x"])),
            "targets": (names["y"], "id", md5(home / names["y"])),
        }
    patch.setattr(datasets.PCAM, "_FILES", listed)


def make_eurosat(root: Path, patch) -> None:
    class_folders(root / "eurosat" / "2750", [f"Land{number}" for number in range(10)], 5, ".jpg")


def make_resisc(root: Path, patch) -> None:
    class_folders(root / "NWPU-RESISC45", [f"scene{number:02d}" for number in range(45)], 2, ".jpg")


def make_retinopathy(root: Path, patch) -> None:
    home = root / "retinopathy"
    for eye in range(5):
        file(home / "btgraham-300" / "train" / f"{eye}_left.jpeg")
        file(home / "btgraham-300" / "test" / f"{eye}_right.jpeg")
    levels = "".join(f"{eye}_left,{4 - eye}\n" for eye in range(5))
    (home / "trainLabels.csv").write_text(f"image,level\n{levels}")
    usage = "".join(f"{eye}_right,{eye},{'Public' if eye < 2 else 'Private'}\n" for eye in range(5))
    (home / "retinopathy_solution.csv").write_text(f"image,level,Usage\n{usage}")


DEPTHS = (7.0, 8.0, 8.25, 8.75, 9.25, 9.75, 10.0, 10.5, 12.0, 9.0)


def make_clevr(root: Path, patch) -> None:
    home = root / "clevr" / "CLEVR_v1.0"
    for split in ("train", "val"):
        scenes = []
        for number, depth in enumerate(DEPTHS):
            name = f"CLEVR_{split}_{number:06d}.png"
            file(home / "images" / split / name)
            others = [{"pixel_coords": [1, 2, 50.0]}] * (2 + number % 8)
            scenes.append({"image_filename": name, "objects": [*others, {"pixel_coords": [1, 2, depth]}]})
        (home / "scenes").mkdir(exist_ok=True)
        (home / "scenes" / f"CLEVR_{split}_scenes.json").write_text(json.dumps({"scenes": scenes[::-1]}))


def varint(value: int) -> bytes:
    made = b""
    while value >= 0x80:
        made, value = made + bytes([value & 0x7F | 0x80]), value >> 7
    return made + bytes([value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(image: bytes, name: str, label: int, packed: bool = True) -> bytes:
    """A tf.train.Example, put together by the rules of protocol buffers."""
    integers = field(1, varint(label)) if packed else varint(1 << 3) + varint(label)
    features = {
        "label": field(3, integers),
        "image": field(1, field(1, image)),
        "filename": field(1, field(1, name.encode())),
    }
    return field(1, b"".join(field(1, field(1, key.encode()) + field(2, value)) for key, value in features.items()))


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc(length)) + content + struct.pack("<I", masked_crc(content))


def make_dmlab(root: Path, patch) -> None:
    home = root / "dmlab"
    home.mkdir()
    for split in ("train", "validation", "test"):
        for shard in range(2):
            records = [
                record(example(f"{split} {shard} {number}".encode() * 20, f"{split}{shard}{number}.jpg", number, shard))
                for number in range(6)
            ]
            (home / f"dmlab-{split}.tfrecord-0000{shard}-of-00002").write_bytes(b"".join(records))


def make_dsprites(root: Path, patch) -> None:
    path = root / "dsprites" / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
    path.parent.mkdir()
    count = 40
    images = np.zeros((count, 64, 64), dtype=np.uint8)
    images[np.arange(count), np.arange(count), 3] = 1
    latents = np.zeros((count, 6), dtype=np.int64)
    latents[:, 3], latents[:, 4] = np.arange(count), np.arange(count) % 32
    # The real file has such an entry, which is never unpickled.
    metadata = np.array({"author": "someone"}, dtype=object)
    np.savez_compressed(path, imgs=images, latents_classes=latents, metadata=metadata)


def make_kitti(root: Path, patch) -> None:
    home = root / "Kitti" / "raw"
    rows = {
        "car": "Car 0.00 0 1.85 387.63 181.54 423.81 203.12 1.67 1.87 3.69 -16.53 2.39 {} 1.57",
        "walker": "Pedestrian 0.00 0 1.85 387.63 181.54 423.81 203.12 1.67 1.87 3.69 -16.53 2.39 {} 1.57",
        "nothing": "DontCare -1 -1 -10 503.89 169.71 590.61 190.13 -1 -1 -1 -1000 -1000 {} -10",
    }
    labels = [
        [("car", 30), ("car", 8.0)],
        [("car", 8.01), ("walker", 2)],
        [("car", 20.5)],
        [("walker", 3), ("nothing", -1000)],
        [],
    ]
    (home / "training" / "label_2").mkdir(parents=True)
    for number in range(30):
        lines = [rows[kind].format(depth) for kind, depth in labels[number % 5]]
        (home / "training" / "label_2" / f"{number:06d}.txt").write_text("".join(f"{line}\n" for line in lines))
        file(home / "training" / "image_2" / f"{number:06d}.png")
    (home / "mapping").mkdir()
    # Ten videos of three images; the order says on which line an image is.
    videos = "".join(f"2011_09_26 2011_09_26_drive_{number // 3:04d}_sync 0000000{number}\n" for number in range(30))
    (home / "mapping" / "train_mapping.txt").write_text(videos)
    (home / "mapping" / "train_rand.txt").write_text(",".join(str(30 - number) for number in range(30)) + "\n")


def matrix(path: Path, values: np.ndarray) -> None:
    """The format of small NORB: magic, rank, at least three sizes, values."""
    magic = {1: 0x1E3D4C55, 4: 0x1E3D4C54}[values.dtype.itemsize]
    sizes = [*values.shape, *[1] * (3 - values.ndim)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f"<II{len(sizes)}i", magic, values.ndim, *sizes) + values.tobytes())


def make_norb(root: Path, patch) -> None:
    for objects, part in (("46789", "training"), ("01235", "testing")):
        stem = root / "smallnorb" / f"smallnorb-5x{objects}x9x18x6x2x96x96-{part}"
        images = np.arange(36, dtype=np.uint8)[:, None, None, None] + np.zeros((36, 2, 96, 96), dtype=np.uint8)
        images[:, 1] = 255
        info = np.zeros((36, 4), dtype="<i4")
        info[:, 1], info[:, 2] = np.arange(36) % 9, 2 * (np.arange(36) % 18)
        matrix(Path(f"{stem}-dat.mat"), images)
        matrix(Path(f"{stem}-info.mat"), info)


def make_flowers(root: Path, patch) -> None:
    flowers(root, patch)


MAKE: dict[str, Make] = {
    "caltech101": make_caltech,
    "cifar100": make_cifar,
    "dtd": make_dtd,
    "flowers102": make_flowers,
    "oxford-pets": make_pets,
    "sun397": make_sun,
    "svhn": make_svhn,
    "patch-camelyon": make_camelyon,
    "eurosat": make_eurosat,
    "resisc45": make_resisc,
    "retinopathy": make_retinopathy,
    "clevr-count": make_clevr,
    "clevr-distance": make_clevr,
    "dmlab": make_dmlab,
    "dsprites-location": make_dsprites,
    "dsprites-orientation": make_dsprites,
    "kitti-distance": make_kitti,
    "snorb-azimuth": make_norb,
    "snorb-elevation": make_norb,
}
