"""What a layout can hold: a network has parts beyond the plain class-token ViT, and each layout knows some of them."""

from vitrail.config import BitConfig, ConvStemConfig, ModelConfig, PeerConfig, ResNetConfig, VitConfig
from vitrail.errors import UsageError

BIT = "a BiT ResNet"
PEER = "a network that another package builds"
RESNET = "a ResNet backbone"
CONV_STEM = "a convolutional stem"
MEAN_POOLING = "mean pooling"
ATTENTION_POOLING = "attention pooling (MAP)"
PRE_LOGITS = "a pre_logits layer"
NO_CLASS_ROW = "positions without a row for the class token"
SINCOS_2D = "the position embedding 'sincos_2d'"


def parts_of(config: ModelConfig) -> list[str]:
    """The parts of a network that a layout may lack, in words."""
    if isinstance(config, BitConfig):
        return [BIT]
    if isinstance(config, PeerConfig):
        return [PEER]
    parts = {
        RESNET: isinstance(config.backbone, ResNetConfig),
        CONV_STEM: isinstance(config.backbone, ConvStemConfig),
        MEAN_POOLING: config.pool == "mean",
        ATTENTION_POOLING: config.pool == "map",
        PRE_LOGITS: config.pre_logits is not None,
        NO_CLASS_ROW: _lacks_class_row(config),
        f"the position embedding {config.position!r}": config.position != "learned_1d",
        f"positions at {config.position_at!r}": config.position_at != "stem",
        "register tokens": config.registers > 0,
    }
    return [part for part, present in parts.items() if present]


def refuse_parts(layout: str, holds: frozenset[str], config: ModelConfig) -> None:
    """Refuse to write a network into a layout that lacks one of its parts."""
    for part in parts_of(config):
        if part not in holds:
            raise UsageError(f"the {layout} layout cannot hold {part}", fix="Use layout vitrail.")


def _lacks_class_row(config: VitConfig) -> bool:
    return config.class_token and config.position == "learned_1d" and not config.position_class_row
