"""The networks of the paper, as plain torch modules."""

from vitrail.models.bit import BitResNet
from vitrail.models.classifier import Classifier
from vitrail.models.create import build, create_model, tell_dropped_pixels
from vitrail.models.peer import PeerNetwork
from vitrail.models.vit import VisionTransformer

__all__ = [
    "BitResNet",
    "Classifier",
    "PeerNetwork",
    "VisionTransformer",
    "build",
    "create_model",
    "tell_dropped_pixels",
]
