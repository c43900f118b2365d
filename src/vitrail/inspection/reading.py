"""Which tokens the head reads, as shares of one: what attention is followed back from."""

import torch
from torch import Tensor

from vitrail.models import VisionTransformer
from vitrail.models.pooling import AttentionPooling

WORDS = {
    "token": "the class token",
    "mean": "the mean of the patch tokens, which the head reads, for want of a class token",
    "map": "the tokens that the attention pooling of the head reads, for want of a class token",
}


def needs_last_tokens(model: VisionTransformer) -> bool:
    """Whether the shares depend on what the encoder gives."""
    return model.pooling is not None


def read_shares(model: VisionTransformer, tokens: Tensor, images: int) -> Tensor:
    """(images, tokens), each row of sum 1: the class token, all patches alike, or as attention pooling weighs them.

    `tokens` is what the encoder gives; only attention pooling looks at it, after the final LayerNorm.
    """
    config = model.config
    shares = torch.zeros(images, config.tokens, device=tokens.device)
    if config.class_token:
        shares[:, 0] = 1.0
    elif isinstance(model.pooling, AttentionPooling):
        patches = model.norm(tokens)[:, config.prefix_tokens :]
        shares[:, config.prefix_tokens :] = pooling_weights(model.pooling, patches).mean(dim=1)
    else:
        shares[:, config.prefix_tokens :] = 1.0 / (config.tokens - config.prefix_tokens)
    return shares


def pooling_weights(pooling: AttentionPooling, patches: Tensor) -> Tensor:
    """How each head of the pooling weighs the patches: (batch, heads, patches)."""
    heads = pooling.num_heads
    q = pooling.query(pooling.probe).unflatten(-1, (heads, -1))[0]
    k = pooling.key_value(patches).unflatten(-1, (2, heads, -1))[:, :, 0]
    logits = torch.einsum("hd,bphd->bhp", q, k)
    return torch.softmax(logits.float() * q.shape[-1] ** -0.5, dim=-1)
