"""A logit lens: what the head would answer if the network ended after each layer (nostalgebraist, 2020)."""

import torch
from torch import Tensor, nn

from vitrail.errors import UsageError
from vitrail.inspection.looking import finite, in_parts, looking, states, transformer


def logit_lens(model: nn.Module, images: Tensor) -> Tensor:
    """`head(read(LN(z_l)))` for l = 0 .. L with the final LayerNorm and head: (depth + 1, batch, classes).

    Row 0 is the embedding before any block, and the last row is the answer of the network itself.
    """
    network = transformer(model, "layer to read between the blocks")
    if not network.config.num_classes:
        raise UsageError("the network has no head", wanted="one with classes, to see what it would answer")
    with looking(network):
        found = [
            torch.stack([network.head(network.read(network.norm(z))).float().cpu() for z in states(network, part)])
            for part in in_parts(network, images)
        ]
    return finite(torch.cat(found, dim=1), "the output")
