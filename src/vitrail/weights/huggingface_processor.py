"""Hugging Face's preprocessor_config.json: how its processors prepare an image, read and written."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitrail.config import ModelConfig, Preprocessing, VitConfig, from_json, times, to_json
from vitrail.config.preprocessing import crop_share
from vitrail.errors import notice

PROCESSOR_FILE = "preprocessor_config.json"

_RESAMPLING = {2: "bilinear", 3: "bicubic"}
# From so many pixels on ConvNeXt's processor squashes the whole image.
_CONVNEXT_WHOLE = 384
# Pixels; no processor makes larger images.
_LARGEST_SIDE = 1 << 20


@dataclass(frozen=True)
class _Kind:
    """What a processor does where its file leaves it open."""

    size: int | dict[str, int]
    is_square: bool
    """A size of one number is that of both sides, not of the short one."""
    crops: bool
    resample: int = 3


_KINDS = {
    "ViT": _Kind(224, is_square=True, crops=False, resample=2),
    "DeiT": _Kind(256, is_square=True, crops=True),
    "Beit": _Kind(224, is_square=True, crops=False),
    "Siglip": _Kind({"height": 224, "width": 224}, is_square=False, crops=False),
    "CLIP": _Kind(224, is_square=False, crops=True),
    "Bit": _Kind(224, is_square=False, crops=True),
    "ConvNext": _Kind(384, is_square=False, crops=False),
}
_USUAL = {"do_resize": True, "do_rescale": True, "do_normalize": True}


class _Unlike(Exception):
    """A setting that no preprocessing here does, by its name."""


def read_processor(settings: Mapping[str, Any], where: str) -> Preprocessing | None:
    """The preprocessing that a processor's settings describe; none, with a notice, for what none here does."""
    if not {"image_mean", "image_std"} <= settings.keys():
        return None
    try:
        name = settings.get("image_processor_type") or settings.get("feature_extractor_type") or "ViTImageProcessor"
        kind = _KINDS.get(re.sub("(ImageProcessor|FeatureExtractor)(Fast|Pil)?$", "", str(name)))
        if kind is None:
            raise _Unlike(f"image_processor_type {str(name)[:60]!r}")
        for key, usual in _USUAL.items():
            if settings.get(key) not in (usual, None):
                raise _Unlike(key)
        resample = _said(settings, "resample", kind.resample)
        if not isinstance(resample, int | float) or resample not in _RESAMPLING:
            raise _Unlike("resample")
        factor = _said(settings, "rescale_factor", 1 / 255)
        if not isinstance(factor, int | float) or not abs(factor * 255 - 1) <= 1e-3:
            raise _Unlike("rescale_factor")
        crop, squash = _convnext(settings) if "ConvNext" in str(name) else _geometry(settings, kind)
    except _Unlike as error:
        notice(f"{where}: {error} in {PROCESSOR_FILE} is not one that is followed.")
        return None
    values = {
        "mean": settings["image_mean"],
        "std": settings["image_std"],
        "interpolation": _RESAMPLING[resample],
        "crop": crop,
        "squash": squash,
    }
    return from_json(Preprocessing, values, where=f"{where}, {PROCESSOR_FILE}")


def processor_settings(config: VitConfig, preprocessing: Preprocessing) -> dict[str, Any] | None:
    """Settings of a `ViTImageProcessor` that prepares images as the network's are; none, with a notice, if it cannot.

    In transformers 5 it keeps the shape of images and takes their centre where it is told to.
    """
    settings = _settings(config, preprocessing)
    if settings is None:
        notice(
            f"No processor of Hugging Face takes a centre of {times(config.image_size)} from images that keep "
            f"their shape: no {PROCESSOR_FILE} is written."
        )
    elif not preprocessing.antialias:
        notice("Hugging Face's processors smooth images before they shrink them; the images of this network are not.")
    return settings


