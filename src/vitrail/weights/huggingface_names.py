"""Hugging Face's names of ViTs: those in its files, and those its networks use in memory since version 5."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from torch import Tensor

from vitrail.config import ModelConfig, VitConfig, pair
from vitrail.errors import DataError, notice
from vitrail.weights.layout import Entry, count_numbered, module, shape_of
from vitrail.weights.library_config import Hints, guess_heads, number, position_rows, with_recorded_size
from vitrail.weights.stored_grid import grid_rule

Naming = Literal["file", "memory"]

_PATCH = "embeddings.patch_embeddings.projection"
_FOREIGN = {
    "distillation_token": "a distillation token (distilled DeiT)",
    "mask_token": "a mask token (masked image modelling)",
    "layer_scale": "LayerScale (DINOv2)",
    "register_tokens": "register tokens",
}
_GELUS = {
    "gelu": "erf",
    "gelu_python": "erf",
    "gelu_new": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "gelu_python_tanh": "tanh",
}

_FILE_PARTS = {
    "attention_norm": "layernorm_before",
    "attention.output": "attention.output.dense",
    "mlp_norm": "layernorm_after",
    "mlp.expand": "intermediate.dense",
    "mlp.contract": "output.dense",
}
_MEMORY_PARTS = {
    "attention_norm": "layernorm_before",
    "attention.output": "attention.o_proj",
    "mlp_norm": "layernorm_after",
    "mlp.expand": "mlp.fc1",
    "mlp.contract": "mlp.fc2",
}


def is_huggingface(names: set[str]) -> bool:
    """Whether the names are those of a Hugging Face ViT, with its head or alone."""
    return any(name.endswith(f"{_PATCH}.weight") for name in names)


def infer_huggingface(tensors: Mapping[str, Tensor], hints: Hints, where: str) -> VitConfig:
    """Read the network off the tensors and the config.json beside them."""
    for part, words in _FOREIGN.items():
        found = next((name for name in tensors if part in name), None)
        if found:
            raise DataError(f"{found!r} belongs to {words}, which no network here has", where=where)
    config, prefix, naming = hints.config, prefix_of(tensors), naming_of(tensors)
    layers, first = _layers(prefix, naming), "mlp.fc1" if naming == "memory" else "intermediate.dense"
    width, channels, patch_height, patch_width = shape_of(tensors, f"{prefix}{_PATCH}.weight", 4, where)
    depth = count_numbered(tensors, layers, where)
    mlp_width = shape_of(tensors, f"{layers}0.{first}.weight", 2, where)[0]
    rows = shape_of(tensors, f"{prefix}embeddings.position_embeddings", 3, where)[1]
    grid_of = grid_rule((patch_height, patch_width), None)
    hints = with_recorded_size(hints, config.get("image_size"), rows - 1, grid_of, where)
    _, grid = position_rows(rows, (1,), grid_of, hints, where)
    stored_size = hints.source_image_size or (grid[0] * patch_height, grid[1] * patch_width)
    activation = config.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in _GELUS:
        raise DataError(f"the activation is {activation!r}", wanted=f"one of {', '.join(_GELUS)}", where=where)
    pooler = f"{prefix}pooler.dense.weight"
    if pooler in tensors and config.get("pooler_act", "tanh") != "tanh":
        raise DataError(f"pooler_act in config.json is {config['pooler_act']!r}", wanted="'tanh'", where=where)
    return VitConfig(
        width=width,
        depth=depth,
        num_heads=guess_heads(width, depth, mlp_width, hints, where),
        mlp_width=mlp_width,
        patch_size=(patch_height, patch_width),
        image_size=pair(stored_size, "image_size"),
        channels=channels,
        num_classes=len(tensors["classifier.weight"]) if "classifier.weight" in tensors else 0,
        pre_logits=shape_of(tensors, pooler, 2, where)[0] if pooler in tensors else None,
        gelu="tanh" if _GELUS[activation] == "tanh" else "erf",
        layer_norm_epsilon=number(config, "layer_norm_eps", 1e-12, where),
        dropout=number(config, "hidden_dropout_prob", 0.0, where),
        attention_dropout=number(config, "attention_probs_dropout_prob", 0.0, where),
    )


def huggingface_entries(config: ModelConfig, prefix: str = "vit.", naming: Naming = "file") -> list[Entry]:
    """Every tensor of a Hugging Face ViT."""
    if not isinstance(config, VitConfig):
        raise TypeError("Hugging Face's ViT is no BiT")
    return [
        Entry("class_token", (f"{prefix}embeddings.cls_token",), "1 rows dim -> rows dim"),
        Entry("positions.0.table", (f"{prefix}embeddings.position_embeddings",), "1 rows dim -> rows dim"),
        *module("embedding.projection", f"{prefix}{_PATCH}"),
        *(entry for block in range(config.depth) for entry in _block(block, prefix, naming)),
        *module("norm", f"{prefix}layernorm"),
        *(module("pre_logits", f"{prefix}pooler.dense") if config.pre_logits else ()),
        *(module("head", "classifier") if config.num_classes else ()),
    ]


def without_idle_pooler(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """A network with a classifier does not use the pooler that may still lie in its file."""
    idle = [name for name in tensors if ".pooler.dense." in f".{name}"] if "classifier.weight" in tensors else []
    if idle:
        notice(f"{where}: the pooler is left aside, because the classifier does not read it.")
    return {name: tensor for name, tensor in tensors.items() if name not in idle}


def prefix_of(tensors: Mapping[str, Tensor]) -> str:
    """`vit.` where a head wraps the network, else nothing."""
    name = next(name for name in tensors if name.endswith(f"{_PATCH}.weight"))
    return name.removesuffix(f"{_PATCH}.weight")


def naming_of(tensors: Mapping[str, Tensor]) -> Naming:
    """Which of the two namings a state dict follows."""
    return "memory" if any(name.endswith(".attention.q_proj.weight") for name in tensors) else "file"


def labels_of(config: Mapping[str, Any], num_classes: int) -> tuple[str, ...] | None:
    """Class names, unless they are the placeholders that the library makes up."""
    names = config.get("id2label")
    if not num_classes or not isinstance(names, dict) or set(names) != {str(index) for index in range(num_classes)}:
        return None
    labels = tuple(str(names[str(index)]) for index in range(num_classes))
    return None if all(label == f"LABEL_{index}" for index, label in enumerate(labels)) else labels


def _block(block: int, prefix: str, naming: Naming) -> Iterator[Entry]:
    ours, theirs = f"blocks.{block}", f"{_layers(prefix, naming)}{block}"
    in_file = naming == "file"
    letters = ("query", "key", "value") if in_file else ("q_proj", "k_proj", "v_proj")
    attention = f"{theirs}.attention.attention" if in_file else f"{theirs}.attention"
    weights = tuple(f"{attention}.{letter}.weight" for letter in letters)
    biases = tuple(f"{attention}.{letter}.bias" for letter in letters)
    sizes = {"parts": 3}
    yield Entry(f"{ours}.attention.qkv.weight", weights, "parts outputs inputs -> (parts outputs) inputs", sizes)
    yield Entry(f"{ours}.attention.qkv.bias", biases, "parts outputs -> (parts outputs)", sizes)
    for mine, other in (_FILE_PARTS if in_file else _MEMORY_PARTS).items():
        yield from module(f"{ours}.{mine}", f"{theirs}.{other}")


def _layers(prefix: str, naming: Naming) -> str:
    return f"{prefix}encoder.layer." if naming == "file" else f"{prefix}layers."
