"""Which augmentation goes with which recipe.

The paper's pre-training crops as Inception did and flips, no more. Its fine-tuning is that of BiT: resize to a square,
crop, flip. AugReg ("How to train your ViT?") has seven levels of RandAugment (layers l, magnitude m) and mixup (alpha).
"""

from vitrail.config import AugmentConfig
from vitrail.errors import choose

PRETRAINING = AugmentConfig(crop="inception", flip=True)

_AUGREG_LEVELS = {
    "none": (0, 0.0, 0.0),
    "light1": (2, 0.0, 0.0),
    "light2": (2, 10.0, 0.2),
    "medium1": (2, 15.0, 0.2),
    "medium2": (2, 15.0, 0.5),
    "strong1": (2, 20.0, 0.5),
    "strong2": (2, 20.0, 0.8),
}
AUGREG = {
    name: AugmentConfig(randaugment_layers=layers, randaugment_magnitude=magnitude, mixup=mixup)
    for name, (layers, magnitude, mixup) in _AUGREG_LEVELS.items()
}

# BiT's hyper-rule: images of less than this area are enlarged less, and sets of this many images are mixed.
_SMALL_AREA = 96 * 96
_MIXED_FROM = 20_000
_BIT_MIXUP = 0.1

# What small images from scratch learn best with, by our own runs on CIFAR-10.
SMALL = AugmentConfig(
    crop="pad",
    pad=4,
    randaugment_layers=1,
    randaugment_magnitude=9.0,
    mixup=0.8,
    cutmix=1.0,
    mixing=0.5,
    erasing=0.25,
)
# He et al., 2021, Table 9: the end-to-end fine-tuning of a masked autoencoder.
MASKED = AugmentConfig(randaugment_layers=2, randaugment_magnitude=9.0, mixup=0.8, cutmix=1.0, erasing=0.25)


def augreg(level: str) -> AugmentConfig:
    """Look a level of AugReg up by name, from "none" to "strong2"."""
    return AUGREG[choose("AugReg level", level, AUGREG)]


def finetuning(image_size: int) -> AugmentConfig:
    """Fine-tuning at `image_size`: a random crop of it from a square 7/6 as wide, as BiT's 384 from 448."""
    return AugmentConfig(crop="resize", resize=image_size * 7 // 6)


def bit_hyperrule(height: int, width: int, images: int) -> tuple[int, AugmentConfig]:
    """BiT's rule for a data set of `images` pictures of this size: the input size, and how to get to it.

    The sizes are those of its released code; its paper (section 3.3) has 448 and 384 for all but the largest network.
    """
    resize, crop = (160, 128) if height * width < _SMALL_AREA else (512, 480)
    mixup = _BIT_MIXUP if images >= _MIXED_FROM else 0.0
    return crop, AugmentConfig(crop="resize", resize=resize, mixup=mixup)
