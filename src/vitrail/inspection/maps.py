"""Attention itself: of chosen layers, whole or as the head's token sees the image."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vitrail.inspection.looking import chosen_layers, finite, in_parts, looking, states, transformer
from vitrail.inspection.rows import attention_rows
from vitrail.models import VisionTransformer


def attention_maps(model: nn.Module, images: Tensor, layers: Iterable[int] | None = None) -> Tensor:
    """`A = softmax(q k^T / sqrt(head_dim))` (A.6): (layers, batch, heads, tokens, tokens), in the order asked for.

    Blocks behind the last chosen layer are not computed, and nothing is kept of layers that were not asked for.
    """
    network = transformer(model, "attention map")
    chosen = chosen_layers(network, layers)
    config, done = network.config, 0
    found = torch.empty(len(chosen), len(images), config.num_heads, config.tokens, config.tokens)
    with looking(network):
        for part in in_parts(network, images):
            for layer, z in enumerate(states(network, part)):
                if layer in chosen:
                    for rows, weights in attention_rows(network.blocks[layer], network.enter(layer, z)):  # type: ignore[arg-type]
                        found[chosen.index(layer), done : done + len(part), :, rows] = weights.cpu()
                if layer == max(chosen):
                    break
            done += len(part)
    for place, layer in enumerate(chosen):
        if chosen.index(layer) != place:
            found[place] = found[chosen.index(layer)]
    return finite(found, "the attention")


def reading_maps(model: nn.Module, images: Tensor, layers: Iterable[int] | None = None) -> Tensor:
    """How each head looks at the patches, seen from the class token: (layers, batch, heads, grid_h, grid_w).

    Without a class token it is the mean over all patches that look.
    """
    network = transformer(model, "attention map")
    chosen = chosen_layers(network, layers)
    with looking(network):
        found = torch.cat([_read(network, part, chosen) for part in in_parts(network, images)], dim=1)
    return finite(found, "the attention")


def _read(model: VisionTransformer, images: Tensor, chosen: list[int]) -> Tensor:
    config, found = model.config, {}
    first, last = (0, 1) if config.class_token else (config.prefix_tokens, config.tokens)
    for layer, z in enumerate(states(model, images)):
        if layer in chosen:
            total = torch.zeros(len(images), config.num_heads, config.tokens, device=images.device)
            for _, weights in attention_rows(model.blocks[layer], model.enter(layer, z), first=first, last=last):  # type: ignore[arg-type]
                total += weights.sum(dim=2)
            found[layer] = (total / (last - first))[..., config.prefix_tokens :].unflatten(-1, config.grid).cpu()
        if layer == max(chosen):
            break
    return torch.stack([found[layer] for layer in chosen])
