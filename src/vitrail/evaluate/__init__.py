"""How good a network is: every image counted once, none dropped, repeated or replaced."""

from vitrail.evaluate.classify import Predictions, classify
from vitrail.evaluate.metrics import Metrics, confusion, measure

__all__ = ["Metrics", "Predictions", "classify", "confusion", "measure"]
