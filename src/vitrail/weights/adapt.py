"""Change a checkpoint for its next task: another image size, another number of classes (3.2 of the paper)."""

import dataclasses
import re
from typing import Any

from torch import Tensor

from vitrail.config import PeerConfig, VitConfig, pair, replace, times
from vitrail.errors import UsageError, setting
from vitrail.weights.checkpoint import Checkpoint, expected_shapes
from vitrail.weights.resize import resize_positions


def adapt(
    checkpoint: Checkpoint,
    *,
    num_classes: int | None,
    image_size: int | tuple[int, int] | None,
    resize: str,
    overrides: dict[str, Any],
) -> Checkpoint:
    """Apply what `load_model` was asked for, in the order classes, image size, other fields of the config."""
    if num_classes is not None:
        checkpoint = with_classes(checkpoint, num_classes)
    if image_size is not None:
        checkpoint = with_image_size(checkpoint, pair(image_size, "image_size"), resize)
    return dataclasses.replace(checkpoint, config=replace(checkpoint.config, overrides, kind="model"))


def with_classes(checkpoint: Checkpoint, num_classes: int) -> Checkpoint:
    """Drop the head with its pre_logits and attach a zero linear layer; an equal number of classes keeps the head."""
    config = checkpoint.config
    if num_classes == config.num_classes:
        return checkpoint
    config = dataclasses.replace(config, num_classes=num_classes)
    if not isinstance(config, PeerConfig):
        config = dataclasses.replace(config, head_bias=0.0)
    if isinstance(config, VitConfig):
        config = dataclasses.replace(config, pre_logits=None)
    state = {name: t for name, t in checkpoint.state.items() if not name.startswith(("head.", "pre_logits."))}
    example = next(tensor for tensor in state.values() if tensor.is_floating_point())
    for name, shape in expected_shapes(config).items():
        if name.startswith("head."):
            state[name] = example.new_zeros(shape)
    return dataclasses.replace(checkpoint, config=config, state=state, labels=None, metrics={})


def with_image_size(checkpoint: Checkpoint, image_size: tuple[int, int], resize: str) -> Checkpoint:
    """Resample the positions to the grid of another image size; a BiT has none."""
    old = checkpoint.config
    new = dataclasses.replace(old, image_size=image_size)
    state = checkpoint.state
    if isinstance(old, VitConfig) and isinstance(new, VitConfig) and old.grid != new.grid:
        state = {name: _resized(name, tensor, old, new, resize) for name, tensor in state.items()}
    if isinstance(new, PeerConfig) and new != old and expected_shapes(new) != expected_shapes(old):
        raise UsageError(
            f"the weights of {new.title} are for images of {times(old.image_size)} pixels",
            wanted=f"the same, not {times(image_size)}",
            fix=f"Add {setting('image_size', old.image_size[0])}; only networks of ours have their positions "
            "resampled.",
        )
    return dataclasses.replace(checkpoint, config=new, state=state)


_LAYER = re.compile(r"(positions\.\d+|blocks\.\d+\.attention\.relative)\.(\w+)")


def _resized(name: str, tensor: Tensor, old: VitConfig, new: VitConfig, mode: str) -> Tensor:
    """A learned table on the new grid; columns, rows and relative distances are resampled along their one axis."""
    match = _LAYER.fullmatch(name)
    if match is None or match[2] == "prefix":
        return tensor
    if old.position == "learned_1d":
        return resize_positions(tensor, old.grid, new.grid, prefix=old.prefix_rows, mode=mode)
    lengths = {"columns": new.grid[1], "rows": new.grid[0], "table": 2 * new.tokens - 1}
    if match[2] not in lengths:
        raise UsageError(f"the table {name!r} cannot be resampled", fix="Say how in vitrail/weights/adapt.py.")
    length = lengths[match[2]]
    return resize_positions(tensor, (len(tensor), 1), (length, 1), prefix=0, mode=mode)
