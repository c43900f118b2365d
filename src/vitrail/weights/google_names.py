"""The names Google's .npz files use, from 2020 to big_vision (spec of the published checkpoints)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vitrail.config import VitConfig
from vitrail.errors import DataError, UsageError
from vitrail.weights.layout import Entry

PREFIXES = ("opt/target/", "params/img/", "params/", "")
STEM_POSITION = "Transformer/posembed_input/pos_embedding"
TOP_POSITION = "pos_embedding"

_DENSE = "inputs outputs -> outputs inputs"
_VECTOR = "dim -> dim"
_CONVOLUTION = "height width inputs outputs -> outputs inputs height width"


@dataclass(frozen=True, kw_only=True)
class GoogleStyle:
    """Which naming generation a file follows; kept in the provenance so that it can be written back the same."""

    prefix: str = ""
    """In front of every name."""
    numbering: Literal["pre_linen", "linen"] = "pre_linen"
    """Pre-linen flax counted submodules across classes (LayerNorm_0, ..._1, LayerNorm_2, ..._3), linen per class."""
    scanned: bool = False
    """Whether all blocks are stacked along a leading axis of one `encoderblock`."""
    position: Literal["stem", "top"] = "stem"
    """Position array under `Transformer/posembed_input` (original) or at the top (big_vision)."""

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """Names of first norm, attention, second norm and MLP inside a block."""
        if self.numbering == "linen":
            return "LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0"
        return "LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3"


def entries(config: VitConfig, style: GoogleStyle) -> list[Entry]:
    """Every array of a ViT file, without the prefix and with its blocks unstacked."""
    return [
        Entry("embedding.projection.weight", ("embedding/kernel",), _CONVOLUTION),
        Entry("embedding.projection.bias", ("embedding/bias",), _VECTOR),
        *_tokens(config, style),
        *(entry for block in range(config.depth) for entry in _block(block, config.num_heads, style)),
        *_norm("norm", "Transformer/encoder_norm"),
        *(_dense("pre_logits", "pre_logits") if config.pre_logits else ()),
        *(_dense("head", "head") if config.num_classes else ()),
    ]


def _tokens(config: VitConfig, style: GoogleStyle) -> Iterator[Entry]:
    if config.pool == "token":
        yield Entry("class_token", ("cls",), "1 1 dim -> 1 dim")
    if config.position == "learned_1d":
        name = STEM_POSITION if style.position == "stem" else TOP_POSITION
        yield Entry("position.table", (name,), "1 rows dim -> rows dim")


def _block(block: int, heads: int, style: GoogleStyle) -> Iterator[Entry]:
    ours, theirs = f"blocks.{block}", f"Transformer/encoderblock_{block}"
    first_norm, attention, second_norm, mlp = style.parts
    yield from _norm(f"{ours}.attention_norm", f"{theirs}/{first_norm}")
    kernels = tuple(f"{theirs}/{attention}/{part}/kernel" for part in ("query", "key", "value"))
    biases = tuple(f"{theirs}/{attention}/{part}/bias" for part in ("query", "key", "value"))
    sizes = {"qkv": 3, "heads": heads}
    kernel = "qkv inputs heads head_dim -> (qkv heads head_dim) inputs"
    yield Entry(f"{ours}.attention.qkv.weight", kernels, kernel, sizes)
    yield Entry(f"{ours}.attention.qkv.bias", biases, "qkv heads head_dim -> (qkv heads head_dim)", sizes)
    output = "heads head_dim outputs -> outputs (heads head_dim)"
    yield Entry(f"{ours}.attention.output.weight", (f"{theirs}/{attention}/out/kernel",), output, {"heads": heads})
    yield Entry(f"{ours}.attention.output.bias", (f"{theirs}/{attention}/out/bias",), _VECTOR)
    yield from _norm(f"{ours}.mlp_norm", f"{theirs}/{second_norm}")
    yield from _dense(f"{ours}.mlp.expand", f"{theirs}/{mlp}/Dense_0")
    yield from _dense(f"{ours}.mlp.contract", f"{theirs}/{mlp}/Dense_1")


def _norm(ours: str, theirs: str) -> Iterator[Entry]:
    yield Entry(f"{ours}.weight", (f"{theirs}/scale",), _VECTOR)
    yield Entry(f"{ours}.bias", (f"{theirs}/bias",), _VECTOR)


def _dense(ours: str, theirs: str) -> Iterator[Entry]:
    yield Entry(f"{ours}.weight", (f"{theirs}/kernel",), _DENSE)
    yield Entry(f"{ours}.bias", (f"{theirs}/bias",), _VECTOR)


_SCANNED = "Transformer/encoderblock/"
_NUMBERED = re.compile(r"Transformer/encoderblock_(\d+)/(.+)")


def unstack(arrays: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Turn big_vision's scan layout into one set of arrays per block."""
    flat = {name: array for name, array in arrays.items() if not name.startswith(_SCANNED)}
    depths = {len(array) for name, array in arrays.items() if name.startswith(_SCANNED) and array.ndim}
    if len(depths) != 1:
        raise DataError(f"the stacked blocks have {sorted(depths)} layers", wanted="one number of layers", where=where)
    for name, array in arrays.items():
        if name.startswith(_SCANNED):
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


def count_blocks(arrays: Mapping[str, Tensor], where: str) -> int:
    """The number of encoder blocks in a file; they must be numbered without a gap."""
    numbers = {int(match[1]) for name in arrays if (match := _NUMBERED.fullmatch(name))}
    for expected, number in enumerate(sorted(numbers)):
        if number != expected:
            raise DataError(f"the block 'Transformer/encoderblock_{expected}' is missing", where=where)
    return len(numbers)


def detect_style(names: set[str], prefix: str) -> GoogleStyle:
    """Read the naming generation off the names, without their prefix."""
    linen = any("/MlpBlock_0/" in name and name.startswith("Transformer/") for name in names)
    return GoogleStyle(
        prefix=prefix,
        numbering="linen" if linen else "pre_linen",
        scanned=any(name.startswith(_SCANNED) for name in names),
        position="stem" if STEM_POSITION in names or not linen else "top",
    )


def writing_style(config: VitConfig, remembered: GoogleStyle | None) -> GoogleStyle:
    """The style a network is written in: the one it came in, else the published 2020 names."""
    style = remembered or GoogleStyle()
    has_class_row = config.prefix_rows > 0
    if config.pool == "token" and config.position == "learned_1d" and has_class_row != (style.position == "stem"):
        if remembered:
            kind = "a row" if has_class_row else "no row"
            raise UsageError(f"the position table has {kind} for the class token, unlike the file it came from")
        return GoogleStyle(prefix="params/", numbering="linen", position="top")
    if remembered is None and config.position == "sincos_2d":
        return GoogleStyle(prefix="params/", numbering="linen", position="top")
    return style
