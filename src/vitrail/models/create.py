"""From a name or a config to a network."""

from typing import Any, overload

from vitrail.config import BitConfig, ModelConfig, VitConfig, replace, times
from vitrail.errors import UsageError, notice
from vitrail.models.bit import BitResNet
from vitrail.models.vit import VisionTransformer
from vitrail.zoo import zoo_row


def create_model(
    model: str | ModelConfig,
    *,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    **overrides: Any,
) -> VisionTransformer | BitResNet:
    """Build a network with fresh weights from a zoo key or a config; `overrides` change any field of the config."""
    if not isinstance(model, str | VitConfig | BitConfig):
        raise UsageError(f"the model is a {type(model).__name__}", wanted="a key of the zoo or a config")
    config = zoo_row(model).config if isinstance(model, str) else model
    asked = {"num_classes": num_classes, "image_size": image_size}
    overrides |= {name: value for name, value in asked.items() if value is not None}
    config = replace(config, overrides, kind="model")
    tell_dropped_pixels(config)
    return build(config)


@overload
def build(config: VitConfig) -> VisionTransformer: ...
@overload
def build(config: BitConfig) -> BitResNet: ...
def build(config: ModelConfig) -> VisionTransformer | BitResNet:
    """Build the network a config describes."""
    return VisionTransformer(config) if isinstance(config, VitConfig) else BitResNet(config)


def tell_dropped_pixels(config: ModelConfig) -> None:
    """Say what no patch covers, as in the original, where 384 / 14 gives 27."""
    if isinstance(config, BitConfig):
        return
    covered = (config.grid[0] * config.patch_size[0], config.grid[1] * config.patch_size[1])
    if covered != config.feature_size:
        what = f"The {times(config.feature_size)} feature map of a" if config.backbone else "A"
        notice(
            f"{what} {times(config.image_size)} image does not divide into {times(config.patch_size)} patches: the "
            f"network reads its first {times(covered)} {'cells' if config.backbone else 'pixels'}, "
            f"a {times(config.grid)} grid, as the original does."
        )
