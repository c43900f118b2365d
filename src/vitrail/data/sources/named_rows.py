"""The data sets that have a name: what they are, how many images each split holds, and who reads them."""

from dataclasses import dataclass, field
from typing import Any, Literal

_DIGITS = tuple(str(digit) for digit in range(10))


@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """One data set; `images` are its splits in full, so that a part of it is noticed."""

    key: str
    name: str
    about: str
    classes: int
    images: dict[str, int]
    kind: Literal["embedded", "folders", "arrays", "files", "unsplit", "hdf5"]
    """What is on the disk: nothing, class folders, whole arrays, files in listed splits, files without, or HDF5."""
    folder: str = ""
    """Where its files are below the data root; {split} stands for the split."""
    megabytes: int | None = None
    """Size of the download, where it is known."""
    can_download: bool = True
    reader: str = ""
    """The class in torchvision.datasets."""
    argument: str = "split"
    """The argument by which that class takes the split."""
    words: dict[str, Any] = field(default_factory=dict)
    """What it calls a split, where not as we do."""
    lists: tuple[str, ...] = ()
    """Its attributes that hold the paths and labels, where no public way leads to them."""
    class_names: tuple[str, ...] | None = None
    """Class names, where the files have none or write them in a way of their own."""
    shares: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Percent of the whole, for a data set without an official split."""


def _flagged(key: str, name: str, about: str, reader: str, folder: str, megabytes: int, **more: Any) -> NamedSet:
    """The older readers of torchvision, which take a flag for the training split."""
    values = {"classes": 10, "images": {"train": 60_000, "test": 10_000}, "kind": "arrays", "argument": "train", **more}
    words = {"train": True, "test": False}
    return NamedSet(
        key=key, name=name, about=about, reader=reader, folder=folder, megabytes=megabytes, words=words, **values
    )


_CIFAR = {"train": 50_000, "test": 10_000}
_80_20 = {"train": (0, 80), "test": (80, 100)}

_ROWS = (
    NamedSet(
        key="digits",
        name="Digits",
        about="handwritten digits, 8x8 grey, embedded",
        classes=10,
        images={"train": 1_438, "test": 359},
        kind="embedded",
        can_download=False,
    ),
    # The names "0" to "9", so that what learnt one set of digits can be measured on another.
    _flagged("mnist", "MNIST", "handwritten digits, 28x28 grey", "MNIST", "MNIST", 12, class_names=_DIGITS),
    _flagged("fashion-mnist", "Fashion-MNIST", "clothes, 28x28 grey", "FashionMNIST", "FashionMNIST", 31),
    _flagged("kmnist", "Kuzushiji-MNIST", "cursive Japanese characters, 28x28 grey", "KMNIST", "KMNIST", 21),
    _flagged("cifar10", "CIFAR-10", "small photos, 32x32", "CIFAR10", "cifar-10-batches-py", 170, images=_CIFAR),
    _flagged(
        *("cifar100", "CIFAR-100", "small photos, 32x32", "CIFAR100", "cifar-100-python", 169),
        classes=100,
        images=_CIFAR,
    ),
    NamedSet(
        key="svhn",
        name="SVHN",
        about="digits of house numbers, 32x32",
        classes=10,
        images={"train": 73_257, "test": 26_032},
        kind="arrays",
        folder="{split}_32x32.mat",
        megabytes=246,
        reader="SVHN",
        class_names=_DIGITS,
    ),
    NamedSet(
        key="flowers102",
        name="Oxford Flowers-102",
        about="flowers by species",
        classes=102,
        images={"train": 1_020, "val": 1_020, "test": 6_149},
        kind="files",
        folder="flowers-102",
        megabytes=345,
        reader="Flowers102",
    ),
    NamedSet(
        key="oxford-pets",
        name="Oxford-IIIT Pets",
        about="cats and dogs by breed; train is the official trainval",
        classes=37,
        images={"train": 3_680, "test": 3_669},
        kind="files",
        folder="oxford-iiit-pet",
        megabytes=811,
        reader="OxfordIIITPet",
        words={"train": "trainval"},
        lists=("_images", "_labels"),
    ),
    NamedSet(
        key="imagenet",
        name="ImageNet (ILSVRC-2012)",
        about="photos; class folders train/n01440764/*.JPEG and val/n01440764/*.JPEG",
        classes=1_000,
        images={"train": 1_281_167, "val": 50_000},
        kind="folders",
        folder="imagenet",
        can_download=False,
    ),
    NamedSet(
        key="eurosat",
        name="EuroSAT",
        about="land seen by satellite, 64x64 RGB; own split 60/20/20",
        classes=10,
        images={"train": 16_200, "val": 5_400, "test": 5_400},
        kind="unsplit",
        folder="eurosat",
        megabytes=94,
        reader="EuroSAT",
        shares={"train": (0, 60), "val": (60, 80), "test": (80, 100)},
    ),
    NamedSet(
        key="dtd",
        name="DTD",
        about="textures; partition 1 of the official ten",
        classes=47,
        images={"train": 1_880, "val": 1_880, "test": 1_880},
        kind="files",
        folder="dtd",
        megabytes=625,
        reader="DTD",
    ),
    NamedSet(
        key="caltech101",
        name="Caltech-101",
        about="objects, without the class of backgrounds; own split 80/20",
        classes=101,
        images={"train": 6_942, "test": 1_735},
        kind="unsplit",
        folder="caltech101",
        megabytes=137,
        reader="Caltech101",
        shares=_80_20,
    ),
    NamedSet(
        key="sun397",
        name="SUN397",
        about="scenes; own split 80/20",
        classes=397,
        images={"train": 87_003, "test": 21_751},
        kind="unsplit",
        folder="SUN397",
        megabytes=39_000,
        reader="SUN397",
        shares=_80_20,
    ),
    NamedSet(
        key="pcam",
        name="PatchCamelyon",
        about="lymph node tissue, 96x96",
        classes=2,
        images={"train": 262_144, "val": 32_768, "test": 32_768},
        kind="hdf5",
        folder="pcam",
        reader="PCAM",
        class_names=("normal", "tumor"),
    ),
    NamedSet(
        key="food101",
        name="Food-101",
        about="dishes",
        classes=101,
        images={"train": 75_750, "test": 25_250},
        kind="files",
        folder="food-101",
        megabytes=4_996,
        reader="Food101",
    ),
    NamedSet(
        key="stanford-cars",
        name="Stanford Cars",
        about="cars by make, model and year",
        classes=196,
        images={"train": 8_144, "test": 8_041},
        kind="files",
        folder="stanford_cars",
        can_download=False,
        reader="StanfordCars",
    ),
    NamedSet(
        key="fgvc-aircraft",
        name="FGVC-Aircraft",
        about="aircraft by variant",
        classes=100,
        images={"train": 3_334, "val": 3_333, "test": 3_333},
        kind="files",
        folder="fgvc-aircraft-2013b",
        megabytes=2_753,
        reader="FGVCAircraft",
    ),
    NamedSet(
        key="stl10",
        name="STL-10",
        about="photos, 96x96; the labelled part",
        classes=10,
        images={"train": 5_000, "test": 8_000},
        kind="arrays",
        folder="stl10_binary",
        megabytes=2_640,
        reader="STL10",
    ),
    NamedSet(
        key="gtsrb",
        name="GTSRB",
        about="German traffic signs",
        classes=43,
        images={"train": 26_640, "test": 12_630},
        kind="files",
        folder="gtsrb",
        megabytes=277,
        reader="GTSRB",
        lists=("_samples",),
        class_names=tuple(str(number) for number in range(43)),
    ),
    NamedSet(
        key="country211",
        name="Country211",
        about="photos by the country they were taken in",
        classes=211,
        images={"train": 31_650, "val": 10_550, "test": 21_100},
        kind="files",
        folder="country211",
        reader="Country211",
        words={"val": "valid"},
    ),
    NamedSet(
        key="rendered-sst2",
        name="Rendered SST-2",
        about="film reviews as pictures of their text, good or bad",
        classes=2,
        images={"train": 6_920, "val": 872, "test": 1_821},
        kind="files",
        folder="rendered-sst2",
        reader="RenderedSST2",
    ),
)

NAMED = {row.key: row for row in _ROWS}
