"""How good a network is: every image counted once, none dropped, repeated or replaced."""

from vitrail.evaluate.classify import Predictions, classify
from vitrail.evaluate.closed_form import Fewshot, fewshot
from vitrail.evaluate.evaluation import Evaluation, Measured, evaluate_subject
from vitrail.evaluate.hidden import guess_hidden
from vitrail.evaluate.metrics import Metrics, confusion, interval, measure
from vitrail.evaluate.multilabel import MultiLabelEvaluation
from vitrail.evaluate.nearest import Nearest, nearest_neighbours
from vitrail.evaluate.probe import Probe, linear_probe

__all__ = [
    "Evaluation",
    "Fewshot",
    "Measured",
    "Metrics",
    "MultiLabelEvaluation",
    "Nearest",
    "Predictions",
    "Probe",
    "classify",
    "confusion",
    "evaluate_subject",
    "fewshot",
    "guess_hidden",
    "interval",
    "linear_probe",
    "measure",
    "nearest_neighbours",
]
