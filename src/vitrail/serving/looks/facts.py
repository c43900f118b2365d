"""What is known of a model before it is asked anything: the answer of GET /v1/model."""

import dataclasses
from pathlib import Path
from typing import Any

from vitrail.config import BitConfig, ConvStemConfig, ModelConfig, PeerConfig, ResNetConfig, VitConfig, times, to_json
from vitrail.config.serve import ServeConfig
from vitrail.config.vit import ADDITIVE_POSITIONS
from vitrail.prediction import Predictor
from vitrail.zoo import ZOO

# What decides the name of a network; size of the image, classes and numerics do not.
_NAMED_BY = ("width", "depth", "num_heads", "mlp_width", "patch_size", "backbone", "blocks", "package", "name")
_FOLDERS_WITHOUT_A_NAME = ("model", "best", ".", "")


def model_facts(config: ServeConfig, predictor: Predictor, generation: int, *, has_network: bool) -> dict[str, Any]:
    """Everything a page needs to know; `has_network` says whether torch can look inside."""
    network = network_config(predictor)
    described = predictor.described
    return {
        "name": _name(config.source),
        "generation": generation,
        "network": display_name(network),
        "kind": _kind(network),
        "parameters": _known_parameters(network),
        "backend": predictor.backend.name,
        "labels": None if described.labels is None else list(described.labels),
        "num_classes": network.num_classes,
        "channels": network.channels,
        "image_size": list(network.image_size),
        "patch_size": list(network.pixels_per_patch) if isinstance(network, VitConfig) else None,
        "grid": list(network.grid),
        "tokens": network.tokens,
        "stem": _stem(network),
        **_encoder(network),
        "loss": "sigmoid" if described.provenance.get("loss") == "sigmoid" else "softmax",
        "preprocessing": to_json(described.preprocessing),
        "can": abilities(network, has_network=has_network),
        "limits": {"bytes": config.max_bytes, "pixels": config.max_pixels, "seconds": config.deadline},
    }


def network_config(predictor: Predictor) -> ModelConfig:
    """The config at the size that images are fitted to; an exported file may take others than its own."""
    return dataclasses.replace(predictor.described.config, image_size=predictor.size)


def cell_size(network: ModelConfig) -> tuple[int, int]:
    """Pixels of the image that one cell of the grid stands for."""
    if isinstance(network, VitConfig):
        return network.pixels_per_patch
    (height, width), (rows, columns) = network.image_size, network.grid
    return -(-height // rows), -(-width // columns)


def display_name(network: ModelConfig) -> str:
    """The name that the paper prints, or a description for a network that has none."""
    found = next((row.name for row in ZOO.values() if _shape(row.config) == _shape(network)), None)
    if found is not None:
        return found
    if isinstance(network, PeerConfig):
        return network.title
    if isinstance(network, BitConfig):
        return f"BiT, {' + '.join(map(str, network.blocks))} units, width {network.width}"
    start = "hybrid" if _kind(network) == "hybrid" else "ViT"
    if isinstance(network.backbone, ConvStemConfig):
        start += f" behind {len(network.backbone.layers)} convolutions"
    return f"{start}, {network.depth} layers, width {network.width}, patches of {times(network.pixels_per_patch)}"


def _shape(network: ModelConfig) -> tuple[Any, ...]:
    return type(network), *(getattr(network, name, None) for name in _NAMED_BY)


def _kind(network: ModelConfig) -> str:
    if not isinstance(network, VitConfig):
        return "bit" if isinstance(network, BitConfig) else "peer"
    return "hybrid" if isinstance(network.backbone, ResNetConfig) else "vit"


def _stem(network: ModelConfig) -> dict[str, Any] | None:
    """What reads the image before it is cut into patches: its map is cut, not the image (3.1, hybrids)."""
    if not isinstance(network, VitConfig) or network.backbone is None:
        return None
    convolutions = len(network.backbone.layers) if isinstance(network.backbone, ConvStemConfig) else None
    return {
        "convolutions": convolutions,
        "map": [*network.feature_size, network.backbone.channels],
        "patch_size": list(network.patch_size),
    }


def _known_parameters(network: ModelConfig) -> int | None:
    """Of a network that is in the zoo as it stands; others are counted once torch has loaded them."""
    return next((row.parameters for row in ZOO.values() if row.config == network and row.parameters), None)


def _encoder(network: ModelConfig) -> dict[str, Any]:
    """The numbers of Table 1, where the network has an encoder."""
    if not isinstance(network, VitConfig):
        nothing = dict.fromkeys(("depth", "num_heads", "head_dim", "mlp_width"))
        return {
            "prefix_tokens": 0,
            "class_token": False,
            "registers": 0,
            "width": network.feature_width if isinstance(network, BitConfig) else None,
            **nothing,
            "position": None,
            "pool": "mean",
        }
    return {
        "prefix_tokens": network.prefix_tokens,
        "class_token": network.class_token,
        "registers": network.registers,
        "width": network.width,
        "depth": network.depth,
        "num_heads": network.num_heads,
        "head_dim": network.width // network.num_heads,
        "mlp_width": network.mlp_width,
        "position": network.position,
        "pool": network.pool,
    }


def abilities(network: ModelConfig, *, has_network: bool) -> dict[str, bool]:
    """What can be asked. Answers and covers need the backend alone, looking inside needs torch and attention."""
    has_classes = network.num_classes > 0
    is_transformer = has_network and isinstance(network, VitConfig)
    return {
        "predictions": has_classes,
        "embeddings": True,
        "attention": is_transformer,
        "rollout": is_transformer,
        "lens": is_transformer and has_classes,
        "distance": is_transformer,
        "positions": is_transformer and getattr(network, "position", None) in ADDITIVE_POSITIONS,
        "filters": has_network,
        "occlusion": has_classes,
    }


def _name(source: str) -> str:
    """What people call the model; never the folders above it, which are nobody's business."""
    path = Path(source)
    return path.parent.name if path.name in _FOLDERS_WITHOUT_A_NAME and path.parent.name else path.name or source
