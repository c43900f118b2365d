"""One small network of every kind that differs in what is exported."""

from collections.abc import Callable

from tests.exporting.conftest import lively

from vitrail.config import BitConfig, ConvLayerConfig, ConvStemConfig, ResNetConfig
from vitrail.models import Classifier, create_model

STEM = ConvStemConfig(
    layers=(
        ConvLayerConfig(channels=8, kernel_size=3, stride=2),
        ConvLayerConfig(channels=16, kernel_size=3, stride=2),
    )
)
SMALL_BIT = BitConfig(blocks=(1, 1, 1, 1), width=32, image_size=(64, 64), num_classes=5)

OVERRIDES: dict[str, dict] = {
    "plain": {},
    "without classes": {"num_classes": 0},
    "registers": {"registers": 3},
    "registers with rows, tanh layer": {"registers": 2, "position_register_rows": True, "pre_logits": 16},
    "no class row": {"position_class_row": False},
    "map pooling": {"pool": "map"},
    "mean pooling, erf": {"pool": "mean", "gelu": "erf"},
    "grey": {"channels": 1},
    "relative": {"position": "relative"},
    "learned_2d": {"position": "learned_2d", "registers": 1},
    "sincos_2d": {"position": "sincos_2d", "pool": "map"},
    "sinusoid_1d": {"position": "sinusoid_1d"},
    "no positions": {"position": "none"},
    "every layer": {"position_at": "every_layer"},
    "every layer, not square": {
        "position_at": "every_layer_shared",
        "image_size": (32, 48),
        "patch_size": (8, 16),
    },
    "hybrid": {"backbone": ResNetConfig(blocks=(1, 1), width=32), "patch_size": 1, "image_size": 64},
    "convolutional stem": {"backbone": STEM, "patch_size": 2},
}
NETWORKS: dict[str, Callable[[], Classifier]] = {
    **{
        name: lambda overrides=overrides: lively(create_model("vit-test", **overrides))
        for name, overrides in OVERRIDES.items()
    },
    "bit": lambda: lively(create_model(SMALL_BIT)),
    "bit, minus infinity": lambda: lively(create_model(SMALL_BIT, pool_padding="minus_infinity")),
}
