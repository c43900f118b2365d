"""Which backend computes a network: the one asked for, or the fastest for this machine and this many images.

A copy in another format is made once, compared with torch, and kept in the cache; then it answers without torch.
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitrail import __version__
from vitrail.config import PRESETS, preset, times
from vitrail.errors import DataError, UsageError, VitrailError, choose, notice
from vitrail.export.exported import is_exported, open_exported
from vitrail.predict.backend import Backend, exported_backend, torch_backend
from vitrail.runtime.cache import cache_folder, cache_key

if TYPE_CHECKING:
    from vitrail.models import Classifier

Size = tuple[int, int]

BACKENDS = ("auto", "torch", "compiled", "onnx", "openvino")
TOLERANCE = 1e-4
"""Largest difference from the logits of torch in float32, as a share of the largest of them where that is above 1."""

# Copies that are there already are taken in this order: the faster first, as benchmarks/ measured it on CPUs.
_COPIES = ("openvino", "onnx")
_WEIGHTS = ("", "model.safetensors", "model/model.safetensors", "pytorch_model.bin")
# So many images take minutes on a CPU; a copy takes a quarter of a minute to make and saves a tenth of their time.
_MANY_IMAGES = 10_000
_COMPARED = 2


def open_backend(
    source: str | Path,
    wanted: str = "auto",
    *,
    device: str = "auto",
    image_size: Size | None = None,
    preprocessing: str | None = None,
    images: int | None = None,
) -> Backend:
    """Open a source for answering `images` images, where that many are known to come."""
    choose("backend", wanted, BACKENDS)
    if preprocessing is not None:
        preset(preprocessing)
    if is_exported(source):
        return _exported(source, wanted, image_size, preprocessing)
    on_cpu = device in ("auto", "cpu")
    for kind in _COPIES if wanted == "auto" else (wanted,):
        place = _copy_place(source, kind, image_size, preprocessing) if on_cpu and kind in _COPIES else None
        if place is not None and place.exists():
            return exported_backend(open_exported(place))
    return _network(source, wanted, device, image_size, preprocessing, images)


def _exported(source: str | Path, wanted: str, image_size: Size | None, preprocessing: str | None) -> Backend:
    opened = exported_backend(open_exported(source))
    if wanted != "auto":
        raise UsageError(
            f"the backend is {wanted!r}",
            wanted="none: an exported file is computed by the runtime it was made for",
            where=str(source),
        )
    config = opened.described.config
    if image_size is not None and image_size != config.image_size and not opened.any_size:
        raise UsageError(
            f"the image size is {times(image_size)}",
            wanted=f"{times(config.image_size)}, which the file was exported for",
            where=str(source),
            fix="Export it with --any-size.",
        )
    return _with_preprocessing(opened, preprocessing, str(source))


def _with_preprocessing(backend: Backend, name: str | None, where: str) -> Backend:
    """The preset of this name, else what travels with the weights: the wrong one costs half the accuracy."""
    if name is not None:
        described = dataclasses.replace(backend.described, preprocessing=preset(name))
        return dataclasses.replace(backend, described=described)
    if backend.described.preprocessing is None:
        raise UsageError(
            "the file does not say how its images were prepared",
            wanted=f"one of the presets {', '.join(PRESETS)}",
            where=where,
            fix="Name it with --preprocessing; Google's AugReg weights, in timm's files too, take augreg.",
        )
    return backend


def _network(
    source: str | Path,
    wanted: str,
    device: str,
    image_size: Size | None,
    preprocessing: str | None,
    images: int | None,
) -> Backend:
    """The network itself, or a copy of it that is made now because it pays or was asked for."""
    from vitrail.runtime.device import find_device
    from vitrail.weights.load import load_model

    place = find_device(device)
    model = load_model(source, image_size=image_size, preprocessing=preprocessing)
    many = wanted == "auto" and (images or 0) >= _MANY_IMAGES
    kind = wanted if wanted in _COPIES else "openvino" if many and place.type == "cpu" else None
    plain = _with_preprocessing(
        torch_backend(model, device, compiled=wanted == "compiled" or (many and kind is None)), None, str(source)
    )
    if kind is None:
        return plain
    if place.type != "cpu":
        raise UsageError(f"the backend {kind} computes on the CPU", fix="Leave --backend or --device out.")
    try:
        return _copied(model, plain, kind, _copy_place(source, kind, image_size, preprocessing))
    except (VitrailError, ImportError) as error:
        if wanted != "auto":
            raise
        notice(f"No faster copy could be made ({error}); torch computes.")
        return plain


def _copy_place(source: str | Path, kind: str, image_size: Size | None, preprocessing: str | None) -> Path | None:
    """Where a copy of a model on this disk is kept; another file, another setting or another version has its own."""
    folder = Path(source)
    file = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        return None
    state = file.stat()
    key = cache_key(str(file.resolve()), state.st_size, state.st_mtime_ns, kind, image_size, preprocessing, __version__)
    return cache_folder("copies") / f"{key}{'.onnx' if kind == 'onnx' else '.xml'}"


def _copied(model: "Classifier", plain: Backend, kind: str, place: Path | None) -> Backend:
    """Write a copy, compare it on noise, and keep it; one that differs is never used."""
    from vitrail.export.write import write_unverified

    if place is None:
        raise UsageError(f"the backend {kind} needs a model on this disk", fix="`vitrail pull` brings it here.")
    place.parent.mkdir(parents=True, exist_ok=True)
    write_unverified(model, place, kind)
    copy = exported_backend(open_exported(place))
    config = plain.described.config
    noise = np.random.default_rng(0).standard_normal((_COMPARED, config.channels, *config.image_size), dtype=np.float32)
    expected, found = plain.run(noise)[0], copy.run(noise)[0]
    apart = float(np.abs(expected - found).max()) / max(1.0, float(np.abs(expected).max()))
    if not apart <= TOLERANCE:
        for file in (place, place.with_suffix(".bin")):
            file.unlink(missing_ok=True)
        raise DataError(f"the {kind} copy differs from torch by {apart:.2g}", wanted=f"at most {TOLERANCE:g}")
    return copy
