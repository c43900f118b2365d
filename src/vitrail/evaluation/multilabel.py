"""Numbers for images that show several classes, or none: each class is a question of its own, read by a sigmoid."""

from dataclasses import dataclass

import numpy as np

from vitrail.data import Labels
from vitrail.evaluation.classify import TOP, Predictions
from vitrail.evaluation.metrics import Share, share_of

THRESHOLD = 0.5


@dataclass(frozen=True, kw_only=True)
class LabelResult:
    """How good a model is at one class among several."""

    number: int
    """Its output of the head."""
    name: str
    images: int
    """Those that show it."""
    guessed: int
    """Those said to show it, with a probability above one half."""
    right: int
    """Those that do and are said to."""
    average_precision: float | None
    """None for a class that no image shows."""
    f1: float | None
    """None for a class that no image shows and that was never guessed."""


@dataclass(frozen=True, kw_only=True)
class MultiLabelEvaluation:
    """How good a model is on images of several classes."""

    images: int
    """How many were counted."""
    mean_average_precision: float | None
    """Mean over the classes that an image shows."""
    exact: Share
    """Images whose every class is right at the threshold, and none too many."""
    hit: Share | None
    """Images whose first guess is one of theirs, of those that have any; none where no image has."""
    micro_f1: float | None
    """Over all classes of all images together; none where nothing is shown and nothing guessed."""
    macro_f1: float | None
    """Mean over the classes that are shown or guessed."""
    threshold: float
    loss: float
    """Mean sigmoid cross-entropy, summed over the classes of an image."""
    classes: tuple[LabelResult, ...]


def table_of(labels: Labels) -> np.ndarray:
    """Whether each image shows each class: bool (images, classes)."""
    assert labels.offsets is not None
    shown = np.zeros((len(labels), labels.num_classes), dtype=bool)
    shown[np.repeat(np.arange(len(labels)), np.diff(labels.offsets)), labels.values] = True
    return shown


def answers(logits: np.ndarray, shown: np.ndarray) -> Predictions:
    """The first guesses of each image, as `classify` gives them."""
    guesses = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
    wide = logits.astype(np.float64)
    return Predictions(
        guesses=guesses,
        confidence=np.exp(-np.logaddexp(0, -np.take_along_axis(wide, guesses, axis=1))).astype(np.float32),
        right=np.take_along_axis(shown, guesses, axis=1),
        losses=(np.logaddexp(0, wide) - shown * wide).sum(axis=1).astype(np.float32),
    )


def measure_multilabel(logits: np.ndarray, shown: np.ndarray, names: tuple[str, ...]) -> MultiLabelEvaluation:
    """All numbers from logits (images, classes) and what the images show."""
    said = logits > 0
    images, guessed, right = shown.sum(axis=0), said.sum(axis=0), (shown & said).sum(axis=0)
    classes = tuple(
        LabelResult(
            number=number,
            name=name,
            images=int(images[number]),
            guessed=int(guessed[number]),
            right=int(right[number]),
            average_precision=average_precision(logits[:, number], shown[:, number]),
            f1=_f1(int(right[number]), int(images[number]), int(guessed[number])),
        )
        for number, name in enumerate(names)
    )
    has_any = shown.any(axis=1)
    hits = shown[np.arange(len(shown)), logits.argmax(axis=1)]
    return MultiLabelEvaluation(
        images=len(shown),
        mean_average_precision=_mean([one.average_precision for one in classes]),
        exact=share_of(int((shown == said).all(axis=1).sum()), len(shown)),
        hit=share_of(int(hits.sum()), int(has_any.sum())) if has_any.any() else None,
        micro_f1=_f1(int(right.sum()), int(images.sum()), int(guessed.sum())),
        macro_f1=_mean([one.f1 for one in classes]),
        threshold=THRESHOLD,
        loss=float(answers(logits, shown).losses.astype(np.float64).mean()),
        classes=classes,
    )


def average_precision(scores: np.ndarray, shown: np.ndarray) -> float | None:
    """The area under precision over recall, as a sum of steps; images with equal scores come together."""
    if not shown.any():
        return None
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(shown[order])
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    found = found[ends]
    return float((np.diff(found, prepend=0) * found / (ends + 1)).sum() / found[-1])


def _f1(right: int, images: int, guessed: int) -> float | None:
    return 2 * right / (images + guessed) if images + guessed else None


def _mean(values: list[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return float(np.mean(found)) if found else None
