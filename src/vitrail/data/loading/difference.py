"""How far the batches of the fast decoder are from those of Pillow, for the record of a run."""

from dataclasses import replace

import torch

from vitrail.data.decoding.fast_decode import PixelDifference, jpeg_backend
from vitrail.data.loading.loader import training_batches
from vitrail.data.loading.order import Stream
from vitrail.data.loading.prepare import Preparation
from vitrail.data.sources.source import Source
from vitrail.errors import UsageError


def batch_difference(
    source: Source, preparation: Preparation, *, device: str | torch.device = "cpu", images: int = 32
) -> PixelDifference:
    """Cut and resize the same images both ways, and compare what training would see before it is augmented further."""
    if preparation.augment is None:
        raise UsageError("there is no augmentation", wanted="augment=AugmentConfig(...) for training")
    plain = replace(preparation.augment, flip=False, randaugment_layers=0, erasing=0.0, mixup=0.0, cutmix=0.0)
    stream = Stream(length=len(source), batch_size=min(images, len(source)), seed=0)
    batches = [
        next(iter(training_batches(source, stream, replace(preparation, augment=plain, decoder=decoder), device=where)))
        for decoder, where in (("pillow", "cpu"), ("fast", device))
    ]
    std = torch.tensor(preparation.preprocessing.std).view(-1, 1, 1)
    levels = (batches[0].images - batches[1].images.cpu()).abs() * 255 * std
    name = f"{jpeg_backend().name} on {torch.device(device).type}"
    return PixelDifference(name, len(levels), levels.mean().item(), round(levels.max().item()))
