"""The networks of the paper, as plain torch modules."""

from vitrail.models.classifier import Classifier
from vitrail.models.create import build, create_model, tell_dropped_pixels
from vitrail.models.vit import VisionTransformer

__all__ = ["Classifier", "VisionTransformer", "build", "create_model", "tell_dropped_pixels"]
