"""Which backend computes a network: the one asked for, or the fastest for this machine and this many images."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitrail.config import preset, times
from vitrail.config.preprocessing import known_preprocessing
from vitrail.errors import DataError, UsageError, VitrailError, choose, marked, notice, setting
from vitrail.exporting.agree import allowed_difference, largest_difference
from vitrail.exporting.exported import is_exported, open_exported
from vitrail.exporting.runtimes import first_line
from vitrail.prediction.backend import Backend, exported_backend, torch_backend
from vitrail.prediction.copies import copy_place, keep_copy, kept_copy

if TYPE_CHECKING:
    import torch

    from vitrail.models import Classifier

Size = tuple[int, int]

BACKENDS = ("auto", "torch", "compiled", "onnx", "openvino")

# Copies that are there already are taken in this order: the faster first, as benchmarks/ measured it on CPUs.
_COPIES = ("openvino", "onnx")
# So many images take minutes on a CPU; a copy takes a quarter of a minute to make and saves a tenth of their time.
_MANY_IMAGES = 10_000
# So few are answered on a CPU before torch has found out whether there is a GPU.
_FEW_IMAGES = 100
_COMPARED = 2


def open_backend(
    source: str | Path,
    wanted: str = "auto",
    *,
    device: str = "auto",
    image_size: Size | None = None,
    preprocessing: str | None = None,
    images: int | None = None,
    batch_size: int = 32,
) -> Backend:
    """Open a source for answering `images` images, where that many are known to come, so many at a time."""
    choose("backend", wanted, BACKENDS)
    if preprocessing is not None:
        preset(preprocessing)
    if is_exported(source):
        return _exported(source, wanted, device, image_size, preprocessing)
    if wanted in _COPIES:
        device = "cpu" if device == "auto" else device
    kinds = _COPIES if wanted == "auto" else (wanted,) if wanted in _COPIES else ()
    # Before the weights are read: were they saved anew meanwhile, the copy would be taken for one of the new.
    places = {kind: copy_place(source, kind, image_size, preprocessing) for kind in kinds}
    there = [place for place in places.values() if place is not None and place.exists()]
    if there and _is_for_cpu(device, images):
        for place in there:
            if (copy := kept_copy(place)) is not None:
                return exported_backend(copy)
    return _network(source, wanted, device, image_size, preprocessing, places, images, batch_size)


def _is_for_cpu(device: str, images: int | None) -> bool:
    if device != "auto" or (images is not None and images < _FEW_IMAGES):
        return device in ("auto", "cpu")
    from vitrail.runtime.device import find_device

    return find_device(device).type == "cpu"


def _exported(
    source: str | Path, wanted: str, device: str, image_size: Size | None, preprocessing: str | None
) -> Backend:
    if device not in ("auto", "cpu"):
        raise UsageError(
            f"the device is {device!r}", wanted="cpu, where exported files are computed", where=str(source)
        )
    opened = exported_backend(open_exported(source))
    if wanted != "auto" and not opened.name.startswith(wanted):
        raise UsageError(
            f"the backend is {wanted!r}",
            wanted=f"{opened.name}, for which the file was made",
            where=str(source),
            fix=f"Leave {setting('backend')} out.",
        )
    config = opened.described.config
    if image_size is not None and image_size != config.image_size and not opened.any_size:
        raise UsageError(
            f"the image size is {times(image_size)}",
            wanted=f"{times(config.image_size)}, which the file was exported for",
            where=str(source),
            fix=f"Export it with {setting('any_size', True)}.",
        )
    known = known_preprocessing(opened.described.preprocessing, preprocessing, str(source))
    return dataclasses.replace(opened, described=dataclasses.replace(opened.described, preprocessing=known))


def _network(
    source: str | Path,
    wanted: str,
    device: str,
    image_size: Size | None,
    preprocessing: str | None,
    places: dict[str, Path | None],
    images: int | None,
    batch_size: int,
) -> Backend:
    """The network itself, or what is made of it now because it pays or was asked for."""
    from vitrail.runtime.device import find_device
    from vitrail.weights.load import load_model

    place = find_device(device)
    if wanted in _COPIES and place.type != "cpu":
        fix = f"Leave {setting('backend')} or {setting('device')} out."
        raise UsageError(f"the backend {wanted} computes on the CPU", fix=fix)
    model = load_model(source, image_size=image_size, preprocessing=preprocessing)
    known_preprocessing(model.preprocessing, None, str(source))
    plain = torch_backend(model, device)
    many = (images or 0) >= _MANY_IMAGES
    if wanted == "torch" or (wanted == "auto" and not many):
        return plain
    try:
        if wanted in _COPIES or (wanted == "auto" and place.type == "cpu"):
            return _copied(model, plain, places)
        return _compiled(model, plain, place, min(batch_size, images or batch_size))
    except (VitrailError, ImportError) as error:
        if wanted != "auto":
            raise
        if isinstance(error, ImportError):
            why = "because the export extra is not installed"
            notice(f"torch computes, {why}: pip install 'vitrail[export]' brings faster runtimes.")
        else:
            notice(f"Nothing faster could be made of the network ({marked(error)}); torch computes.")
        return plain


def _copied(model: "Classifier", plain: Backend, places: dict[str, Path | None]) -> Backend:
    """The first kind of copy that can be made, compared and kept."""
    for number, (kind, place) in enumerate(places.items(), start=1):
        if place is None:
            raise UsageError(f"the backend {kind} needs a model on this disk", fix="`vitrail pull` brings it here.")
        try:
            keep_copy(
                model, place, kind, lambda draft: _ensure_same(plain, exported_backend(open_exported(draft)), _COMPARED)
            )
            return exported_backend(open_exported(place))
        except (VitrailError, ImportError):
            if number == len(places):
                raise
    raise AssertionError("there is a kind of copy")


def _compiled(model: "Classifier", plain: Backend, place: "torch.device", batch_size: int) -> Backend:
    compiled = torch_backend(model, str(place), compiled=True, batch_size=batch_size)
    try:
        _ensure_same(plain, compiled, batch_size)
    except VitrailError:
        raise
    except Exception as error:  # torch's errors have no common kind
        fix = f"Use {setting('backend', 'torch')}."
        raise UsageError(f"torch cannot compile this network here ({first_line(error)})", fix=fix) from error
    return compiled


def _ensure_same(plain: Backend, other: Backend, count: int) -> None:
    """Compare on noise; what differs is never used."""
    config = plain.described.config
    noise = np.random.default_rng(0).standard_normal((count, config.channels, *config.image_size), dtype=np.float32)
    expected, found = plain.run(noise)[0], other.run(noise)[0]
    apart, allowed = largest_difference(expected, found), allowed_difference(expected)
    if not apart <= allowed:
        raise DataError(f"{other.name} differs from torch by {apart:.2g}", wanted=f"at most {allowed:.1e}")
