"""Who reads which task: torchvision's readers where it has them, class folders, and the formats of their authors."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vitrail.data.sources.files import Files, in_one_spelling
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.named import open_named
from vitrail.data.sources.source import Part, Source, whole_of
from vitrail.data.sources.strings import Strings
from vitrail.data.vtab.clevr import open_clevr
from vitrail.data.vtab.dmlab import open_dmlab
from vitrail.data.vtab.dsprites import open_dsprites
from vitrail.data.vtab.kitti import open_kitti
from vitrail.data.vtab.pools import Listed, Pools, by_path, held_back, official, ordered, shared_out
from vitrail.data.vtab.retinopathy import open_retinopathy
from vitrail.data.vtab.smallnorb import open_smallnorb
from vitrail.data.vtab.tasks import Task
from vitrail.errors import Notice

Reader = Callable[[Task, Path, bool], Pools]

_CALTECH_LEARNT = 30
# It cannot be decoded the same way everywhere, so that TFDS leaves it out.
_SUN_BAD = "c/church/outdoor/sun_bhenjvsvrtumjuri.jpg"


def _read_caltech(task: Task, root: Path, download: bool) -> Pools:
    """30 images of each of 102 classes; torchvision fetches all of them, but knows 101."""
    home = root / "caltech101" / "101_ObjectCategories"
    if download and not home.is_dir():
        _named("caltech101", "train", root, download)
    whole = by_path(open_folder(home), parts=2)
    order, taken = ordered(task.name, whole), np.zeros(len(whole.source), dtype=bool)
    classes = whole.source.labels.values[order]
    for number in range(len(whole.source.classes)):
        taken[order[classes == number][:_CALTECH_LEARNT]] = True
    learnt = order[taken[order]]
    cut = 90 * len(learnt) // 100
    return Pools(whole, learnt[:cut], learnt[cut:], whole, np.flatnonzero(~taken))


def _read_sun(task: Task, root: Path, download: bool) -> Pools:
    files = whole_of(_named("sun397", "train", root, download))
    assert isinstance(files, Files)
    ids = [in_one_spelling(path).partition("SUN397/")[2] for path in files.paths]
    good = np.array([index for index, name in enumerate(ids) if name != _SUN_BAD], dtype=np.int64)
    return shared_out(task.name, Listed(Part(files, good, "all"), Strings(ids[index] for index in good)), 70, 10)


def _read_eurosat(task: Task, root: Path, download: bool) -> Pools:
    return shared_out(task.name, by_path(whole_of(_named("eurosat", "train", root, download))), 60, 20)


def _read_resisc(task: Task, root: Path, download: bool) -> Pools:
    return shared_out(task.name, by_path(open_folder(root / "NWPU-RESISC45")), 60, 20)


def _split_of(name: str, percent: int) -> Reader:
    """A named data set that has no part to choose on."""

    def read(task: Task, root: Path, download: bool) -> Pools:
        train, test = (by_path(_named(name, split, root, download)) for split in ("train", "test"))
        return held_back(task.name, train, percent, test)

    return read


def _official(name: str, parts: int = 1) -> Reader:
    """A named data set with three official splits; an image is known by so many parts of its path."""

    def read(task: Task, root: Path, download: bool) -> Pools:
        splits = (by_path(_named(name, split, root, download), parts) for split in ("train", "val", "test"))
        return official(task.name, *splits)

    return read


READERS: dict[str, Reader] = {
    "caltech101": _read_caltech,
    "cifar100": _split_of("cifar100", 90),
    "dtd": _official("dtd", parts=2),
    "flowers102": _official("flowers102"),
    "oxford-pets": _split_of("oxford-pets", 80),
    "sun397": _read_sun,
    "svhn": _split_of("svhn", 90),
    "patch-camelyon": _official("pcam"),
    "eurosat": _read_eurosat,
    "resisc45": _read_resisc,
    "retinopathy": open_retinopathy,
    "clevr-count": open_clevr,
    "clevr-distance": open_clevr,
    "dmlab": open_dmlab,
    "dsprites-location": open_dsprites,
    "dsprites-orientation": open_dsprites,
    "kitti-distance": open_kitti,
    "snorb-azimuth": open_smallnorb,
    "snorb-elevation": open_smallnorb,
}


def _named(name: str, split: str, root: Path, download: bool) -> Source:
    with warnings.catch_warnings():
        # What is told of its own splits and sizes is not true of ours, which are told by the task.
        warnings.simplefilter("ignore", Notice)
        return open_named(name, split, root=root, download=download)
