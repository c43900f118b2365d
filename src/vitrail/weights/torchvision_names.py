"""torchvision's names of ViTs, with or without its convolutional stem."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from vitrail.config import ConvLayerConfig, ConvStemConfig, ModelConfig, VitConfig
from vitrail.errors import DataError
from vitrail.weights.layout import Entry, count_numbered, module, shape_of
from vitrail.weights.library_config import Hints, guess_heads, position_rows
from vitrail.weights.stored_grid import grid_rule

NUMERICS = {"gelu": "erf", "layer_norm_epsilon": 1e-6, "batch_norm_epsilon": 1e-5}
_LAYER = "encoder.layers.encoder_layer_"
_POSITION = "encoder.pos_embedding"
# Before 0.12 the two layers of the MLP had names of their own.
_OLD_MLP = {"mlp.linear_1.": "mlp.0.", "mlp.linear_2.": "mlp.3."}


def is_torchvision(names: set[str]) -> bool:
    """Whether the names are those of a torchvision ViT."""
    return _POSITION in names and any(name.startswith("conv_proj.") for name in names)


def modern_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names of today for files of any age."""
    renamed = dict(tensors)
    for old, new in _OLD_MLP.items():
        renamed = {name.replace(old, new): tensor for name, tensor in renamed.items()}
    return renamed


def infer_torchvision(tensors: Mapping[str, Tensor], hints: Hints, where: str) -> VitConfig:
    """Read the network off the tensors; torchvision's files say nothing else."""
    stem = _infer_stem(tensors, where)
    projection = "conv_proj.conv_last.weight" if stem else "conv_proj.weight"
    width, inputs, patch_height, patch_width = shape_of(tensors, projection, 4, where)
    depth = count_numbered(tensors, _LAYER, where)
    mlp_width = shape_of(tensors, f"{_LAYER}0.mlp.0.weight", 2, where)[0]
    rows = shape_of(tensors, _POSITION, 3, where)[1]
    _, grid = position_rows(rows, (1,), grid_rule((patch_height, patch_width), stem), hints, where)
    stride = stem.stride if stem else 1
    pre_logits = "heads.pre_logits.weight"
    return VitConfig(
        width=width,
        depth=depth,
        num_heads=guess_heads(width, depth, mlp_width, hints, where),
        mlp_width=mlp_width,
        patch_size=(patch_height, patch_width),
        image_size=(grid[0] * patch_height * stride, grid[1] * patch_width * stride),
        channels=tensors["conv_proj.conv_bn_relu_0.0.weight"].shape[1] if stem else inputs,
        backbone=stem,
        num_classes=len(tensors["heads.head.weight"]) if "heads.head.weight" in tensors else 0,
        pre_logits=shape_of(tensors, pre_logits, 2, where)[0] if pre_logits in tensors else None,
        gelu="erf",
        layer_norm_epsilon=1e-6,
    )


def torchvision_entries(config: ModelConfig) -> list[Entry]:
    """Every tensor of a torchvision state dict."""
    if not isinstance(config, VitConfig):
        raise TypeError("torchvision has no BiT")
    stem = config.backbone if isinstance(config.backbone, ConvStemConfig) else None
    return [
        *(_stem(stem) if stem else ()),
        *module("embedding.projection", "conv_proj.conv_last" if stem else "conv_proj"),
        Entry("class_token", ("class_token",), "1 rows dim -> rows dim"),
        Entry("positions.0.table", (_POSITION,), "1 rows dim -> rows dim"),
        *(entry for block in range(config.depth) for entry in _block(block)),
        *module("norm", "encoder.ln"),
        *(module("pre_logits", "heads.pre_logits") if config.pre_logits else ()),
        *(module("head", "heads.head") if config.num_classes else ()),
    ]


def _block(block: int) -> Iterator[Entry]:
    ours, theirs = f"blocks.{block}", f"{_LAYER}{block}"
    yield from module(f"{ours}.attention_norm", f"{theirs}.ln_1")
    yield Entry(f"{ours}.attention.qkv.weight", (f"{theirs}.self_attention.in_proj_weight",))
    yield Entry(f"{ours}.attention.qkv.bias", (f"{theirs}.self_attention.in_proj_bias",))
    yield from module(f"{ours}.attention.output", f"{theirs}.self_attention.out_proj")
    yield from module(f"{ours}.mlp_norm", f"{theirs}.ln_2")
    yield from module(f"{ours}.mlp.expand", f"{theirs}.mlp.0")
    yield from module(f"{ours}.mlp.contract", f"{theirs}.mlp.3")


def _stem(config: ConvStemConfig) -> Iterator[Entry]:
    for layer in range(len(config.layers)):
        ours, theirs = f"embedding.backbone.layers.{layer}", f"conv_proj.conv_bn_relu_{layer}"
        yield Entry(f"{ours}.convolution.weight", (f"{theirs}.0.weight",))
        for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            yield Entry(f"{ours}.norm.{part}", (f"{theirs}.1.{part}",))


def _infer_stem(tensors: Mapping[str, Tensor], where: str) -> ConvStemConfig | None:
    count = count_numbered(tensors, "conv_proj.conv_bn_relu_", where)
    if not count:
        return None
    shapes = [shape_of(tensors, f"conv_proj.conv_bn_relu_{layer}.0.weight", 4, where) for layer in range(count)]
    for layer, (_, _, height, width) in enumerate(shapes):
        if height != width:
            raise DataError(f"the stem's convolution {layer} is {height}x{width}", wanted="a square one", where=where)
    # Strides are not recorded; those of the published stems are 2.
    layers = tuple(ConvLayerConfig(channels=outputs, kernel_size=side) for outputs, _, side, _ in shapes)
    return ConvStemConfig(layers=layers)