def is_own(settings: Mapping[str, Any], config: ModelConfig, preprocessing: Preprocessing) -> bool:
    """Whether settings are as this or an earlier version writes them beside such a network, so that nobody edited them.

    Version 0.1 wrote a squash, which is all that processors did then, for every network.
    """
    height, width = config.image_size
    squash = _vit_processor(
        preprocessing, preprocessing.mean, preprocessing.std, size={"height": height, "width": width}
    )
    return settings in (_settings(config, preprocessing), squash)


def _settings(config: ModelConfig, preprocessing: Preprocessing) -> dict[str, Any] | None:
    height, width = config.image_size
    resized = {"height": preprocessing.resized(height), "width": preprocessing.resized(width)}
    geometry: dict[str, Any] = {"size": resized}
    if preprocessing.crop is not None:
        if not preprocessing.squash and height != width:
            return None
        geometry = {
            "size": resized if preprocessing.squash else {"shortest_edge": resized["height"]},
            "do_center_crop": True,
            "crop_size": {"height": height, "width": width},
        }
    mean, std = preprocessing.statistics(config.channels)
    colours = {"do_convert_rgb": True} if config.channels == 3 else {}
    return _vit_processor(preprocessing, mean, std, **geometry) | colours


def _vit_processor(
    preprocessing: Preprocessing, mean: Sequence[float], std: Sequence[float], **geometry: Any
) -> dict[str, Any]:
    """What stands in the settings of every network that we write."""
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        **geometry,
        "resample": _code(preprocessing),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": to_json(mean),
        "image_std": to_json(std),
    }


def _geometry(settings: Mapping[str, Any], kind: _Kind) -> tuple[float | None, bool]:
    """The share of the centre crop, and whether the image is squashed before it."""
    sides, short = _sides(settings, "size", kind.size, kind.is_square)
    crops = _said(settings, "do_center_crop", kind.crops)
    if not isinstance(crops, bool):
        raise _Unlike("do_center_crop")
    if not crops:
        if sides is None:
            raise _Unlike("a size by the short side without do_center_crop")
        return None, False
    cropped, _ = _sides(settings, "crop_size", 224, is_square=True)
    if cropped is None or (sides is None and cropped[0] != cropped[1]):
        raise _Unlike("crop_size")
    if sides == cropped:
        return None, False
    resized = sides or (short, short)
    if cropped[0] > resized[0] or cropped[1] > resized[1]:
        raise _Unlike("crop_size")
    share = min(map(crop_share, cropped, resized))
    if tuple(math.floor(side / share) for side in cropped) != resized:
        raise _Unlike("size")
    return share, sides is not None


def _convnext(settings: Mapping[str, Any]) -> tuple[float | None, bool]:
    """`crop_pct` is the share of the short side that is kept, of small images alone."""
    _, short = _sides(settings, "size", 384, is_square=False)
    share = _said(settings, "crop_pct", 224 / 256)
    if not short or not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1:
        raise _Unlike("size" if not short else "crop_pct")
    return (None if short >= _CONVNEXT_WHOLE else float(share)), False


def _sides(settings: Mapping[str, Any], key: str, default: Any, is_square: bool) -> tuple[tuple[int, int] | None, int]:
    """Height and width, or none and the short side."""
    size = _said(settings, key, default)
    if isinstance(size, int):
        size = {"height": size, "width": size} if is_square else {"shortest_edge": size}
    elif isinstance(size, list) and len(size) == 2:
        size = {"height": size[0], "width": size[1]}
    sides = {key: value for key, value in size.items() if value is not None} if isinstance(size, dict) else {}
    if not all(type(value) is int and 0 < value <= _LARGEST_SIDE for value in sides.values()):
        raise _Unlike(key)
    match sorted(sides):
        case ["height", "width"]:
            return (sides["height"], sides["width"]), 0
        case ["shortest_edge"]:
            return None, sides["shortest_edge"]
    raise _Unlike(key)


def _code(preprocessing: Preprocessing) -> int:
    return next(code for code, name in _RESAMPLING.items() if name == preprocessing.interpolation)


def _said(settings: Mapping[str, Any], key: str, default: Any) -> Any:
    """A setting; what is null is left open, as the library has it."""
    value = settings.get(key)
    return default if value is None else value
