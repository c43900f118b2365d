"""Where a network looked: attention rollout over a few images, drawn over what it saw of them (Figure 6, D.8)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from vitrail.config.spelling import OPTIONS
from vitrail.data import Part, Source, evaluation_batches
from vitrail.errors import VitrailError, marked, spelled
from vitrail.evaluation.subject import Subject
from vitrail.models import VisionTransformer
from vitrail.reports.as_seen import as_seen
from vitrail.reports.pictures import Pictures

# Multiply-adds that a page may cost where there is no GPU: some ten seconds.
_MOST_WORK = 1e12
_AT_A_TIME = 4
_HEAT = 0.6


@dataclass(frozen=True)
class Looked:
    """A picture of each image that could be looked at, by its number, and what has to be said about the others."""

    pictures: dict[int, str] = field(default_factory=dict)
    left_out: str = ""


def looked_at(subject: Subject, source: Source, images: Sequence[int], pictures: Pictures) -> Looked:
    """Attention rollout over the first of the images, as many as do not take long."""
    model = subject.model
    if not isinstance(model, VisionTransformer):
        return Looked(left_out="The network has no attention, so where it looked cannot be shown.")
    most = min(affordable(subject), len(images))
    found: dict[int, str] = {}
    left_out = f"Of a network this large only the first {most} were looked into." if most < len(images) else ""
    for start in range(0, most, _AT_A_TIME):
        batch = images[start : min(start + _AT_A_TIME, most)]
        try:
            found |= _rolled_out(subject, source, batch, pictures)
        except VitrailError as error:
            # Most likely an image that has gone; the others are still there.
            left_out = f"Where the network looked cannot be shown for all of them: {spelled(marked(error), OPTIONS)}"
    return Looked(found, left_out)


def affordable(subject: Subject) -> int:
    """How many images may go through a network for one page: all on a GPU, elsewhere as many as take some seconds."""
    if subject.device.type == "cuda":
        return 10**9
    # Every weight meets every token about once.
    work = sum(parameter.numel() for parameter in subject.model.parameters()) * subject.model.config.tokens
    return max(1, int(_MOST_WORK / work))


def _rolled_out(subject: Subject, source: Source, chosen: Sequence[int], pictures: Pictures) -> dict[int, str]:
    from matplotlib import colormaps

    from vitrail.inspection import attention_rollout
    from vitrail.reports.rollout import overlay_mask

    part, preparation = Part(source, np.array(chosen), source.split), subject.preparation
    (batch,) = evaluation_batches(part, preparation, batch_size=len(chosen))
    drawn: dict[int, str] = {}
    for index, image, shares in zip(chosen, batch.images, attention_rollout(subject.model, batch.images), strict=True):
        seen = 255 * as_seen(image[None], preparation.preprocessing)[0]
        mask = overlay_mask(shares.numpy(), seen.shape[:2], subject.model.config.pixels_per_patch)
        warm = 255 * colormaps["inferno"](mask)[:, :, :3]
        # Brightness alone would say nothing about the dark parts of an image.
        mixed = Image.fromarray(((1 - _HEAT) * seen + _HEAT * warm).round().astype(np.uint8))
        drawn[index] = pictures.drawn(mixed, words="where the network looked")
    return drawn
