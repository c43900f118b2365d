"""From logits to what a person asked: names with probabilities."""

from typing import Any

import numpy as np

from vitrail.errors import DataError, UsageError, command
from vitrail.weights.record import Described


def probabilities(logits: np.ndarray, described: Described) -> np.ndarray:
    """Softmax over classes; for a network that learnt each class on its own, a sigmoid of each."""
    wide = logits.astype(np.float64)
    if described.provenance.get("loss") == "sigmoid":
        return 1 / (1 + np.exp(-np.clip(wide, -700, 700)))
    shifted = np.exp(wide - wide.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def likeliest(logits: np.ndarray, count: int) -> np.ndarray:
    """Class numbers of the largest logits of each row, the largest first; ties go to the lower number."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


def label(described: Described, index: int) -> str:
    """The name of a class, or its number where names did not come with the weights."""
    return described.labels[index] if described.labels else str(index)


def ensure_classes(described: Described, where: str) -> None:
    """A network without a head has nothing to say."""
    if not described.config.num_classes:
        raise UsageError(
            "the network has no classes",
            wanted="a classifier",
            where=where,
            fix=f"`{command('predict', 'MODEL', 'IMAGES', embed='features.npz')}` writes its features.",
        )


def ensure_finite(logits: np.ndarray, where: str) -> None:
    """A probability that is no number is not an answer."""
    if not np.isfinite(logits).all():
        raise DataError("the network gives numbers that are not finite", where=where, fix="Its weights are damaged.")


def record(name: str, logits: np.ndarray, described: Described, top_k: int) -> dict[str, Any]:
    """The answer for one image as programs read it."""
    chances = probabilities(logits[None], described)[0]
    return {
        "image": name,
        "predictions": [
            {"class": int(index), "label": label(described, int(index)), "probability": float(chances[index])}
            for index in likeliest(logits[None], top_k)[0]
        ],
    }
