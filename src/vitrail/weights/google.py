"""Google's .npz checkpoints: read off the arrays what network they are, and write one back."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from vitrail.config import (
    BitConfig,
    ModelConfig,
    PeerConfig,
    ResNetConfig,
    VitConfig,
    from_json,
    pair,
    preset,
    times,
    to_json,
)
from vitrail.errors import DataError, notice
from vitrail.weights.checkpoint import Checkpoint, expected_shapes
from vitrail.weights.google_bit import LAYOUT, bit_arrays, is_bit, read_bit
from vitrail.weights.google_blocks import is_stacked, stack, unstack
from vitrail.weights.google_names import STEM_POSITION, TOP_POSITION, GoogleStyle, vit_entries
from vitrail.weights.layout import count_numbered, count_units, read_entries, shape_of, write_entries
from vitrail.weights.npz_file import read_npz, write_npz
from vitrail.weights.numerics import with_numerics
from vitrail.weights.stored_grid import grid_rule, stored_grid

Size = int | tuple[int, int]
_PREFIXES = ("opt/target/", "params/img/", "params/", "")
# Our defaults are the original's numerics.
VIT_NUMERICS = {"gelu": "tanh", "layer_norm_epsilon": 1e-6}
HYBRID_NUMERICS = {"group_norm_epsilon": 1e-6, "standardisation": "std", "standardisation_epsilon": 1e-5}
BIT_NUMERICS = {
    "group_norm_epsilon": 1e-5,
    "standardisation": "variance",
    "standardisation_epsilon": 1e-10,
    "pool_padding": "zero",
}


def read_google(path: Path, *, image_size: Size | None = None, source_image_size: Size | None = None) -> Checkpoint:
    """Read a ViT, hybrid or BiT checkpoint of any of the naming generations."""
    where = str(path)
    found = read_npz(path)
    if is_bit(found):
        return read_bit(found, path)
    arrays, style = _plain_names(found, where)
    config = _infer_config(arrays, style, image_size, source_image_size, where)
    state = read_entries(vit_entries(config, style), arrays, expected_shapes(config), where)
    return Checkpoint(
        config=config,
        state=state,
        preprocessing=preset("google"),
        provenance={"layout": LAYOUT, "file": path.name, "style": to_json(style)},
    )


def write_google(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint in the style it came in, else with the published names."""
    config = checkpoint.config
    if checkpoint.labels is not None:
        notice("A .npz cannot hold class names: those of this network are left out.")
    if checkpoint.preprocessing not in (None, preset("google")):
        notice("A .npz cannot hold preprocessing: its readers take 'google', this network has another.")
    assert not isinstance(config, PeerConfig), "refused before"
    arrays = bit_arrays(checkpoint, config) if isinstance(config, BitConfig) else _vit_arrays(checkpoint, config)
    write_npz(path, {name: array.float() for name, array in arrays.items()})


def google_numerics(config: ModelConfig) -> ModelConfig:
    """The network that a reader of the file computes: a .npz says nothing about numerics."""
    numerics = BIT_NUMERICS if isinstance(config, BitConfig) else VIT_NUMERICS | HYBRID_NUMERICS
    return with_numerics(config, **numerics)


def _vit_arrays(checkpoint: Checkpoint, config: VitConfig) -> dict[str, Tensor]:
    style = _writing_style(config, _remembered(checkpoint))
    arrays = write_entries(vit_entries(config, style), checkpoint.state)
    if style.scanned:
        arrays = stack(arrays, config.depth)
    return {style.prefix + name: array for name, array in arrays.items()}


def _writing_style(config: VitConfig, remembered: GoogleStyle | None) -> GoogleStyle:
    big_vision = GoogleStyle(prefix="params/", numbering="linen", position="top")
    if remembered is None:
        only_big_vision = config.position == "sincos_2d" or config.pool == "map"
        remembered = big_vision if only_big_vision else GoogleStyle()
    if config.class_token and config.position == "learned_1d":
        fits = config.position_class_row == (remembered.position == "stem")
        return remembered if fits else GoogleStyle() if config.position_class_row else big_vision
    return remembered


def _remembered(checkpoint: Checkpoint) -> GoogleStyle | None:
    if checkpoint.provenance.get("layout") != LAYOUT:
        return None
    style = from_json(GoogleStyle, checkpoint.provenance.get("style", {}), where="provenance, 'style'")
    if style.prefix not in _PREFIXES:
        raise DataError(f"the prefix is {style.prefix!r}", wanted=f"one of {_PREFIXES}", where="provenance, 'style'")
    return style


