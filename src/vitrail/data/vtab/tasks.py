"""The 19 tasks of VTAB-1k (Zhai et al. 2019): what is asked, where the images come from, what is done to them."""

from dataclasses import dataclass
from typing import Any, Literal

Group = Literal["Natural", "Specialized", "Structured"]
GROUPS: tuple[Group, ...] = ("Natural", "Specialized", "Structured")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task; `images` are the whole pools for training, selection and test, of which 800, 200 and all are used."""

    name: str
    group: Group
    column: str
    """What Table 9 (D.10) calls it."""
    classes: int
    images: tuple[int, int, int]
    origin: str
    """Who gives it away."""
    rule: str
    """What the label is."""
    files: tuple[str, ...]
    """What is wanted below the data root; a star stands for many."""
    pools: str
    """How the pools are cut."""
    flip: bool = True
    """Whether an image may be mirrored in training; some labels would no longer be true (BiT, appendix F)."""
    crop: bool = True
    """Whether a random part of it may be taken; some labels need all of it (BiT, appendix F)."""

    @property
    def can_download(self) -> bool:
        """Whether torchvision fetches it."""
        return self.origin == _TORCHVISION


def _task(name: str, group: Group, column: str, classes: int, images: tuple[int, int, int], **more: Any) -> Task:
    return Task(name=name, group=group, column=column, classes=classes, images=images, **more)


_TORCHVISION = "torchvision"
_CLEVR = "clevr/CLEVR_v1.0"
_KITTI = "Kitti/raw"
_NORB = "smallnorb/smallnorb-5x{objects}x9x18x6x2x96x96-{part}-{kind}.mat"
_CLEVR_FILES = tuple(
    f"{_CLEVR}/{name}"
    for split in ("train", "val")
    for name in (f"images/{split}/CLEVR_{split}_*.png", f"scenes/CLEVR_{split}_scenes.json")
)
_NORB_FILES = tuple(
    _NORB.format(objects=objects, part=part, kind=kind)
    for objects, part in (("46789", "training"), ("01235", "testing"))
    for kind in ("dat", "info")
)
_OFFICIAL = "official splits"
_CLEVR_POOLS = "90 % and 10 % of the official train; test is the official val"
_NORB_POOLS = "the official train; test is one half of the official test, selection the other"
_SPRITES_POOLS = "80 %, 10 % and 10 % of all"

_ROWS = (
    _task(
        *("caltech101", "Natural", "Caltech101", 102, (2_754, 306, 6_084)),
        origin=_TORCHVISION,
        rule="the folder, with BACKGROUND_Google as a class",
        files=("caltech101/101_ObjectCategories/*/*.jpg",),
        pools="30 images of each class, 90 % and 10 % of them; test is the rest",
    ),
    _task(
        *("cifar100", "Natural", "CIFAR-100", 100, (45_000, 5_000, 10_000)),
        origin=_TORCHVISION,
        rule="the fine label",
        files=("cifar-100-python/meta", "cifar-100-python/train", "cifar-100-python/test"),
        pools="90 % and 10 % of the official train; test is the official test",
    ),
    _task(
        *("dtd", "Natural", "DTD", 47, (1_880, 1_880, 1_880)),
        origin=_TORCHVISION,
        rule="the texture; partition 1 of ten",
        files=("dtd/dtd/images/*/*.jpg", "dtd/dtd/labels/*1.txt"),
        pools=_OFFICIAL,
    ),
    _task(
        *("flowers102", "Natural", "Flowers102", 102, (1_020, 1_020, 6_149)),
        origin=_TORCHVISION,
        rule="the species",
        files=("flowers-102/jpg/*.jpg", "flowers-102/imagelabels.mat", "flowers-102/setid.mat"),
        pools=_OFFICIAL,
    ),
    _task(
        *("oxford-pets", "Natural", "Pets", 37, (2_944, 736, 3_669)),
        origin=_TORCHVISION,
        rule="the breed",
        files=(
            "oxford-iiit-pet/images/*.jpg",
            "oxford-iiit-pet/annotations/trainval.txt",
            "oxford-iiit-pet/annotations/test.txt",
        ),
        pools="80 % and 20 % of the official trainval; test is the official test",
    ),
    _task(
        *("sun397", "Natural", "Sun397", 397, (76_128, 10_875, 21_750)),
        origin=_TORCHVISION,
        rule="the scene",
        files=("SUN397/ClassName.txt", "SUN397/*/*/*.jpg"),
        pools="70 %, 10 % and 20 % of all",
    ),
    _task(
        *("svhn", "Natural", "SVHN", 10, (65_931, 7_326, 26_032)),
        origin=_TORCHVISION,
        rule="the digit in the middle",
        files=("train_32x32.mat", "test_32x32.mat"),
        pools="90 % and 10 % of the official train; test is the official test",
    ),
    _task(
        *("patch-camelyon", "Specialized", "Camelyon", 2, (262_144, 32_768, 32_768)),
        origin=_TORCHVISION,
        rule="whether the middle holds tumour tissue",
        files=tuple(
            f"pcam/camelyonpatch_level_2_split_{split}_{kind}.h5"
            for split in ("train", "valid", "test")
            for kind in ("x", "y")
        ),
        pools=_OFFICIAL,
    ),
    _task(
        *("eurosat", "Specialized", "EuroSAT", 10, (16_200, 5_400, 5_400)),
        origin=_TORCHVISION,
        rule="the land use; RGB images",
        files=("eurosat/2750/*/*.jpg",),
        pools="60 %, 20 % and 20 % of all",
    ),
    _task(
        *("resisc45", "Specialized", "Resisc45", 45, (18_900, 6_300, 6_300)),
        origin="NWPU-RESISC45.rar of its authors",
        rule="the scene",
        files=("NWPU-RESISC45/*/*.jpg",),
        pools="60 %, 20 % and 20 % of all",
    ),
    _task(
        *("retinopathy", "Specialized", "Retinopathy", 5, (35_126, 10_906, 42_670)),
        origin="Kaggle, diabetic-retinopathy-detection; images must be btgraham-300 already",
        rule="the level of the disease, 0 to 4",
        files=(
            "retinopathy/trainLabels.csv",
            "retinopathy/retinopathy_solution.csv",
            "retinopathy/btgraham-300/train/*.jpeg",
            "retinopathy/btgraham-300/test/*.jpeg",
        ),
        pools="trainLabels.csv, Public and Private rows of retinopathy_solution.csv",
    ),
    _task(
        *("clevr-count", "Structured", "Clevr-Count", 8, (63_000, 7_000, 15_000)),
        origin="CLEVR_v1.0.zip of its authors",
        rule="how many objects there are, 3 to 10",
        files=_CLEVR_FILES,
        pools=_CLEVR_POOLS,
        crop=False,
    ),
    _task(
        *("clevr-distance", "Structured", "Clevr-Dist", 6, (63_000, 7_000, 15_000)),
        origin="CLEVR_v1.0.zip of its authors",
        rule="depth of the closest object (pixel_coords[2]) between 0, 8, 8.5, 9, 9.5, 10, 100",
        files=_CLEVR_FILES,
        pools=_CLEVR_POOLS,
        crop=False,
    ),
    _task(
        *("dmlab", "Structured", "DMLab", 6, (65_550, 22_628, 22_735)),
        origin="dmlab.tar.gz of VTAB's authors",
        rule="the label of its record: how far the object is, and whether it is good",
        files=("dmlab/dmlab-train.tfrecord*", "dmlab/dmlab-validation.tfrecord*", "dmlab/dmlab-test.tfrecord*"),
        pools=_OFFICIAL,
        crop=False,
    ),
    _task(
        *("dsprites-location", "Structured", "dSpr-Loc", 16, (589_824, 73_728, 73_728)),
        origin="deepmind/dsprites-dataset on GitHub",
        rule="x position, 32 values in 16 classes; pixels times 255",
        files=("dsprites/dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",),
        pools=_SPRITES_POOLS,
        flip=False,
        crop=False,
    ),
    _task(
        *("dsprites-orientation", "Structured", "dSpr-Ori", 16, (589_824, 73_728, 73_728)),
        origin="deepmind/dsprites-dataset on GitHub",
        rule="orientation, 40 values in 16 classes; pixels times 255",
        files=("dsprites/dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",),
        pools=_SPRITES_POOLS,
        flip=False,
    ),
    _task(
        *("kitti-distance", "Structured", "KITTI-Dist", 4, (6_347, 423, 711)),
        origin="KITTI object detection: left images, labels, devkit (mapping/)",
        rule="depth of the closest car, van or truck between -100, 8, 20, 999 m, or none",
        files=(
            f"{_KITTI}/training/image_2/*.png",
            f"{_KITTI}/training/label_2/*.txt",
            f"{_KITTI}/mapping/train_rand.txt",
            f"{_KITTI}/mapping/train_mapping.txt",
        ),
        pools="whole videos, the very ones of TFDS",
        crop=False,
    ),
    _task(
        *("snorb-azimuth", "Structured", "sNORB-Azim", 18, (24_300, 12_150, 12_150)),
        origin="NYU, norb-v1.0-small, unpacked with gunzip",
        rule="azimuth, 0 to 340 degrees in steps of 20; the first of both cameras",
        files=_NORB_FILES,
        pools=_NORB_POOLS,
        flip=False,
    ),
    _task(
        *("snorb-elevation", "Structured", "sNORB-Elev", 9, (24_300, 12_150, 12_150)),
        origin="NYU, norb-v1.0-small, unpacked with gunzip",
        rule="elevation, 30 to 70 degrees in steps of 5; the first of both cameras",
        files=_NORB_FILES,
        pools=_NORB_POOLS,
    ),
)

TASKS = {task.name: task for task in _ROWS}
