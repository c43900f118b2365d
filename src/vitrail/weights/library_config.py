"""What travels beside another library's tensors, and what has to be guessed when nothing does."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vitrail.config import VitConfig, pair
from vitrail.errors import DataError, notice
from vitrail.weights.stored_grid import Grid, stored_grid
from vitrail.zoo import ZOO

Size = int | tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Hints:
    """The config.json beside a file, and what the caller said."""

    config: dict[str, Any] = field(default_factory=dict)
    preprocessor: dict[str, Any] = field(default_factory=dict)
    image_size: Size | None = None
    source_image_size: Size | None = None
    num_heads: int | None = None

    def recorded(self, key: str) -> Any:
        """A value of the config.json, at its top or where timm keeps arguments and settings."""
        places = [self.config, self.config.get("model_args"), self.config.get("pretrained_cfg")]
        return next((place[key] for place in places if isinstance(place, dict) and place.get(key) is not None), None)


def number(config: Mapping[str, Any], key: str, default: float, where: str) -> float:
    """A number of a config.json; anything else there is an error."""
    value = config.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise DataError(f"{key} in config.json is {value!r}", wanted="a number", where=where)
    return float(value)


def with_recorded_size(hints: Hints, recorded: Any, rows: int, grid_of: Callable[[Grid], Grid], where: str) -> Hints:
    """The image size that a config records is the stored grid's, unless the caller says another or it does not fit."""
    if hints.source_image_size is not None or recorded is None:
        return hints
    sides = [recorded] * 2 if isinstance(recorded, int) else recorded
    if not isinstance(sides, list | tuple) or len(sides) != 2 or not all(isinstance(side, int) for side in sides):
        raise DataError(f"the image size in config.json is {recorded!r}", wanted="a number or two", where=where)
    size = (sides[0], sides[1])
    height, width = grid_of(pair(size, "the image size in config.json"))
    return dataclasses.replace(hints, source_image_size=size) if height * width == rows else hints


def guess_heads(width: int, depth: int, mlp_width: int, hints: Hints, where: str) -> int:
    """The number of heads: said by caller or config, the zoo's for an equal network, else 64 numbers per head."""
    if hints.num_heads is not None:
        return hints.num_heads
    recorded = hints.recorded("num_attention_heads") or hints.recorded("num_heads")
    if recorded is not None:
        return int(number({"num_heads": recorded}, "num_heads", 0, where))
    for row in ZOO.values():
        known = row.config
        if isinstance(known, VitConfig) and (known.width, known.depth, known.mlp_width) == (width, depth, mlp_width):
            return known.num_heads
    if width % 64:
        raise DataError(
            f"the number of heads is not recorded, and a width of {width} is no multiple of 64",
            where=where,
            fix="Say it with num_heads=.",
        )
    notice(f"{where}: the number of heads is not recorded; {width // 64} is taken, 64 numbers per head.")
    return width // 64


def position_rows(
    rows: int, prefixes: tuple[int, ...], grid_of: Callable[[Grid], Grid], hints: Hints, where: str
) -> tuple[int, Grid]:
    """How many rows belong to prefix tokens, and the grid of the others: the first that makes a whole grid."""
    for prefix in prefixes:
        if _fits(rows - prefix, grid_of, hints):
            break
    else:
        prefix = prefixes[0]
    size, source = hints.image_size, hints.source_image_size
    return prefix, stored_grid(rows - prefix, grid_of, image_size=size, source_image_size=source, where=where)


def _fits(rows: int, grid_of: Callable[[Grid], Grid], hints: Hints) -> bool:
    size = hints.source_image_size or (None if _square(rows) else hints.image_size)
    if size is None:
        return _square(rows)
    height, width = grid_of(pair(size, "image_size"))
    return height * width == rows


def _square(rows: int) -> bool:
    return rows > 0 and math.isqrt(rows) ** 2 == rows
