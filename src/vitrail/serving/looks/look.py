"""Looking at one thing at a time: which function answers which question."""

from typing import Any

from vitrail.errors import choose
from vitrail.prediction.predictor import Prepared
from vitrail.serving.looks.attention import attention
from vitrail.serving.looks.fixed import filters, positions
from vitrail.serving.looks.inspections import inspection
from vitrail.serving.looks.kinds import FIXED, SINGLE
from vitrail.serving.looks.loaded import Loaded
from vitrail.serving.looks.occlusions import occluded
from vitrail.serving.looks.reply import Reply, json_reply


def look(loaded: Loaded, kind: str, options: dict[str, Any], image: Prepared | None = None) -> Reply:
    """Answer a question that is computed for itself; those of `SINGLE` come with an image."""
    choose("question", kind, SINGLE + FIXED)
    if kind == "positions":
        return positions(loaded)
    if kind == "filters":
        return filters(loaded, options)
    assert image is not None, f"{kind} are about an image"
    if kind == "attention":
        return attention(loaded, options, image)
    return json_reply((inspection if kind == "inspections" else occluded)(loaded, options, image))
