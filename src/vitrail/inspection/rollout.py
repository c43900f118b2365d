"""Attention rollout: which patches what the head reads was made from (Figure 6, D.8; Abnar and Zuidema, 2020)."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vitrail.inspection.looking import chosen_layers, finite, in_parts, looking, states, transformer
from vitrail.inspection.reading import needs_last_tokens, read_shares
from vitrail.inspection.rows import attention_rows
from vitrail.models import VisionTransformer


def attention_rollout(model: nn.Module, images: Tensor, layers: Iterable[int] | None = None) -> Tensor:
    """The share of every patch in what the head reads, `r (A_L + I)/2 ... (A_1 + I)/2`: (batch, grid_h, grid_w).

    `A_l` is the attention of layer l, averaged over heads; the identity stands for the residual connection. `r` picks
    the row of the class token; without one it is what the head pools: the mean over patches, or the weights of
    attention pooling. Shares of class token and registers are dropped, and the rest is not rescaled. Of `layers` only
    the chosen ones are multiplied.
    """
    network = transformer(model, "attention rollout")
    chosen = sorted(set(chosen_layers(network, layers)))
    with looking(network):
        found = [_rolled(network, part, chosen) for part in in_parts(network, images)]
    return finite(torch.cat(found), "the attention")


def _rolled(model: VisionTransformer, images: Tensor, chosen: list[int]) -> Tensor:
    """One row is read off the product, so the product is taken from the left: a row is kept, and never a matrix."""
    entered: dict[int, Tensor] = {}
    z = images
    for layer, z in enumerate(states(model, images)):
        if layer in chosen:
            entered[layer] = model.enter(layer, z)
        if layer == chosen[-1] and not needs_last_tokens(model):
            break
    row = read_shares(model, z, len(images))
    for layer in reversed(chosen):
        block, above = model.blocks[layer], torch.zeros_like(row)
        # Of the last layer the row of the class token is all there is to see.
        only_first = model.config.class_token and layer == chosen[-1]
        for rows, weights in attention_rows(block, entered.pop(layer), last=1 if only_first else None):  # type: ignore[arg-type]
            above += (row[:, None, None, rows] @ weights).squeeze(2).mean(dim=1)
        # A row of A sums to one, and with the identity to two.
        row = (above + row) / 2
    return row[:, model.config.prefix_tokens :].unflatten(1, model.config.grid).cpu()
