"""Answers that are computed for many images at a time: classes with probabilities, and features."""

from typing import Any

import numpy as np

from vitrail.errors import UsageError
from vitrail.prediction.answers import likeliest, probabilities
from vitrail.serving.looks.loaded import Loaded
from vitrail.serving.looks.numbers import as_numbers
from vitrail.serving.looks.reply import NotAvailable

_FEW = 5


def answer(
    loaded: Loaded, kind: str, options: dict[str, Any], logits: np.ndarray, features: np.ndarray, frames: int
) -> dict[str, Any]:
    """The answer for one image, from its row of logits and of features."""
    if kind == "embeddings":
        found: dict[str, Any] = {"features": as_numbers(features)}
    else:
        found = {"top": top(loaded, logits, top_k(options))}
        if options.get("logits"):
            found["logits"] = as_numbers(logits)
    return {**found, "frames": frames, "generation": loaded.generation}


def top(loaded: Loaded, logits: np.ndarray, count: int, *, with_logits: bool = True) -> list[dict[str, Any]]:
    """The likeliest classes, the likeliest first, with the probabilities that `Predictor` gives."""
    described = loaded.predictor.described
    if not described.config.num_classes:
        raise NotAvailable("the network has no classes", fix="Ask for its embeddings.")
    chances, best = probabilities(logits[None], described)[0], likeliest(logits[None], count)[0]
    written = as_numbers(logits[best])
    return [
        {
            "index": int(index),
            "label": described.labels[index] if described.labels else None,
            "probability": float(chances[index]),
            **({"logit": logit} if with_logits else {}),
        }
        for index, logit in zip(best, written, strict=True)
    ]


def top_k(options: dict[str, Any]) -> int:
    """How many classes were asked for."""
    count = options.get("top_k", _FEW)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UsageError(f"top_k is {count!r}", wanted="a whole number from 1 up")
    return count
