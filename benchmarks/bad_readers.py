"""Read a folder with one library as its users do, and tell what truly happened: run by bad_images.py."""

import json
import logging
import multiprocessing
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

_SECONDS = 60


@dataclass
class Outcome:
    """What a library did with one folder; an error is [type, message]."""

    opening: list[str] | None = None
    """The error at opening, if any."""
    classes: list[str] | None = None
    """The classes it found; none where it gives no labels."""
    listed: bool = False
    """Whether it lists the special file."""
    before: list[str] | None = None
    """The error of a check that comes before training."""
    reading: list[str] | None = None
    """The error when the special file is read."""
    label: str | None = None
    size: tuple[int, int] | None = None
    mean: float | None = None
    frames: int | None = None
    """How many frames it says there are."""
    images: int = 0
    """How many it lists."""
    warned: list[str] = field(default_factory=list)
    """Warnings that its user sees."""
    logged: list[str] = field(default_factory=list)
    """Lines in the log from warnings upwards."""
    seconds: float = 0.0
    """To read the special file."""
    megabytes: float = 0.0
    """By which reading it raised the peak of the memory."""


@dataclass(frozen=True)
class Opened:
    """A data set of some library behind one face."""

    classes: list[str] | None
    paths: list[str]
    read: Callable[[int], tuple[Image.Image, str | None, int | None]]
    """An image, its class, and the number of frames where it is told."""
    check: Callable[[], None] = lambda: None
    """What the library offers to run before training."""


def _torchvision(folder: Path) -> Opened:
    from torchvision.datasets import ImageFolder

    data = ImageFolder(str(folder))

    def read(index: int) -> tuple[Image.Image, str | None, int | None]:
        image, number = data[index]
        return image, data.classes[number], None

    return Opened(data.classes, [path for path, _ in data.samples], read)


def _timm(folder: Path) -> Opened:
    from timm.data import create_dataset

    data: Any = create_dataset("", root=str(folder), split="train")
    names = sorted(data.reader.class_to_idx, key=data.reader.class_to_idx.get)

    def read(index: int) -> tuple[Image.Image, str | None, int | None]:
        image, number = data[index]
        return image, names[number], None

    return Opened(names, data.filenames(absolute=True), read)


def _huggingface(folder: Path) -> Opened:
    import datasets

    data: Any = datasets.load_dataset("imagefolder", data_dir=str(folder), split="train")
    label = data.features.get("label")
    raw = data.cast_column("image", datasets.Image(decode=False))

    def read(index: int) -> tuple[Image.Image, str | None, int | None]:
        row = data[index]
        # The library leaves the mode alone; its examples convert like this.
        return row["image"].convert("RGB"), None if label is None else label.names[row["label"]], None

    return Opened(None if label is None else list(label.names), [row["path"] for row in raw["image"]], read)


def _vitrail(folder: Path) -> Opened:
    from vitrail.config import DecodePolicy
    from vitrail.data.check import preflight
    from vitrail.data.decoding.decode import decode
    from vitrail.data.sources.folder import open_folder

    source = open_folder(folder)

    def read(index: int) -> tuple[Image.Image, str | None, int | None]:
        decoded = decode(source.read(index), where=source.where(index))
        return decoded.image, source.classes[source.labels.classes_of(index)[0]], decoded.frames

    def check() -> None:
        preflight(source, policy=DecodePolicy(), workers=0)

    return Opened(list(source.classes), [source.where(index) for index in range(len(source))], read, check)


READERS = {"torchvision": _torchvision, "timm": _timm, "datasets": _huggingface, "vitrail": _vitrail}


def observe(library: str, folder: Path, file: str) -> Outcome:
    """Open the folder, run the library's own check, and read the special file."""
    outcome = Outcome()
    lines = logging.Handler(logging.WARNING)
    lines.emit = lambda record: outcome.logged.append(record.getMessage())
    logging.getLogger().addHandler(lines)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Python hides these from users.
        for hidden in (ResourceWarning, DeprecationWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", hidden)
        _observe(outcome, library, folder, file)
    outcome.warned = [str(warning.message) for warning in caught]
    return outcome


def _observe(outcome: Outcome, library: str, folder: Path, file: str) -> None:
    try:
        opened = READERS[library](folder)
    except Exception as error:
        outcome.opening = _told(error)
        return
    outcome.classes, outcome.images = opened.classes, len(opened.paths)
    try:
        opened.check()
    except Exception as error:
        outcome.before = _told(error)
    places = [index for index, path in enumerate(opened.paths) if file and path.endswith(file)]
    outcome.listed = bool(places)
    if not places:
        return
    # Whatever is imported on first use is no part of what this file costs.
    opened.read((places[0] + 1) % len(opened.paths))
    image, before, start = None, _peak(), time.perf_counter()
    try:
        image, outcome.label, outcome.frames = opened.read(places[0])
    except Exception as error:
        outcome.reading = _told(error)
    outcome.seconds, outcome.megabytes = time.perf_counter() - start, (_peak() - before) / 1e6
    if image is not None:
        outcome.size = image.size
        outcome.mean = float(np.asarray(image.reduce(10) if image.width > 10_000 else image).mean()) / 255


def _told(error: BaseException) -> list[str]:
    # Some libraries put the cause behind a message of their own.
    causes = [str(each) for each in (error, error.__cause__, error.__context__) if each is not None]
    return [type(error).__name__, " ".join(causes)]


def _peak() -> int:
    """The largest resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _answer(library: str, folder: Path, file: str, pipe: Connection) -> None:
    pipe.send(asdict(observe(library, folder, file)))


def main(library: str, plan: str, target: str) -> None:
    """Observe every folder of the plan, each in a process of its own that is ended after a minute."""
    # Imported once here, and inherited by every process.
    __import__({"vitrail": "vitrail.data.check"}.get(library, library))
    outcomes: dict[str, dict[str, Any] | None] = {}
    context = multiprocessing.get_context("fork")
    for name, (folder, file) in json.loads(Path(plan).read_text(encoding="utf-8")).items():
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(library, Path(folder), file, theirs))
        process.start()
        theirs.close()
        try:
            outcomes[name] = ours.recv() if ours.poll(_SECONDS) else None
        except EOFError:
            outcomes[name] = None
        process.kill()
        process.join()
    Path(target).write_text(json.dumps(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
