"""How alike the position embeddings of patches are (Figure 7, centre; Figure 10)."""

import torch
from torch import Tensor, nn

from vitrail.errors import UsageError
from vitrail.inspection.looking import chosen_layers, finite, looking, transformer

_WITHOUT_TABLE = {
    "none": "this network has no position embedding",
    "relative": "the positions of this network are relative: logits of distances in every layer, and no row per patch",
}


def position_similarity(model: nn.Module, layer: int = 0) -> Tensor:
    """`cos(E_pos[r, c], E_pos[i, j])` for every two patches: (grid_h, grid_w, grid_h, grid_w).

    Rows of class token and registers are left out. `layer` matters where each layer has a table of its own.
    """
    network = transformer(model, "position embedding")
    if not network.positions:
        raise UsageError(
            _WITHOUT_TABLE.get(network.config.position, "this network adds no position embedding"),
            wanted="an additive one (learned_1d, learned_2d, sincos_2d or sinusoid_1d)",
        )
    (place,) = chosen_layers(network, [layer])
    with looking(network):
        table = network.positions[place % len(network.positions)]().detach().float().cpu()
    patches = torch.nn.functional.normalize(table[network.config.prefix_tokens :].double(), dim=1)
    grid = network.config.grid
    return finite((patches @ patches.T).float(), "the position embedding").unflatten(1, grid).unflatten(0, grid)
