"""How good a network is: every image counted once, none dropped, repeated or replaced."""

from vitrail.evaluation.classify import Predictions, classify
from vitrail.evaluation.closed_form import Fewshot, fewshot
from vitrail.evaluation.evaluation import Evaluation, Measured, evaluate_subject
from vitrail.evaluation.hidden import guess_hidden
from vitrail.evaluation.metrics import Metrics, confusion, interval, measure
from vitrail.evaluation.multilabel import MultiLabelEvaluation
from vitrail.evaluation.nearest import Nearest, nearest_neighbours
from vitrail.evaluation.probe import Probe, linear_probe

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
