"""The attention of a layer, some queries at a time: the whole (tokens x tokens) matrix is never there."""

from collections.abc import Iterator

import torch
from torch import Tensor

from vitrail.models.block import Block

# 64 MB of float32 for the piece that is looked at.
_MOST_NUMBERS = 2**24


def attention_rows(
    block: Block, z: Tensor, *, first: int = 0, last: int | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """Queries from `first` up to `last`, and their `softmax(q k^T / sqrt(head_dim))`: (batch, heads, queries, tokens).

    `z` is what the block reads. The numbers are those of `Block.attention_weights`.
    """
    attention = block.attention
    q, k, _ = attention.project(block.attention_norm(z))
    # Relative logits come for all queries at once, as in the forward pass of such a network.
    relative = None if attention.relative is None else attention.relative(q)
    batch, heads, tokens, head_dim = q.shape
    last = tokens if last is None else last
    step = max(1, _MOST_NUMBERS // (batch * heads * tokens))
    for start in range(first, last, step):
        rows = slice(start, min(start + step, last))
        logits = q[:, :, rows] @ k.transpose(-2, -1)
        if relative is not None:
            logits = logits + relative[:, :, rows]
        yield rows, torch.softmax(logits.float() * head_dim**-0.5, dim=-1)
