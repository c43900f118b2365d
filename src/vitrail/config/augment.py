"""What happens to a training image between the disk and the network: values only."""

from dataclasses import dataclass
from typing import Literal

from vitrail.config.checks import count, positive, small_number
from vitrail.errors import UsageError, choose

Crop = Literal["inception", "resize", "pad", "whole"]


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """Augmentation of training images, in the order it is applied; the defaults are the paper's pre-training."""

    crop: Crop = "inception"
    """inception: a random box; resize: to a square, then a random crop; pad: zeros around, then a crop; whole: none."""
    min_area: float = 0.05
    """Smallest share of the image in an inception crop."""
    resize: int = 448
    """Side of the square from which crop=resize takes its crop."""
    pad: int = 4
    """Zeros on each side for crop=pad."""
    flip: bool = True
    """Mirror half of the images."""
    randaugment_layers: int = 0
    """Operations of RandAugment per image; 0 is off."""
    randaugment_magnitude: float = 10.0
    """Strength of each; the scale ends at 10 and the recipes go beyond."""
    mixup: float = 0.0
    """Beta parameter of mixup; 0 is off."""
    cutmix: float = 0.0
    """Beta parameter of CutMix; 0 is off. With mixup beside it, each batch takes one of the two."""
    mixing: float = 1.0
    """Share of the batches to which mixup or CutMix is applied."""
    erasing: float = 0.0
    """Share of the images in which a rectangle is erased."""

    def __post_init__(self) -> None:
        choose("crop", self.crop, ["inception", "resize", "pad", "whole"])
        positive("resize", self.resize)
        for name in ("pad", "randaugment_layers"):
            count(name, getattr(self, name))
        for name in ("randaugment_magnitude", "mixup", "cutmix"):
            small_number(name, getattr(self, name))
        if not 0 < self.min_area <= 1:
            raise UsageError(f"min_area is {self.min_area}", wanted="a share in (0, 1]")
        for name in ("erasing", "mixing"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name)}", wanted="a share in [0, 1]")

    @property
    def is_mixing(self) -> bool:
        """Whether images of a batch are mixed, so that targets are shares and not class numbers."""
        return self.mixup > 0 or self.cutmix > 0
