"""The names of Google's ViT and hybrid .npz files, from 2020 to big_vision."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from vitrail.config import ResNetConfig, VitConfig
from vitrail.weights.layout import Entry

STEM_POSITION = "Transformer/posembed_input/pos_embedding"
TOP_POSITION = "pos_embedding"

VECTOR = "dim -> dim"
CONVOLUTION = "height width inputs outputs -> outputs inputs height width"
_DENSE = "inputs outputs -> outputs inputs"


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
    group_norm_axes: int = 4
    """Axes of GroupNorm arrays: (1, 1, 1, C) in published hybrids, (C,) in newer saves."""

    @property
    def block_parts(self) -> tuple[str, str, str, str]:
        """Names of first norm, attention, second norm and MLP inside a block."""
        if self.numbering == "linen":
            return "LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0"
        return "LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3"


def vit_entries(config: VitConfig, style: GoogleStyle) -> list[Entry]:
    """Every array of a ViT or hybrid file, without the prefix and with its blocks unstacked."""
    return [
        *(_resnet(config.backbone, style) if isinstance(config.backbone, ResNetConfig) else ()),
        Entry("embedding.projection.weight", ("embedding/kernel",), CONVOLUTION),
        Entry("embedding.projection.bias", ("embedding/bias",), VECTOR),
        *_tokens(config, style),
        *(entry for block in range(config.depth) for entry in _block(block, config.num_heads, style)),
        *_norm("norm", "Transformer/encoder_norm"),
        *(_map_head(config.num_heads) if config.pool == "map" else ()),
        *(_dense("pre_logits", "pre_logits") if config.pre_logits else ()),
        *(_dense("head", "head") if config.num_classes else ()),
    ]


def _tokens(config: VitConfig, style: GoogleStyle) -> Iterator[Entry]:
    if config.class_token:
        yield Entry("class_token", ("cls",), "1 1 dim -> 1 dim")
    if config.position == "learned_1d":
        name = STEM_POSITION if style.position == "stem" else TOP_POSITION
        yield Entry("positions.0.table", (name,), "1 rows dim -> rows dim")


def _block(block: int, heads: int, style: GoogleStyle) -> Iterator[Entry]:
    ours, theirs = f"blocks.{block}", f"Transformer/encoderblock_{block}"
    first_norm, attention, second_norm, mlp = style.block_parts
    yield from _norm(f"{ours}.attention_norm", f"{theirs}/{first_norm}")
    yield from _projections(f"{ours}.attention.qkv", f"{theirs}/{attention}", ("query", "key", "value"), heads)
    yield from _output(f"{ours}.attention.output", f"{theirs}/{attention}/out", heads)
    yield from _norm(f"{ours}.mlp_norm", f"{theirs}/{second_norm}")
    yield from _dense(f"{ours}.mlp.expand", f"{theirs}/{mlp}/Dense_0")
    yield from _dense(f"{ours}.mlp.contract", f"{theirs}/{mlp}/Dense_1")


def _map_head(heads: int) -> Iterator[Entry]:
    attention = "MAPHead_0/MultiHeadDotProductAttention_0"
    yield Entry("pooling.probe", ("MAPHead_0/probe",), "1 1 dim -> 1 dim")
    yield from _projections("pooling.query", attention, ("query",), heads)
    yield from _projections("pooling.key_value", attention, ("key", "value"), heads)
    yield from _output("pooling.output", f"{attention}/out", heads)
    yield from _norm("pooling.norm", "MAPHead_0/LayerNorm_0")
    yield from _dense("pooling.mlp.expand", "MAPHead_0/MlpBlock_0/Dense_0")
    yield from _dense("pooling.mlp.contract", "MAPHead_0/MlpBlock_0/Dense_1")


def _projections(ours: str, theirs: str, parts: tuple[str, ...], heads: int) -> Iterator[Entry]:
    """Kernels (D, heads, head_dim) and biases (heads, head_dim), joined along our output axis."""
    joined = "parts " if len(parts) > 1 else ""
    sizes = {"heads": heads} | ({"parts": len(parts)} if joined else {})
    kernels = tuple(f"{theirs}/{part}/kernel" for part in parts)
    biases = tuple(f"{theirs}/{part}/bias" for part in parts)
    yield Entry(f"{ours}.weight", kernels, f"{joined}inputs heads head_dim -> ({joined}heads head_dim) inputs", sizes)
    yield Entry(f"{ours}.bias", biases, f"{joined}heads head_dim -> ({joined}heads head_dim)", sizes)


def _output(ours: str, theirs: str, heads: int) -> Iterator[Entry]:
    pattern = "heads head_dim outputs -> outputs (heads head_dim)"
    yield Entry(f"{ours}.weight", (f"{theirs}/kernel",), pattern, {"heads": heads})
    yield Entry(f"{ours}.bias", (f"{theirs}/bias",), VECTOR)


def _norm(ours: str, theirs: str) -> Iterator[Entry]:
    yield Entry(f"{ours}.weight", (f"{theirs}/scale",), VECTOR)
    yield Entry(f"{ours}.bias", (f"{theirs}/bias",), VECTOR)


def _dense(ours: str, theirs: str) -> Iterator[Entry]:
    yield Entry(f"{ours}.weight", (f"{theirs}/kernel",), _DENSE)
    yield Entry(f"{ours}.bias", (f"{theirs}/bias",), VECTOR)


def _resnet(config: ResNetConfig, style: GoogleStyle) -> Iterator[Entry]:
    ours = "embedding.backbone"
    yield Entry(f"{ours}.root.convolution.weight", ("conv_root/kernel",), CONVOLUTION)
    yield from _group_norm(f"{ours}.root.norm", "gn_root", style)
    for stage, units in enumerate(config.blocks):
        for unit in range(units):
            mine, theirs = f"{ours}.stages.{stage}.{unit}", f"block{stage + 1}/unit{unit + 1}"
            for number in (1, 2, 3):
                yield Entry(f"{mine}.convolution{number}.weight", (f"{theirs}/conv{number}/kernel",), CONVOLUTION)
                yield from _group_norm(f"{mine}.norm{number}", f"{theirs}/gn{number}", style)
            if unit == 0:
                yield Entry(f"{mine}.projection.weight", (f"{theirs}/conv_proj/kernel",), CONVOLUTION)
                yield from _group_norm(f"{mine}.projection_norm", f"{theirs}/gn_proj", style)


def _group_norm(ours: str, theirs: str, style: GoogleStyle) -> Iterator[Entry]:
    pattern = "1 1 1 dim -> dim" if style.group_norm_axes == 4 else VECTOR
    yield Entry(f"{ours}.weight", (f"{theirs}/scale",), pattern)
    yield Entry(f"{ours}.bias", (f"{theirs}/bias",), pattern)
