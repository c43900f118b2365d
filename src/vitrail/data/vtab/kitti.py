"""KITTI: how far the closest vehicle is, with whole videos in each pool as TFDS has them."""

from pathlib import Path

import numpy as np

from vitrail.data.sources.files import Files, shown
from vitrail.data.sources.labels import Labels
from vitrail.data.vtab.pools import Listed, Pools, ordered
from vitrail.data.vtab.tasks import Task
from vitrail.data.vtab.thresholds import class_of_distance
from vitrail.errors import DataError

_VEHICLES = ("Car", "Van", "Truck")
_NO_VEHICLE = 1000.0
_THRESHOLDS = (-100.0, 8.0, 20.0, 999.0)
_NAMES = ("up to 8 m", "8 to 20 m", "more than 20 m", "no vehicle")
_COLUMNS = 15
_DEPTH = 13
# Those of TFDS: a tenth of the videos each, drawn with this seed.
_SEED = 123


def open_kitti(task: Task, root: Path, download: bool) -> Pools:
    """The test images have no labels, so some videos of the training images are for testing."""
    home = root / "Kitti" / "raw"
    # Other names, such as the ._000000.txt that macOS leaves, are no label files.
    paths = sorted(path for path in (home / "training" / "label_2").glob("*.txt") if path.stem.isdecimal())
    numbers = [closest_vehicle(path) for path in paths]
    names = [f"{path.stem}.png" for path in paths]
    labels = Labels.of(np.array(numbers, dtype=np.int64), len(_NAMES))
    whole = Listed(Files(task.name, "all", _NAMES, labels, home / "training" / "image_2", names), names)
    pools = video_pools(home / "mapping")
    train, val, test = (
        np.array([index for index, path in enumerate(paths) if int(path.stem) in pool], dtype=np.int64)
        for pool in pools
    )
    return Pools(whole, ordered("kitti", whole, train), ordered("kitti", whole, val), whole, test)


def closest_vehicle(path: Path) -> int:
    """The class of an image, from its label file: a line per object, with the depth in metres in column 14."""
    try:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        depths = [float(row[_DEPTH]) for row in rows if row[0] in _VEHICLES]
    except (OSError, ValueError, IndexError) as error:
        raise DataError(
            f"the labels cannot be read ({error})", wanted=f"{_COLUMNS} columns in each line", where=shown(str(path))
        ) from None
    return class_of_distance(min([*depths, _NO_VEHICLE]), _THRESHOLDS, shown(str(path)))


def video_pools(mapping: Path) -> tuple[set[int], set[int], set[int]]:
    """Which images are for training, selection and test: no video is in two of them."""
    order, lines = mapping / "train_rand.txt", mapping / "train_mapping.txt"
    try:
        places = [int(word) - 1 for word in order.read_text(encoding="utf-8").replace("\n", "").split(",")]
        videos = [line.split(" ")[1] for line in lines.read_text(encoding="utf-8").splitlines()]
        images: dict[str, list[int]] = {}
        for image, place in enumerate(places):
            images.setdefault(videos[place], []).append(image)
    except (OSError, ValueError, IndexError) as error:
        raise DataError(
            f"the videos cannot be read ({error})",
            wanted="mapping/train_rand.txt and mapping/train_mapping.txt of devkit_object.zip",
            where=shown(str(mapping)),
        ) from None
    some = max(1, len(images) // 10)
    # The generator of old, because the choice was made with it.
    random = np.random.RandomState(_SEED)
    test = set(random.choice(sorted(images), some, replace=False).tolist())
    val = set(random.choice(sorted(set(images) - test), some, replace=False).tolist())
    return (
        {image for video, found in images.items() if video not in test | val for image in found},
        {image for video in val for image in images[video]},
        {image for video in test for image in images[video]},
    )
