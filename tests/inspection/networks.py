"""Small networks of every kind that can be looked at, and their attention by the plain formula."""

import math

import numpy as np
import torch
from torch import Tensor

import vitrail
from vitrail.models import VisionTransformer


def network(seed: int = 0, *, image_size: tuple[int, int] = (12, 20), **overrides) -> VisionTransformer:
    """A ViT with random weights, none of them zero, so that every part of it matters."""
    how = {"patch_size": 4, "width": 24, "depth": 3, "num_heads": 3, "mlp_width": 32, "num_classes": 5} | overrides
    model = vitrail.create_model("vit-test", image_size=image_size, **how)
    return filled(model, seed)


def filled(model, seed: int = 0):
    """The same network with random weights."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.35)
    return model.eval()


def pictures(model, count: int = 3, seed: int = 1) -> Tensor:
    """Noise of the size that the network reads."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, model.config.channels, *model.config.image_size, generator=generator)


def all_attention(model: VisionTransformer, images: Tensor) -> np.ndarray:
    """(layers, batch, heads, tokens, tokens) in float64, from the network's own tapped pass."""
    with torch.no_grad():
        _, found = model.forward_tapped(images, range(model.config.depth))
    return np.stack([weights.double().numpy() for weights in found.values()])


def product_of_layers(attention: np.ndarray) -> np.ndarray:
    """`A_L ... A_1` with heads averaged, the identity added and rows made to sum to one: (batch, tokens, tokens)."""
    tokens = attention.shape[-1]
    whole = np.broadcast_to(np.eye(tokens), (attention.shape[1], tokens, tokens))
    for weights in attention:
        mixed = weights.mean(axis=1) + np.eye(tokens)
        whole = mixed / mixed.sum(axis=-1, keepdims=True) @ whole
    return whole


def distances_by_loops(attention: np.ndarray, grid: tuple[int, int], patch: tuple[int, int], prefix: int) -> np.ndarray:
    """(layers, heads): for each query patch i, sum A_ij d_ij over key patches j; then the mean over i and images."""
    layers, images, heads = attention.shape[:3]
    places = [(row * patch[0], column * patch[1]) for row in range(grid[0]) for column in range(grid[1])]
    found = np.zeros((layers, heads))
    for i, (top, left) in enumerate(places):
        for j, (below, right) in enumerate(places):
            apart = math.hypot(top - below, left - right)
            found += attention[:, :, :, prefix + i, prefix + j].sum(axis=1) * apart
    return found / (images * len(places))
