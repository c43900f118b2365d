"""From a name or a config to a network."""

from typing import Any, overload

from vitrail.config import BitConfig, ModelConfig, PeerConfig, VitConfig, peer_name, replace, times
from vitrail.errors import UsageError, notice
from vitrail.models.bit import BitResNet
from vitrail.models.packages import peer_config
from vitrail.models.peer import PeerNetwork
from vitrail.models.vit import VisionTransformer
from vitrail.zoo import zoo_row


def create_model(
    model: str | ModelConfig,
    *,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    **overrides: Any,
) -> VisionTransformer | BitResNet | PeerNetwork:
    """Build a network with fresh weights from a zoo key, `timm:NAME`, `torchvision:NAME` or a config.

    `overrides` change any field of the config.
    """
    if not isinstance(model, str | VitConfig | BitConfig | PeerConfig):
        raise UsageError(f"the model is a {type(model).__name__}", wanted="a key of the zoo or a config")
    config = named_config(model) if isinstance(model, str) else model
    asked = {"num_classes": num_classes, "image_size": image_size}
    overrides |= {name: value for name, value in asked.items() if value is not None}
    config = replace(config, overrides, kind="model")
    tell_dropped_pixels(config)
    return build(config)


def named_config(name: str) -> ModelConfig:
    """The config of a zoo key, or of a network of timm or torchvision as its package has it."""
    peer = peer_name(name)
    return zoo_row(name).config if peer is None else peer_config(peer)


@overload
def build(config: VitConfig) -> VisionTransformer: ...
@overload
def build(config: BitConfig) -> BitResNet: ...
@overload
def build(config: PeerConfig) -> PeerNetwork: ...
def build(config: ModelConfig) -> VisionTransformer | BitResNet | PeerNetwork:
    """Build the network a config describes."""
    match config:
        case VitConfig():
            return VisionTransformer(config)
        case BitConfig():
            return BitResNet(config)
    return PeerNetwork(config)


def tell_dropped_pixels(config: ModelConfig) -> None:
    """Say what no patch covers, as in the original, where 384 / 14 gives 27."""
    if not isinstance(config, VitConfig):
        return
    covered = (config.grid[0] * config.patch_size[0], config.grid[1] * config.patch_size[1])
    if covered != config.feature_size:
        what = f"The {times(config.feature_size)} feature map of a" if config.backbone else "A"
        notice(
            f"{what} {times(config.image_size)} image does not divide into {times(config.patch_size)} patches: the "
            f"network reads its first {times(covered)} {'cells' if config.backbone else 'pixels'}, "
            f"a {times(config.grid)} grid, as the original does."
        )
