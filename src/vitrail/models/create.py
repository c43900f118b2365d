"""From a name or a config to a network."""

from typing import Any

from vitrail.config import VitConfig, replace, times
from vitrail.errors import notice
from vitrail.models.vit import VisionTransformer
from vitrail.zoo import zoo_row


def create_model(
    model: str | VitConfig,
    *,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    **overrides: Any,
) -> VisionTransformer:
    """Build a network with fresh weights from a zoo key or a config; `overrides` change any field of the config."""
    config = model if isinstance(model, VitConfig) else zoo_row(model).config
    asked = {"num_classes": num_classes, "image_size": image_size}
    overrides |= {name: value for name, value in asked.items() if value is not None}
    config = replace(config, overrides, kind="model")
    tell_dropped_pixels(config)
    return build(config)


def build(config: VitConfig) -> VisionTransformer:
    """Build the network a config describes."""
    return VisionTransformer(config)


def tell_dropped_pixels(config: VitConfig) -> None:
    """Say which pixels no patch covers, as in the original, where 384 / 14 gives 27."""
    height, width = (side * patch for side, patch in zip(config.grid, config.patch_size, strict=True))
    if (height, width) != config.image_size:
        notice(
            f"A {times(config.image_size)} image does not divide into {times(config.patch_size)} patches: the network "
            f"reads its first {times((height, width))} pixels, a {times(config.grid)} grid, as the original does."
        )
