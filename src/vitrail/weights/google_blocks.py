"""The encoder blocks of a Google file: counted, or stacked along one axis as big_vision's scan saves them."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from vitrail.config.checks import MAX_DEPTH
from vitrail.errors import DataError

_SCANNED = "Transformer/encoderblock/"
_NUMBERED = re.compile(r"Transformer/encoderblock_(\d+)/(.+)")


def is_stacked(names: set[str]) -> bool:
    """Whether all blocks share one name."""
    return any(name.startswith(_SCANNED) for name in names)


def unstack(arrays: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Turn big_vision's scan layout into one set of arrays per block."""
    flat = {name: array for name, array in arrays.items() if not name.startswith(_SCANNED)}
    stacked = {name: array for name, array in arrays.items() if name.startswith(_SCANNED)}
    depths = {len(array) if array.ndim else 0 for array in stacked.values()}
    if len(depths) != 1 or max(depths) > MAX_DEPTH:
        raise DataError(
            f"the stacked blocks have {sorted(depths)} layers", wanted=f"one number, at most {MAX_DEPTH}", where=where
        )
    for name, array in stacked.items():
        for block, row in enumerate(array):
            flat[f"Transformer/encoderblock_{block}/{name.removeprefix(_SCANNED)}"] = row
    return flat


def stack(arrays: Mapping[str, Tensor], depth: int) -> dict[str, Tensor]:
    """Turn one set of arrays per block into big_vision's scan layout."""
    stacked = {name: array for name, array in arrays.items() if not _NUMBERED.fullmatch(name)}
    parts = dict.fromkeys(match[2] for name in arrays if (match := _NUMBERED.fullmatch(name)))
    for part in parts:
        rows = [arrays[f"Transformer/encoderblock_{block}/{part}"] for block in range(depth)]
        stacked[f"{_SCANNED}{part}"] = torch.stack(rows)
    return stacked
