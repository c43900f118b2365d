"""Mean attention distance: how far apart the patches are that a head connects (Figures 7 and 11)."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vitrail.inspection.looking import chosen_layers, finite, in_parts, looking, states, transformer
from vitrail.inspection.rows import attention_rows
from vitrail.models import VisionTransformer


def attention_distance(model: nn.Module, images: Tensor, layers: Iterable[int] | None = None) -> Tensor:
    """`mean_i sum_j A_ij d_ij` in pixels, averaged over the images: (layers, heads).

    As the authors compute it: i and j are patches; rows and columns of class token and registers are dropped and the
    rest of each row is not rescaled; `d_ij` is the distance between the centres of two patches in the image.
    """
    return distances_of_images(model, images, layers).mean(dim=0)


def distances_of_images(model: nn.Module, images: Tensor, layers: Iterable[int] | None = None) -> Tensor:
    """The same for each image: (batch, layers, heads), so that a set can be looked at batch by batch."""
    network = transformer(model, "attention distance")
    chosen = chosen_layers(network, layers)
    with looking(network):
        found = torch.cat([_measured(network, part, chosen) for part in in_parts(network, images)])
    return finite(found, "the attention")


def uniform_distance(model: nn.Module) -> float:
    """What a head measures that attends to all patches alike and to nothing else, in pixels."""
    network = transformer(model, "attention distance")
    centres = _centres(network, torch.device("cpu"))
    # A row at a time: the whole matrix of a large grid is not needed.
    return float(torch.stack([(centres - centre).norm(dim=1).mean() for centre in centres]).mean())


def _measured(model: VisionTransformer, images: Tensor, chosen: list[int]) -> Tensor:
    prefix, centres = model.config.prefix_tokens, _centres(model, images.device)
    found: dict[int, Tensor] = {}
    for layer, z in enumerate(states(model, images)):
        if layer in chosen:
            total = torch.zeros(len(images), model.config.num_heads, device=images.device)
            for rows, weights in attention_rows(model.blocks[layer], model.enter(layer, z), first=prefix):  # type: ignore[arg-type]
                here = centres[rows.start - prefix : rows.stop - prefix]
                # Exact: the faster way by a matrix product loses digits where patches are close.
                apart = torch.cdist(here, centres, compute_mode="donot_use_mm_for_euclid_dist")
                # As one product of a matrix and a vector; the columns of class token and registers count nothing.
                counted = torch.nn.functional.pad(apart, (prefix, 0)).flatten()
                total += weights.flatten(2) @ counted
            found[layer] = total / len(centres)
        if layer == max(chosen):
            break
    return torch.stack([found[layer] for layer in chosen], dim=1).cpu()


def _centres(model: VisionTransformer, device: torch.device) -> Tensor:
    """Where the patches are, in pixels of the image, up to a common shift: (patches, 2)."""
    places = [
        torch.arange(count, device=device, dtype=torch.float32) * size
        for count, size in zip(model.config.grid, model.config.pixels_per_patch, strict=True)
    ]
    return torch.cartesian_prod(*places)
