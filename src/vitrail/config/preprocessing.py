"""How pixels become the network's input: it travels with the weights, because the wrong one costs half the accuracy."""

import math
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from vitrail.errors import UsageError, choose, setting

Interpolation = Literal["bilinear", "bicubic"]

# Less is a slip, and would make an image of which nearly nothing is kept fill the memory.
_SMALLEST_CROP = 0.01


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Resize, optional centre crop, and normalisation of pixels that were scaled to [0, 1]."""

    mean: tuple[float, ...]
    """Per channel, subtracted after scaling to [0, 1]."""
    std: tuple[float, ...]
    """Per channel, divided by after the mean is subtracted."""
    interpolation: Interpolation
    """Resampling of the resize."""
    crop: float | None = None
    """Share of the short side kept by the centre crop; none squashes the whole image to the input size."""
    antialias: bool = True
    """Low-pass filter before shrinking; the original's TensorFlow resize has none."""
    squash: bool = field(default=False, metadata={"only_where_set": True})
    """Whether the image is squashed before the centre crop, where it would keep its shape; as DeiT's processor does."""

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise UsageError(
                f"mean has {len(self.mean)} values and std {len(self.std)}", wanted="one of each per channel"
            )
        if not all(math.isfinite(value) for value in self.mean):
            raise UsageError(f"mean is {self.mean}", wanted="finite numbers")
        if not all(0 < value < math.inf for value in self.std):
            raise UsageError(f"std is {self.std}", wanted="positive numbers")
        if self.crop is not None and not _SMALLEST_CROP <= self.crop <= 1:
            raise UsageError(f"crop is {self.crop}", wanted=f"a share from {_SMALLEST_CROP} to 1")
        choose("interpolation", self.interpolation, ["bilinear", "bicubic"])

    def resized(self, side: int) -> int:
        """Pixels that a side of the input is resized to before the centre crop."""
        return side if self.crop is None else math.floor(side / self.crop)

    def statistics(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std for images of so many channels: a grey one takes the mean of them, one value is that of all."""
        if channels == 1:
            return (fmean(self.mean),), (fmean(self.std),)
        return (self.mean * channels, self.std * channels) if len(self.mean) == 1 else (self.mean, self.std)

    def agrees(self, other: "Preprocessing", size: tuple[int, int], channels: int) -> bool:
        """Whether both prepare such images alike, but for the filter, which many files do not record."""
        geometry = [(one.crop is None or one.squash, *map(one.resized, size)) for one in (self, other)]
        mine, theirs = (sum(one.statistics(channels), ()) for one in (self, other))
        return (
            geometry[0] == geometry[1]
            and self.interpolation == other.interpolation
            and len(mine) == len(theirs)
            and all(map(_is_close, mine, theirs))
        )


def _is_close(mine: float, theirs: float) -> bool:
    return math.isclose(mine, theirs, rel_tol=1e-6, abs_tol=1e-9)


def crop_share(cropped: int, resized: int) -> float:
    """The share that a centre crop keeps of what was resized to so many pixels, such that `resized` gives them back."""
    share = cropped / resized
    # Rounded to the wrong side.
    return share if math.floor(cropped / share) == resized else math.nextafter(share, 0.0)


_HALF = (0.5, 0.5, 0.5)
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)

PRESETS: dict[str, Preprocessing] = {
    "google": Preprocessing(mean=_HALF, std=_HALF, interpolation="bilinear", antialias=False),
    "augreg": Preprocessing(mean=_HALF, std=_HALF, interpolation="bicubic", crop=0.9),
    "imagenet": Preprocessing(mean=_IMAGENET_MEAN, std=_IMAGENET_STD, interpolation="bicubic", crop=0.9),
}


# Who made the weights decides; the file seldom says.
_TAKEN_BY = {
    "google": "Google's .npz files of 2020",
    "augreg": "AugReg's weights (in timm's files too)",
    "imagenet": "DeiT and most networks that were trained on ImageNet by others",
}


def preset(name: str) -> Preprocessing:
    """Look a preset up by name."""
    return PRESETS[choose("preprocessing preset", name, PRESETS)]


def known_preprocessing(stored: Preprocessing | None, name: str | None, where: str) -> Preprocessing:
    """The preset of this name, else what travels with the weights: the wrong one costs half the accuracy."""
    if name is not None:
        return preset(name)
    if stored is None:
        presets = ", ".join(f"{name} for {who}" for name, who in _TAKEN_BY.items())
        raise UsageError(
            "the file does not say how its images were prepared",
            wanted=f"one of the presets {', '.join(PRESETS)}",
            where=where,
            fix=f"Name it with {setting('preprocessing')}: {presets}.",
        )
    return stored
