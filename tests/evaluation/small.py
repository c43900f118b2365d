"""A small network and small images, to take features of."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vitrail import create_model, save_model
from vitrail.config import Preprocessing
from vitrail.data import Arrays, Labels, Preparation
from vitrail.evaluation.subject import Subject
from vitrail.models import Classifier

CPU = torch.device("cpu")
HALF = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), interpolation="bilinear")
GREY = Preprocessing(mean=(0.5,), std=(0.5,), interpolation="bilinear")


def network(seed: int = 0) -> Classifier:
    """A ViT of a few thousand parameters, none of them zero."""
    model = create_model("vit-test", num_classes=3, image_size=8, patch_size=4, width=16, depth=1, num_heads=2)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.preprocessing = HALF
    return model.eval()


def model_folder(path: Path, seed: int = 0) -> Path:
    """The network as a model folder."""
    save_model(network(seed), path)
    return path


def subject(model: nn.Module | None = None, bfloat16: bool = False) -> Subject:
    model = model or network()
    grey = not isinstance(model, Classifier)
    preparation = Preparation(size=(8, 8), channels=1 if grey else 3, preprocessing=GREY if grey else HALF)
    return Subject("small", model, preparation, CPU, bfloat16)  # type: ignore[arg-type]


def levels(images: int = 23, classes: int = 3, split: str = "train") -> Arrays:
    """Image i has the grey level i everywhere, so that a network can see which one it is."""
    pixels = np.broadcast_to(np.arange(images, dtype=np.uint8)[:, None, None], (images, 8, 8)).copy()
    names = tuple(f"class {number}" for number in range(classes))
    return Arrays("levels", split, names, Labels.of(np.arange(images) % classes, classes), pixels)


@dataclass
class Numbers:
    """A network whose features are the number of the image, and a record of what was asked."""

    room: int = 1000
    seen: list[list[int]] = field(default_factory=list)

    def features(self, images: Tensor) -> Tensor:
        if len(images) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        numbers = ((images[:, 0, 0, 0] + 1) / 2 * 255).round()
        self.seen.append(numbers.int().tolist())
        return torch.stack([numbers, -numbers, numbers * numbers], dim=1)
