"""What is measured: a model on its device, and how images become its input."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from vitrail.config.preprocessing import known_preprocessing
from vitrail.data import Preparation
from vitrail.models import Classifier
from vitrail.weights.fingerprint import fingerprint
from vitrail.weights.load import Size, load_model


@dataclass(frozen=True)
class Subject:
    """A model that is measured."""

    name: str
    """What was asked for."""
    model: Classifier
    """In evaluation mode, on the device."""
    preparation: Preparation
    device: torch.device
    bfloat16: bool = False

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the network and its weights, whatever file they came from."""
        return fingerprint(self.model.config, self.model.state_dict())


def open_subject(
    source: str | Path,
    *,
    image_size: Size | None = None,
    preprocessing: str | None = None,
    device: torch.device | None = None,
    bfloat16: bool = False,
) -> Subject:
    """Load whatever `load_model` takes; it has to be known how its images were prepared."""
    device = device or torch.device("cpu")
    model = load_model(source, image_size=image_size).to(device).eval()
    prepared = known_preprocessing(model.preprocessing, preprocessing, str(source))
    config = model.config
    preparation = Preparation(size=config.image_size, preprocessing=prepared, channels=config.channels)
    return Subject(str(source), model, preparation, device, bfloat16)
