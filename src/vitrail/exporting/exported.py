"""An exported file, ready to answer: what network it is, how its images are prepared, and the runtime that computes it.

Nothing here needs torch, unless the file is one for torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.config import VitConfig, times
from vitrail.errors import DataError, UsageError, setting
from vitrail.exporting.entries import described_by, export_entry
from vitrail.exporting.onnx_read import open_onnx, read_onnx_entries
from vitrail.exporting.openvino_file import open_openvino, read_openvino_entries
from vitrail.exporting.pt2_file import open_pt2, read_pt2_entries
from vitrail.exporting.runtimes import Opened, Run, first_line
from vitrail.weights.record import Described


@dataclass(frozen=True)
class Format:
    """One kind of exported file."""

    suffix: str
    read_entries: Callable[[Path], dict[str, str]]
    """What is said about the network; what is not safe to run is refused here or in `open`."""
    open: Callable[[Path, int | None], Opened]


# In the order in which one of several in a folder is taken: the faster on CPUs first.
FORMATS: dict[str, Format] = {
    "openvino": Format(".xml", read_openvino_entries, open_openvino),
    "onnx": Format(".onnx", read_onnx_entries, open_onnx),
    "torch": Format(".pt2", read_pt2_entries, open_pt2),
}


@dataclass(frozen=True)
class Exported:
    """A file that answers."""

    path: Path
    kind: str
    """onnx, openvino or torch."""
    runtime: str
    """Name and version of what computes it."""
    described: Described
    any_size: bool
    """Whether height and width may vary."""
    run: Run
    """Normalised float32 (batch, channels, height, width) to logits (batch, classes) and features (batch, dim)."""
    export: dict[str, Any] = field(default_factory=dict)
    """How it was made and what it was compared with."""


def is_exported(source: str | Path) -> bool:
    """Whether this is a file of `vitrail export` or of another exporter, or a folder that holds one and no model."""
    return _find(Path(source)) is not None


def open_exported(source: str | Path, *, threads: int | None = None) -> Exported:
    """Open an exported file, or the fastest of a folder of them, on so many threads of the CPU."""
    found = _find(Path(source))
    if found is None:
        wanted = f"a file that ends in {', '.join(one.suffix for one in FORMATS.values())}, or a folder with one"
        raise DataError("is not an exported model", wanted=wanted, where=str(source))
    kind, path = found
    described, export = read_about(kind, path)
    any_size = bool(export.get("any_size"))
    opened = FORMATS[kind].open(path, threads)
    _ensure_described(opened, described, any_size, str(path))
    run = _checked(opened, described, any_size, str(path))
    return Exported(path, kind, opened.runtime, described, any_size, run, export)


def read_about(kind: str, path: Path) -> tuple[Described, dict[str, Any]]:
    """What a file says of its network and of its export, without loading either."""
    entries = FORMATS[kind].read_entries(path)
    return described_by(entries, str(path)), export_entry(entries, str(path))


def exported_files(folder: Path) -> list[tuple[str, Path]]:
    """Every exported file right in a folder, the faster kinds first."""
    return [
        (kind, path)
        for kind, one in FORMATS.items()
        for path in sorted(folder.glob(f"*{one.suffix}"))
        if path.is_file() and not path.name.startswith(".") and (kind != "openvino" or _is_openvino(path))
    ]


def _find(path: Path) -> tuple[str, Path] | None:
    try:
        if path.is_dir():
            # A folder with a config is a model or a run, whatever else lies in it.
            return None if (path / "config.json").exists() else next(iter(exported_files(path)), None)
        if not path.is_file():
            return None
    except OSError:  # a name that no file system takes
        return None
    kind = next((kind for kind, one in FORMATS.items() if path.suffix.lower() == one.suffix), None)
    return None if kind is None or (kind == "openvino" and not _is_openvino(path)) else (kind, path)


def _is_openvino(path: Path) -> bool:
    """Many files are XML; OpenVINO's begin with a net."""
    with path.open("rb") as file:
        return b"<net" in file.read(200)


def _ensure_described(opened: Opened, described: Described, any_size: bool, where: str) -> None:
    """What a file says of its network may be anything; images are prepared by it, so that it has to be true."""
    config = described.config
    sides = (None, None) if any_size else config.image_size
    if opened.takes != (None, config.channels, *sides):
        raise DataError(
            f"its graph takes images of the shape {_shape(opened.takes)}",
            wanted=f"{_shape((None, config.channels, *sides))}, as it says of itself",
            where=where,
            fix="Export the model anew with `vitrail export MODEL`.",
        )


def _shape(sides: tuple[int | None, ...]) -> str:
    return f"({', '.join('any' if side is None else str(side) for side in sides)})"


def _checked(opened: Opened, described: Described, any_size: bool, where: str) -> Run:
    """Refuse images that the network was not made for and answers it cannot give, in our words."""
    config = described.config
    smallest = config.pixels_per_patch if isinstance(config, VitConfig) else (1, 1)

    def checked(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if images.dtype != np.float32 or images.ndim != 4 or not len(images):
            came = f"the images are {images.dtype} of shape {images.shape}"
            raise UsageError(came, wanted="float32 (batch, channels, height, width), at least one", where=where)
        if images.shape[1] != config.channels:
            raise UsageError(f"the images have {images.shape[1]} channels", wanted=f"{config.channels}", where=where)
        height, width = images.shape[2:]
        if any_size and (height < smallest[0] or width < smallest[1]):
            wanted = f"at least {times(smallest)}, a patch"
            raise UsageError(f"the images are {times((height, width))} pixels", wanted=wanted, where=where)
        if not any_size and (height, width) != config.image_size:
            raise UsageError(
                f"the images are {times((height, width))} pixels",
                wanted=f"{times(config.image_size)}, which the file was exported for",
                where=where,
                fix=f"Export it with {setting('any_size', True)}.",
            )
        try:
            logits, features = opened.run(np.ascontiguousarray(images))
        except Exception as error:  # the errors of runtimes have no common kind
            came = f"{opened.runtime} cannot compute {images.shape} images ({first_line(error)})"
            raise DataError(came, where=where) from error
        expected = (len(images), config.num_classes or features.shape[-1])
        if logits.shape != expected or features.ndim != 2:
            raise DataError(f"its logits are {logits.shape}", wanted=f"{expected}", where=where)
        return logits, features

    return checked
