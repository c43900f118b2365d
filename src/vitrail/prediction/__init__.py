"""Labelled probabilities and features for images, from any model or exported file."""

from vitrail.prediction.predictor import Answer, Predictor

__all__ = ["Answer", "Predictor"]
