"""What a network was given, as a picture for people."""

import numpy as np
import torch
from torch import Tensor

from vitrail.config import Preprocessing


def as_seen(images: Tensor, preprocessing: Preprocessing) -> np.ndarray:
    """Normalised images (batch, channels, height, width) in colours 0 .. 1, (batch, height, width, 3)."""
    mean, std = (torch.tensor(value).view(1, -1, 1, 1) for value in (preprocessing.mean, preprocessing.std))
    if mean.shape[1] != images.shape[1]:
        mean, std = mean.mean(dim=1, keepdim=True), std.mean(dim=1, keepdim=True)
    pixels = (images.cpu().float() * std + mean).clamp(0, 1).permute(0, 2, 3, 1).numpy()
    return pixels.repeat(3, axis=-1) if pixels.shape[-1] == 1 else pixels
