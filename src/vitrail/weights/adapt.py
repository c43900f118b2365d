"""Change a checkpoint for its next task: another image size, another number of classes (3.2 of the paper)."""

import dataclasses
from typing import Any

import torch

from vitrail.config import VitConfig, pair, replace
from vitrail.weights.checkpoint import Checkpoint
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
    config: VitConfig = checkpoint.config
    if num_classes == config.num_classes:
        return checkpoint
    state = {name: t for name, t in checkpoint.state.items() if not name.startswith(("head.", "pre_logits."))}
    if num_classes:
        state["head.weight"] = torch.zeros(num_classes, config.width)
        state["head.bias"] = torch.zeros(num_classes)
    config = dataclasses.replace(config, num_classes=num_classes, pre_logits=None, head_bias=0.0)
    return dataclasses.replace(checkpoint, config=config, state=state, labels=None, metrics={})


def with_image_size(checkpoint: Checkpoint, image_size: tuple[int, int], resize: str) -> Checkpoint:
    """Resample the positions to the grid of another image size."""
    old: VitConfig = checkpoint.config
    new = dataclasses.replace(old, image_size=image_size)
    state = dict(checkpoint.state)
    if old.position == "learned_1d":
        table = resize_positions(state["position.table"], old.grid, new.grid, prefix=old.prefix_rows, mode=resize)
        state["position.table"] = table  # type: ignore[assignment]
    return dataclasses.replace(checkpoint, config=new, state=state)
