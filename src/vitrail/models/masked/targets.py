"""What is asked about a hidden patch: its mean colour, a small copy of it, or its pixels (B.1.2).

Colours have three bits a channel: `floor(8 c)` of a value c from 0 to 1, and all channels together are one class,
`64 r + 8 g + b`.
"""

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitrail.config import Preprocessing, VitConfig

LEVELS = 8
SMALL_SIDE = 4
"""Parts of a patch along each side, of which the target small_patch asks the colour."""
_VARIANCE_EPSILON = 1e-6


def parts_of_a_side(config: VitConfig) -> int:
    """As many as there are pixels, where a patch is smaller."""
    return min(SMALL_SIDE, *config.pixels_per_patch)


def colours(
    images: Float[Tensor, "batch channels height width"], config: VitConfig, preprocessing: Preprocessing, side: int
) -> Int[Tensor, "batch patches parts"]:
    """The class of the mean colour of each of side x side parts of every patch."""
    rows, columns = config.grid
    means = functional.adaptive_avg_pool2d(_covered(images, config), (rows * side, columns * side))
    found = torch.zeros_like(means[:, 0], dtype=torch.int64)
    # Channel by channel with plain numbers, so that nothing is copied to the device.
    for channel, (mean, std) in enumerate(zip(preprocessing.mean, preprocessing.std, strict=True)):
        level = torch.floor((means[:, channel] * std + mean) * LEVELS).clamp(0, LEVELS - 1)
        found = found * LEVELS + level.long()
    return rearrange(found, "b (r i) (c j) -> b (r c) (i j)", i=side, j=side)


def colour_values(
    classes: Int[Tensor, "batch patches parts"], config: VitConfig
) -> Float[Tensor, "batch channels rows columns"]:
    """The middle of each class as a picture of values from 0 to 1, one cell per part."""
    side = round(classes.shape[2] ** 0.5)
    rows, columns = config.grid
    powers = LEVELS ** torch.arange(config.channels - 1, -1, -1, device=classes.device)
    levels = classes[..., None] // powers % LEVELS
    values = (levels.float() + 0.5) / LEVELS
    return rearrange(values, "b (r c) (i j) k -> b k (r i) (c j)", r=rows, c=columns, i=side, j=side)


def pixels(
    images: Float[Tensor, "batch channels height width"], config: VitConfig
) -> Float[Tensor, "batch patches numbers"]:
    """All numbers of every patch, as the network sees them."""
    height, width = config.pixels_per_patch
    return rearrange(_covered(images, config), "b k (r h) (c w) -> b (r c) (h w k)", h=height, w=width)


def picture(
    patches: Float[Tensor, "batch patches numbers"], config: VitConfig
) -> Float[Tensor, "batch channels height width"]:
    """The image that is made of such patches."""
    (rows, columns), (height, width) = config.grid, config.pixels_per_patch
    return rearrange(patches, "b (r c) (h w k) -> b k (r h) (c w)", r=rows, c=columns, h=height, w=width)


def standardised(patches: Float[Tensor, "batch patches numbers"]) -> tuple[Tensor, Tensor, Tensor]:
    """Each patch relative to its own mean and standard deviation, and these."""
    mean, std = patches.mean(dim=-1, keepdim=True), (patches.var(dim=-1, keepdim=True) + _VARIANCE_EPSILON).sqrt()
    return (patches - mean) / std, mean, std


def _covered(images: Tensor, config: VitConfig) -> Tensor:
    """The part of the image that patches cover."""
    (rows, columns), (height, width) = config.grid, config.pixels_per_patch
    return images[:, :, : rows * height, : columns * width]
