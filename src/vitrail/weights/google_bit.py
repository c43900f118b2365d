"""Google's BiT .npz files, with TensorFlow names."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from vitrail.config import BitConfig, preset
from vitrail.errors import DataError
from vitrail.weights.checkpoint import Checkpoint, expected_shapes
from vitrail.weights.google_names import CONVOLUTION, VECTOR
from vitrail.weights.layout import Entry, count_units, read_entries, shape_of, write_entries

LAYOUT = "google"
_ROOT = "resnet/root_block/standardized_conv2d/kernel"
_NUMBERED = re.compile(r"/standardized_conv2d_\d+/")
_CONV = "standardized_conv2d/kernel"


def is_bit(arrays: Mapping[str, Tensor]) -> bool:
    """Whether the names are those of a BiT ResNet."""
    return any(name.startswith("resnet/root_block/") for name in arrays)


def read_bit(arrays: Mapping[str, Tensor], path: Path) -> Checkpoint:
    """Translate a BiT file; convolutions that carry a number are remembered under their own names."""
    where = str(path)
    plain = {_NUMBERED.sub("/standardized_conv2d/", name): name for name in arrays}
    if len(plain) != len(arrays):
        raise DataError("two arrays differ only by the number of their convolution", where=where)
    named = {ours: arrays[theirs] for ours, theirs in plain.items()}
    config = _infer_config(named, where)
    return Checkpoint(
        config=config,
        state=read_entries(bit_entries(config), named, expected_shapes(config), where),
        preprocessing=preset("google"),
        provenance={
            "layout": LAYOUT,
            "file": path.name,
            "renamed": {ours: theirs for ours, theirs in plain.items() if ours != theirs},
        },
    )


def bit_arrays(checkpoint: Checkpoint, config: BitConfig) -> dict[str, Tensor]:
    """The arrays of a BiT file, under the names they came with."""
    renamed = checkpoint.provenance.get("renamed", {})
    arrays = write_entries(bit_entries(config), checkpoint.state)
    for ours, theirs in renamed.items() if isinstance(renamed, dict) else ():
        # Provenance is text from a file: only a number added to the very same name is believed.
        if ours in arrays and isinstance(theirs, str) and _NUMBERED.sub("/standardized_conv2d/", theirs) == ours:
            arrays[theirs] = arrays.pop(ours)
    return arrays


def bit_entries(config: BitConfig) -> list[Entry]:
    """Every array of a BiT file."""
    units = [(stage, unit) for stage, count in enumerate(config.blocks) for unit in range(count)]
    head = [
        Entry("head.weight", ("resnet/head/conv2d/kernel",), "1 1 inputs outputs -> outputs inputs"),
        Entry("head.bias", ("resnet/head/conv2d/bias",), VECTOR),
    ]
    return [
        Entry("root.weight", (_ROOT,), CONVOLUTION),
        *(entry for stage, unit in units for entry in _unit(stage, unit)),
        *_group_norm("norm", "resnet/group_norm"),
        *(head if config.num_classes else ()),
    ]


def _unit(stage: int, unit: int) -> Iterator[Entry]:
    ours, theirs = f"stages.{stage}.{unit}", f"resnet/block{stage + 1}/unit{unit + 1:02d}"
    for number, letter in enumerate("abc", start=1):
        yield from _group_norm(f"{ours}.norm{number}", f"{theirs}/{letter}/group_norm")
        yield Entry(f"{ours}.convolution{number}.weight", (f"{theirs}/{letter}/{_CONV}",), CONVOLUTION)
    if unit == 0:
        yield Entry(f"{ours}.projection.weight", (f"{theirs}/a/proj/{_CONV}",), CONVOLUTION)


def _group_norm(ours: str, theirs: str) -> Iterator[Entry]:
    yield Entry(f"{ours}.weight", (f"{theirs}/gamma",), VECTOR)
    yield Entry(f"{ours}.bias", (f"{theirs}/beta",), VECTOR)


def _infer_config(arrays: Mapping[str, Tensor], where: str) -> BitConfig:
    _, _, channels, width = shape_of(arrays, _ROOT, 4, where)
    blocks = count_units(arrays, "resnet/block", where)
    if len(blocks) != 4:
        raise DataError(f"there are {len(blocks)} stages", wanted="4", where=where)
    head = "resnet/head/conv2d/kernel"
    return BitConfig(
        blocks=(blocks[0], blocks[1], blocks[2], blocks[3]),
        width=width,
        channels=channels,
        num_classes=shape_of(arrays, head, 4, where)[3] if head in arrays else 0,
    )
