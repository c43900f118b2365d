"""timm's names of ViTs, hybrids and BiT ResNets, and what its files say of the network."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from vitrail.config import BitConfig, ModelConfig, ResNetConfig, VitConfig
from vitrail.errors import DataError
from vitrail.weights.layout import Entry, count_numbered, module, shape_of
from vitrail.weights.library_config import Hints, guess_heads, position_rows, with_recorded_size
from vitrail.weights.stored_grid import grid_rule

NUMERICS = {
    "gelu": "erf",
    "layer_norm_epsilon": 1e-6,
    "group_norm_epsilon": 1e-5,
    "standardisation": "variance",
    "standardisation_epsilon": 1e-8,
    "pool_padding": "zero",
}
_PATCH = "patch_embed.proj.weight"
_BIT_ROOT = "stem.conv.weight"
_BACKBONE = "patch_embed.backbone"
# Parts that timm builds and no network here has, by what gives them away.
_FOREIGN = {
    "dist_token": "a distillation token (distilled DeiT)",
    "head_dist": "a distillation head (distilled DeiT)",
    ".ls1.": "LayerScale",
    ".gamma_1": "LayerScale",
    ".q_norm.": "norms of queries and keys",
    "attn_pool.": "timm's attention pooling",
    "fc_norm.": "a norm after mean pooling",
    "norm_pre.": "a norm before the blocks",
    "reg_token": "register tokens",
}
_GELUS = {None: "erf", "gelu": "erf", "gelu_tanh": "tanh"}


def is_timm(names: set[str]) -> bool:
    """Whether the names are those of a timm ViT, hybrid or BiT."""
    return _PATCH in names or (_BIT_ROOT in names and "stages.0.blocks.0.conv1.weight" in names)


def infer_timm(tensors: Mapping[str, Tensor], hints: Hints, where: str) -> ModelConfig:
    """Read the network off the tensors and the config.json that may travel with them."""
    for part, words in _FOREIGN.items():
        found = next((name for name in tensors if part in name), None)
        if found:
            raise DataError(f"{found!r} belongs to {words}, which no network here has", where=where)
    return _infer_vit(tensors, hints, where) if _PATCH in tensors else _infer_bit(tensors, where)


def timm_entries(config: ModelConfig) -> list[Entry]:
    """Every tensor of a timm state dict."""
    if isinstance(config, BitConfig):
        return [
            Entry("root.weight", (_BIT_ROOT,)),
            *_stages("stages", "stages", config.blocks, norms=False),
            *module("norm", "norm"),
            *(_bit_head() if config.num_classes else ()),
        ]
    if not isinstance(config, VitConfig):
        raise TypeError("a network of another kind has no names here")
    backbone = config.backbone
    return [
        *(_resnet(backbone) if isinstance(backbone, ResNetConfig) else ()),
        *module("embedding.projection", "patch_embed.proj"),
        Entry("class_token", ("cls_token",), "1 rows dim -> rows dim"),
        Entry("positions.0.table", ("pos_embed",), "1 rows dim -> rows dim"),
        *(entry for block in range(config.depth) for entry in _block(block)),
        *module("norm", "norm"),
        *(module("head", "head") if config.num_classes else ()),
    ]


def _block(block: int) -> Iterator[Entry]:
    parts = {
        "attention_norm": "norm1",
        "attention.qkv": "attn.qkv",
        "attention.output": "attn.proj",
        "mlp_norm": "norm2",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    }
    for ours, theirs in parts.items():
        yield from module(f"blocks.{block}.{ours}", f"blocks.{block}.{theirs}")


def _resnet(config: ResNetConfig) -> Iterator[Entry]:
    """The root is called stem where stages follow it, and stands alone where none do."""
    ours, stem = "embedding.backbone", f"{_BACKBONE}.stem" if config.blocks else _BACKBONE
    yield Entry(f"{ours}.root.convolution.weight", (f"{stem}.conv.weight",))
    yield from module(f"{ours}.root.norm", f"{stem}.norm")
    yield from _stages(f"{ours}.stages", f"{_BACKBONE}.stages", config.blocks, norms=True)


def _stages(ours: str, theirs: str, blocks: tuple[int, ...], *, norms: bool) -> Iterator[Entry]:
    for stage, units in enumerate(blocks):
        for unit in range(units):
            mine, other = f"{ours}.{stage}.{unit}", f"{theirs}.{stage}.blocks.{unit}"
            for number in (1, 2, 3):
                yield Entry(f"{mine}.convolution{number}.weight", (f"{other}.conv{number}.weight",))
                yield from module(f"{mine}.norm{number}", f"{other}.norm{number}")
            if unit == 0:
                yield Entry(f"{mine}.projection.weight", (f"{other}.downsample.conv.weight",))
                yield from module(f"{mine}.projection_norm", f"{other}.downsample.norm") if norms else ()


def _bit_head() -> Iterator[Entry]:
    yield Entry("head.weight", ("head.fc.weight",), "outputs inputs 1 1 -> outputs inputs")
    yield Entry("head.bias", ("head.fc.bias",))


def _infer_vit(tensors: Mapping[str, Tensor], hints: Hints, where: str) -> VitConfig:
    width, inputs, patch_height, patch_width = shape_of(tensors, _PATCH, 4, where)
    depth = count_numbered(tensors, "blocks.", where)
    mlp_width = shape_of(tensors, "blocks.0.mlp.fc1.weight", 2, where)[0]
    backbone, channels = _infer_backbone(tensors, where)
    _refuse_recorded(hints, where)
    rows = shape_of(tensors, "pos_embed", 3, where)[1]
    grid_of = grid_rule((patch_height, patch_width), backbone)
    for prefix in (1, 0):
        hints = with_recorded_size(hints, _recorded_size(hints), rows - prefix, grid_of, where)
    class_rows, grid = position_rows(rows, (1, 0), grid_of, hints, where)
    stride = backbone.stride if backbone else 1
    return VitConfig(
        width=width,
        depth=depth,
        num_heads=guess_heads(width, depth, mlp_width, hints, where),
        mlp_width=mlp_width,
        patch_size=(patch_height, patch_width),
        image_size=(grid[0] * patch_height * stride, grid[1] * patch_width * stride),
        channels=channels if backbone else inputs,
        backbone=backbone,
        num_classes=len(tensors["head.weight"]) if "head.weight" in tensors else 0,
        position_class_row=bool(class_rows),
        gelu="tanh" if _gelu(hints, where) == "tanh" else "erf",
        layer_norm_epsilon=1e-6,
    )


def _refuse_recorded(hints: Hints, where: str) -> None:
    """Settings that leave no trace in the tensors and change the function."""
    pool, block = hints.recorded("global_pool"), hints.recorded("block_fn")
    if pool not in (None, "token"):
        raise DataError(f"the config records the pooling {pool!r}", wanted="'token'", where=where)
    if block is not None:
        raise DataError(f"the config records blocks of another kind ({block!r})", where=where)


def _recorded_size(hints: Hints) -> Any:
    size, settings = hints.recorded("img_size"), hints.recorded("input_size")
    return size if size is not None else settings[1:] if isinstance(settings, list | tuple) else None


def _gelu(hints: Hints, where: str) -> str:
    activation = hints.recorded("act_layer")
    if not isinstance(activation, str | None) or activation not in _GELUS:
        raise DataError(f"the activation is {activation!r}", wanted="gelu or gelu_tanh", where=where)
    return _GELUS[activation]


def _infer_backbone(tensors: Mapping[str, Tensor], where: str) -> tuple[ResNetConfig | None, int]:
    """The ResNet and the channels of its input; none and 0 where the image itself is cut."""
    if not any(name.startswith(_BACKBONE) for name in tensors):
        return None, 0
    blocks = _count_units(tensors, f"{_BACKBONE}.stages", where)
    stem = f"{_BACKBONE}.stem" if blocks else _BACKBONE
    width, channels, _, _ = shape_of(tensors, f"{stem}.conv.weight", 4, where)
    resnet = ResNetConfig(
        blocks=blocks,
        width=width,
        group_norm_epsilon=1e-5,
        standardisation="variance",
        standardisation_epsilon=1e-8,
    )
    return resnet, channels


def _infer_bit(tensors: Mapping[str, Tensor], where: str) -> BitConfig:
    width, channels, _, _ = shape_of(tensors, _BIT_ROOT, 4, where)
    blocks = _count_units(tensors, "stages", where)
    if len(blocks) != 4:
        raise DataError(f"there are {len(blocks)} stages", wanted="4", where=where)
    return BitConfig(
        blocks=(blocks[0], blocks[1], blocks[2], blocks[3]),
        width=width,
        channels=channels,
        num_classes=len(tensors["head.fc.weight"]) if "head.fc.weight" in tensors else 0,
        standardisation_epsilon=1e-8,
    )


def _count_units(tensors: Mapping[str, Tensor], prefix: str, where: str) -> tuple[int, ...]:
    stages = count_numbered(tensors, f"{prefix}.", where)
    return tuple(count_numbered(tensors, f"{prefix}.{stage}.blocks.", where) for stage in range(stages))
