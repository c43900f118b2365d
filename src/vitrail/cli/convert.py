"""`vitrail convert`: a checkpoint to another layout, read back and compared before the file is called good."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated

import torch
import tyro

from vitrail.cli.terminal import console, megabytes
from vitrail.config import ModelConfig, pair, preset, times
from vitrail.data.sources.class_names import ensure_named, read_class_names
from vitrail.errors import DataError, DiskError, UsageError, choose, notice
from vitrail.models import tell_dropped_pixels
from vitrail.runtime.atomic import put_in_place
from vitrail.weights.adapt import adapt
from vitrail.weights.checkpoint import Checkpoint, to_model
from vitrail.weights.load import read_checkpoint
from vitrail.weights.numerics import Change, tell_numerics
from vitrail.weights.save import LAYOUTS, write_checkpoint


def run(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")],
    target: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")],
    /,
    layout: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    source_image_size: int | tuple[int, int] | None = None,
    num_classes: int | None = None,
    num_heads: int | None = None,
    preprocessing: str | None = None,
    classes: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Write a checkpoint in another layout, then read it back and compare every tensor bit by bit.

    Args:
        source: A model folder or file of vitrail, Google, timm, torchvision or Hugging Face.
        target: Where to write: a folder for vitrail and huggingface, a .npz for google, a .safetensors for the others.
        layout: vitrail, google, timm, torchvision or huggingface; a .npz is google and a folder vitrail if not said.
        image_size: Pixels per side, or height and width; positions are resampled to their grid.
        source_image_size: Image size the stored positions were made for, when it cannot be known from the file.
        num_classes: Another number of classes gives a zero head.
        num_heads: Attention heads, when the file does not record them.
        preprocessing: google, augreg or imagenet: how the images of the model were prepared, if its file does not say.
        classes: A file with the class names to write, one per line, if the model came without; or imagenet.
        overwrite: Replace a target that is there already.
    """
    layout = _layout_for(target, layout)
    if target.exists() and not overwrite:
        raise UsageError("is there already", where=str(target), fix="Choose another target, or add --overwrite.")
    LAYOUTS[layout].check_target(target)
    known = None if preprocessing is None else preset(preprocessing)
    names = None if classes is None else read_class_names(classes)
    stored = read_checkpoint(source, image_size=image_size, source_image_size=source_image_size, num_heads=num_heads)
    checkpoint = adapt(stored, num_classes=num_classes, image_size=image_size, resize="google", overrides={})
    if names is not None and classes is not None:
        ensure_named(names, checkpoint.config.num_classes, classes, source)
    checkpoint = dataclasses.replace(
        checkpoint, preprocessing=known or checkpoint.preprocessing, labels=names or checkpoint.labels
    )
    tell_dropped_pixels(checkpoint.config)
    changes = _write_checked(checkpoint, target, layout)
    _tell(stored, checkpoint, target, layout)
    if changes:
        tell_numerics(layout, changes)
        difference = _logit_difference(checkpoint, LAYOUTS[layout].reads_as(checkpoint.config))
        notice(f"Read as {layout} reads it, its logits move by up to {difference:.1e} on random images.")


def _layout_for(target: Path, layout: str | None) -> str:
    if layout is not None:
        return choose("layout", layout, LAYOUTS)
    if target.suffix == ".safetensors":
        raise UsageError("a .safetensors may have several layouts", fix="Add --layout timm or --layout torchvision.")
    return "google" if target.suffix == ".npz" else "vitrail"


def _write_checked(checkpoint: Checkpoint, target: Path, layout: str) -> list[Change]:
    """Write beside the target, read back, compare bit by bit, and only then put it in place."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".vitrail-") as scratch:
            written = Path(scratch) / target.name
            changes = write_checkpoint(checkpoint, written, layout)
            _compare(checkpoint, written, target)
            put_in_place(written, target)
    except OSError as error:
        raise DiskError(f"could not be written ({error.strerror})", where=str(target)) from error
    return changes


def _compare(checkpoint: Checkpoint, written: Path, target: Path) -> None:
    """Positions have no size of their own in a .npz, so the size we wrote is the one we read with."""
    back = read_checkpoint(written, source_image_size=checkpoint.config.image_size)
    for name, tensor in checkpoint.state.items():
        if name not in back.state or back.state[name].numpy().tobytes() != tensor.numpy().tobytes():
            raise DataError(f"the tensor {name!r} reads back different from what was written", where=str(target))


def _logit_difference(checkpoint: Checkpoint, read: ModelConfig) -> float:
    """The largest change of a logit when the same tensors are computed with the target's numerics."""
    config = checkpoint.config
    images = torch.randn(2, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0))
    networks = [checkpoint, dataclasses.replace(checkpoint, config=read)]
    with torch.inference_mode():
        ours, theirs = (to_model(network, "memory")(images) for network in networks)
    return float((ours - theirs).abs().max())


def _tell(stored: Checkpoint, checkpoint: Checkpoint, target: Path, layout: str) -> None:
    parameters = sum(tensor.numel() for tensor in checkpoint.state.values())
    files = [target] if target.is_file() else [file for file in target.iterdir() if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    out = console()
    out.print(f"{target}: layout {layout}, {parameters:,} parameters, {megabytes(size)}", markup=False, soft_wrap=True)
    if stored.config.grid != checkpoint.config.grid:
        old, new = times(stored.config.grid), times(pair(checkpoint.config.grid, "grid"))
        out.print(f"positions resampled from a {old} to a {new} grid")
    out.print(f"read back: all {len(checkpoint.state)} tensors bit-equal")
