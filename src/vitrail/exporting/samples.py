"""Real images to compare an exported file with its network on."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.config import DecodePolicy
from vitrail.data import Arrays, Labels, Part, Preparation, Source, evaluation_batches
from vitrail.data.check import preflight
from vitrail.data.sources.parts import evenly
from vitrail.errors import VitrailError, marked, notice
from vitrail.evaluation.labels import match_classes
from vitrail.models import Classifier

FEWEST = 64
_BATCH = 32


@dataclass(frozen=True)
class Samples:
    """Prepared images, and what they show where that is known."""

    about: str
    """Where they come from, for people."""
    prepared: Callable[[Preparation, int], Tensor]
    """The first so many of them, prepared for a size."""
    count: int
    targets: Tensor | None = None
    """Class numbers, or shares of classes, of the first of them."""


def gather_samples(
    model: Classifier, source: Source | None, *, labelled: bool, skip_bad: bool = False, count: int = FEWEST
) -> Samples:
    """So many images, evenly from all of a source; photographs of scikit-learn fill up what is missing.

    Of a data set any images will do, so that bad ones can be told and left out (`skip_bad`).
    """
    parts: list[Source] = []
    targets = None
    if source is not None:
        chosen = Part(source, evenly(len(source), count), f"{source.split} images".replace("images images", "images"))
        if skip_bad:
            chosen = preflight(chosen, policy=DecodePolicy(), skip_bad=True)
        parts.append(chosen)
        targets = _targets(model, chosen) if labelled else None
    missing = count - sum(map(len, parts))
    if missing:
        parts.append(photographs(missing))
    about = " and ".join(f"{len(part):,} {part.split} of {part.name}" for part in parts)
    return Samples(about, lambda preparation, number: _prepared(parts, preparation, number), count, targets)


def photographs(count: int) -> Arrays:
    """Crops of the two photographs that scikit-learn carries, a Chinese temple and a flower."""
    from sklearn.datasets import load_sample_images

    side = 256
    photos = load_sample_images().images
    each = -(-count // (2 * 8))
    crops = []
    for place in range(count):
        photo, step = photos[place % 2], place // 2
        top = (photo.shape[0] - side) * (step // 8) // max(each - 1, 1)
        left = (photo.shape[1] - side) * (step % 8) // 7
        crops.append(photo[top : top + side, left : left + side])
    return Arrays(
        "the two photographs that scikit-learn carries", "crops", ("image",), Labels.of([0] * count, 1), np.stack(crops)
    )


def _targets(model: Classifier, source: Source) -> Tensor | None:
    """What the images show, as outputs of the model; none where that cannot be known."""
    if not model.config.num_classes:
        return None
    try:
        found = match_classes(source, model.labels, model.config.num_classes, "the model")
    except VitrailError as error:
        notice(f"The images are compared, and accuracy is not counted: {marked(error)}")
        return None
    # What cannot be told has been said.
    return None if found.by == "order" else found.source.labels.targets(np.arange(len(found.source)))


def _prepared(parts: list[Source], preparation: Preparation, number: int) -> Tensor:
    found: list[Tensor] = []
    for part in parts:
        wanted = min(number - sum(map(len, found)), len(part))
        if wanted:
            some = Part(part, np.arange(wanted), part.split)
            found += [batch.images for batch in evaluation_batches(some, preparation, batch_size=_BATCH)]
    return torch.cat(found)
