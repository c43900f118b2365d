"""Google's .npz checkpoints: read off the arrays what network they are, and write one back."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from vitrail.config import VitConfig, from_json, pair, preset, times, to_json
from vitrail.errors import DataError, UsageError, notice
from vitrail.weights import google_names as names
from vitrail.weights.checkpoint import Checkpoint, expected_shapes
from vitrail.weights.google_names import GoogleStyle
from vitrail.weights.layout import read_entries, write_entries
from vitrail.weights.npz_file import read_npz, write_npz
from vitrail.weights.stored_grid import stored_grid

LAYOUT = "google"
Size = int | tuple[int, int]


def read_google(path: Path, *, image_size: Size | None = None, source_image_size: Size | None = None) -> Checkpoint:
    """Read a ViT checkpoint of any of the naming generations."""
    where = str(path)
    arrays, style = _plain_names(read_npz(path), where)
    config = _infer_config(arrays, style, image_size, source_image_size, where)
    state = read_entries(names.entries(config, style), arrays, expected_shapes(config), where)
    return Checkpoint(
        config=config,
        state=state,
        preprocessing=preset("google"),
        provenance={"layout": LAYOUT, "file": path.name, "style": to_json(style)},
    )


def write_google(path: Path, checkpoint: Checkpoint) -> None:
    """Write a ViT checkpoint in the style it came in, else with the published 2020 names."""
    if path.suffix != ".npz":
        raise UsageError(f"the google layout cannot be written to {str(path)!r}", wanted="a name that ends in .npz")
    config, style = checkpoint.config, names.writing_style(checkpoint.config, _remembered(checkpoint))
    arrays = write_entries(names.entries(config, style), checkpoint.state)
    if style.scanned:
        arrays = names.stack(arrays, config.depth)
    write_npz(path, {style.prefix + name: array.float() for name, array in arrays.items()})


def _remembered(checkpoint: Checkpoint) -> GoogleStyle | None:
    if checkpoint.provenance.get("layout") != LAYOUT:
        return None
    return from_json(GoogleStyle, checkpoint.provenance.get("style", {}), where="provenance, 'style'")


def _plain_names(arrays: Mapping[str, Tensor], where: str) -> tuple[dict[str, Tensor], GoogleStyle]:
    prefix = next((prefix for prefix in names.PREFIXES if f"{prefix}embedding/kernel" in arrays), None)
    if prefix is None:
        seen = ", ".join(sorted(arrays)[:3]) or "no arrays"
        raise DataError(f"there is no array 'embedding/kernel' (found {seen})", wanted="a ViT checkpoint", where=where)
    inside = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    outside = sorted(name for name in arrays if not name.startswith(prefix))
    if outside:
        notice(f"{where}: {len(outside)} arrays outside '{prefix}' were left aside ({outside[0]}, ...).")
    style = names.detect_style(set(inside), prefix)
    return (names.unstack(inside, where) if style.scanned else inside), style


def _infer_config(
    arrays: Mapping[str, Tensor],
    style: GoogleStyle,
    image_size: Size | None,
    source_image_size: Size | None,
    where: str,
) -> VitConfig:
    def shape(name: str, axes: int) -> tuple[int, ...]:
        if name not in arrays:
            raise DataError(f"the array {name!r} is missing", where=where)
        if arrays[name].ndim != axes:
            raise DataError(f"the array {name!r} has {arrays[name].ndim} axes", wanted=f"{axes}", where=where)
        return tuple(arrays[name].shape)

    block = "Transformer/encoderblock_0"
    _, attention, _, mlp = style.parts
    patch_height, patch_width, channels, width = shape("embedding/kernel", 4)
    patch_size = (patch_height, patch_width)
    class_token = "cls" in arrays
    position = names.STEM_POSITION if style.position == "stem" else names.TOP_POSITION
    class_row = class_token and style.position == "stem"
    if position in arrays:
        rows = shape(position, 3)[1] - class_row
        grid = stored_grid(rows, patch_size, image_size=image_size, source_image_size=source_image_size, where=where)
        stored_size = (grid[0] * patch_height, grid[1] * patch_width)
    else:
        stored_size = _size_without_positions(image_size, source_image_size, where)
    return VitConfig(
        width=width,
        depth=names.count_blocks(arrays, where),
        num_heads=shape(f"{block}/{attention}/query/kernel", 3)[1],
        mlp_width=shape(f"{block}/{mlp}/Dense_0/kernel", 2)[1],
        patch_size=patch_size,
        image_size=stored_size,
        channels=channels,
        num_classes=shape("head/kernel", 2)[1] if "head/kernel" in arrays else 0,
        pool="token" if class_token else "mean",
        pre_logits=shape("pre_logits/kernel", 2)[1] if "pre_logits/kernel" in arrays else None,
        position="learned_1d" if position in arrays else "sincos_2d",
        position_class_row=class_row or not class_token,
    )


def _size_without_positions(image_size: Size | None, source_image_size: Size | None, where: str) -> tuple[int, int]:
    asked = source_image_size or image_size
    if asked is not None:
        return pair(asked, "image_size")
    notice(f"{where}: without a position array the image size is not recorded; it is taken as {times((224, 224))}.")
    return 224, 224
