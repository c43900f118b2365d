"""Everything that is said about one model on one source, and the record of it for programs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitrail.config import to_json
from vitrail.data import Source
from vitrail.errors import DataError, setting
from vitrail.evaluation.calibration import Calibration, calibrate
from vitrail.evaluation.classify import Predictions, classify
from vitrail.evaluation.labels import By, Matched
from vitrail.evaluation.metrics import ClassResult, Share, confusion_triples, measure, per_class, share_of
from vitrail.evaluation.multilabel import MultiLabelEvaluation, answers, measure_multilabel, table_of
from vitrail.evaluation.outputs import all_outputs
from vitrail.evaluation.real import RealLabels, RealResult, match_real, measure_real
from vitrail.evaluation.subject import Subject
from vitrail.runtime.processes import ALONE, Processes

# With more classes the confusion matrix is mostly zeros.
_DENSE = 100
# What can be told although nobody knows which output is which class of the data.
_WITHOUT_LABELS = ("images", "real", "threshold")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How good a model is on images of one class each."""

    images: int
    """How many were counted."""
    top1: Share
    top5: Share
    """Those with a right one among five guesses, or among all classes where there are fewer."""
    loss: float
    """Mean cross-entropy."""
    class_mean: float
    """Mean of the accuracies of the classes that have images."""
    calibration: Calibration
    real: RealResult | None
    """By ReaL labels, where there are any."""
    classes: tuple[ClassResult, ...]
    confusion: np.ndarray
    """Rows of (is, was taken for, images), those that were right included."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A model, what it said, and how good that is."""

    subject: Subject
    source: Source
    """Its classes are those of the model."""
    matched_by: By
    """How its labels became outputs of the model; by "order", what is right cannot be told."""
    predictions: Predictions
    evaluation: Evaluation | MultiLabelEvaluation
    seconds: float
    """From the first image to the last answer."""


def evaluate_subject(
    subject: Subject,
    matched: Matched,
    *,
    batch_size: int,
    workers: int = 0,
    real: RealLabels | None = None,
    advance: Callable[[int], None] | None = None,
    processes: Processes = ALONE,
) -> Measured:
    """Send every image once through the network and count.

    Of several processes each takes every n-th image, and all of them get the same numbers.
    """
    source = matched.source
    with processes.together():
        sets = match_real(real, source) if real is not None else None
    how: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "advance": advance, "processes": processes}
    begun = time.perf_counter()
    if source.labels.is_multi:
        logits = all_outputs(subject.model, subject, source, **how)
        seconds = time.perf_counter() - begun
        with processes.together():
            _ensure_numbers(logits, source, subject)
        shown = table_of(source.labels)
        predictions, evaluation = answers(logits, shown), measure_multilabel(logits, shown, source.classes)
    else:
        predictions = classify(
            subject.model,
            source,
            subject.preparation,
            device=subject.device,
            bfloat16=subject.bfloat16,
            # A model that learnt each class by itself is read so, as its run read it.
            sigmoid=subject.model.provenance.get("loss") == "sigmoid",
            **how,
        )
        seconds = time.perf_counter() - begun
        with processes.together():
            _ensure_numbers(predictions.confidence, source, subject)
        by_real = None
        if real is not None and sets is not None:
            labels = None if matched.by == "order" else source.labels.values
            by_real = measure_real(predictions.guesses[:, 0], sets, labels, real)
        evaluation = count(predictions, source, by_real)
    return Measured(
        subject=subject,
        source=source,
        matched_by=matched.by,
        predictions=predictions,
        evaluation=evaluation,
        seconds=seconds,
    )


def count(predictions: Predictions, source: Source, real: RealResult | None = None) -> Evaluation:
    """All numbers about images of one class each."""
    labels, images = source.labels.values, len(predictions)
    classes = per_class(predictions, labels, source.classes)
    return Evaluation(
        images=images,
        top1=share_of(int(predictions.right[:, 0].sum()), images),
        top5=share_of(int(predictions.right.any(axis=1).sum()), images),
        loss=measure(predictions).loss,
        class_mean=float(np.mean([one.accuracy for one in classes if one.accuracy is not None])),
        calibration=calibrate(predictions),
        real=real,
        classes=classes,
        confusion=confusion_triples(predictions, labels),
    )


def record_of(measured: Measured) -> dict[str, Any]:
    """One model of `result.json`; docs/evaluating.md says what each field is."""
    subject, found = measured.subject, measured.evaluation
    numbers: dict[str, Any] = {
        name: to_json(value) for name, value in vars(found).items() if name not in ("classes", "confusion")
    }
    if isinstance(found, Evaluation):
        numbers["confusion"] = _confusion(found)
    numbers["classes"] = to_json(found.classes)
    if measured.matched_by == "order":
        free = {name: numbers.pop(name) for name in _WITHOUT_LABELS if name in numbers}
        numbers = {**dict.fromkeys(numbers), **free, "if_in_order": numbers}
    return {
        "model": subject.name,
        "fingerprint": subject.fingerprint,
        "network": to_json(subject.model.config),
        "preprocessing": {"size": list(subject.preparation.size), **to_json(subject.preparation.preprocessing)},
        "matched_by": measured.matched_by,
        "precision": "bfloat16" if subject.bfloat16 else "float32",
        "task": "one class" if isinstance(found, Evaluation) else "several classes",
        **numbers,
        "seconds": round(measured.seconds, 3),
        "images_per_second": round(found.images / measured.seconds, 3),
    }


def _confusion(found: Evaluation) -> dict[str, Any]:
    triples = found.confusion.tolist()
    if len(found.classes) > _DENSE:
        return {"layout": "triples", "counts": triples}
    table = [[0] * len(found.classes) for _ in found.classes]
    for true, guess, images in triples:
        table[true][guess] = images
    return {"layout": "rows", "counts": table}


def _ensure_numbers(said: np.ndarray, source: Source, subject: Subject) -> None:
    """Refuse answers that are no numbers: the guess behind them would be an accident."""
    lost = np.flatnonzero(~np.isfinite(said).all(axis=1))
    if len(lost):
        raise DataError(
            f"the network gives no number for {len(lost):,} of {len(source):,} images, first for "
            f"{source.where(int(lost[0]))}",
            where=subject.name,
            fix=f"Its weights may be damaged; with {setting('precision', 'bfloat16')}, try float32."
            if subject.bfloat16
            else "",
        )