def _plain_names(arrays: Mapping[str, Tensor], where: str) -> tuple[dict[str, Tensor], GoogleStyle]:
    prefix = next((prefix for prefix in _PREFIXES if f"{prefix}embedding/kernel" in arrays), None)
    if prefix is None:
        seen = ", ".join(sorted(arrays)[:3]) or "no arrays"
        raise DataError(
            f"there is no array 'embedding/kernel' (found {seen})",
            wanted="a ViT, hybrid or BiT checkpoint",
            where=where,
        )
    inside = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    outside = sorted(name for name in arrays if not name.startswith(prefix))
    if outside:
        notice(f"{where}: {len(outside)} arrays outside '{prefix}' were left aside ({outside[0]}, ...).")
    style = _detect_style(inside, prefix)
    return (unstack(inside, where) if style.scanned else inside), style


def _detect_style(arrays: Mapping[str, Tensor], prefix: str) -> GoogleStyle:
    linen = any("/MlpBlock_0/" in name and name.startswith("Transformer/") for name in arrays)
    root = arrays.get("gn_root/scale")
    return GoogleStyle(
        prefix=prefix,
        numbering="linen" if linen else "pre_linen",
        scanned=is_stacked(set(arrays)),
        position="stem" if STEM_POSITION in arrays or not linen else "top",
        group_norm_axes=root.ndim if root is not None and root.ndim == 1 else 4,
    )


def _infer_config(
    arrays: Mapping[str, Tensor],
    style: GoogleStyle,
    image_size: Size | None,
    source_image_size: Size | None,
    where: str,
) -> VitConfig:
    block = "Transformer/encoderblock_0"
    _, attention, _, mlp = style.block_parts
    patch_height, patch_width, channels, width = shape_of(arrays, "embedding/kernel", 4, where)
    backbone = _infer_backbone(arrays, where)
    class_token = "cls" in arrays
    class_row = class_token and style.position == "stem"
    position = STEM_POSITION if style.position == "stem" else TOP_POSITION
    if position in arrays:
        rows = shape_of(arrays, position, 3, where)[1] - class_row
        grid_of = grid_rule((patch_height, patch_width), backbone)
        grid = stored_grid(rows, grid_of, image_size=image_size, source_image_size=source_image_size, where=where)
        stride = backbone.stride if backbone else 1
        stored_size = (grid[0] * patch_height * stride, grid[1] * patch_width * stride)
    elif style.numbering == "linen":
        stored_size = _size_without_positions(image_size, source_image_size, where)
    else:
        raise DataError(f"the array {position!r} is missing", where=where)
    return VitConfig(
        width=width,
        depth=count_numbered(arrays, "Transformer/encoderblock_", where),
        num_heads=shape_of(arrays, f"{block}/{attention}/query/kernel", 3, where)[1],
        mlp_width=shape_of(arrays, f"{block}/{mlp}/Dense_0/kernel", 2, where)[1],
        patch_size=(patch_height, patch_width),
        image_size=stored_size,
        channels=shape_of(arrays, "conv_root/kernel", 4, where)[2] if backbone else channels,
        backbone=backbone,
        num_classes=shape_of(arrays, "head/kernel", 2, where)[1] if "head/kernel" in arrays else 0,
        pool="token" if class_token else "map" if "MAPHead_0/probe" in arrays else "mean",
        pre_logits=shape_of(arrays, "pre_logits/kernel", 2, where)[1] if "pre_logits/kernel" in arrays else None,
        position="learned_1d" if position in arrays else "sincos_2d",
        position_class_row=class_row or not class_token,
    )


def _infer_backbone(arrays: Mapping[str, Tensor], where: str) -> ResNetConfig | None:
    if "conv_root/kernel" not in arrays:
        return None
    return ResNetConfig(
        blocks=count_units(arrays, "block", where), width=shape_of(arrays, "conv_root/kernel", 4, where)[3]
    )


def _size_without_positions(image_size: Size | None, source_image_size: Size | None, where: str) -> tuple[int, int]:
    asked = source_image_size or image_size
    if asked is not None:
        return pair(asked, "image_size")
    notice(f"{where}: without a position array the image size is not recorded; it is taken as {times((224, 224))}.")
    return 224, 224
