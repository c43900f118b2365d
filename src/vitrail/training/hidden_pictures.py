"""`hidden.npz`: a few images of a run without labels: as they are, as its network gets them, and completed by it."""

from pathlib import Path

import numpy as np
from torch import Tensor

from vitrail.models.masked import Seen
from vitrail.runtime.atomic import atomic_file

NAME = "hidden.npz"


def write_hidden(folder: Path, seen: Seen) -> None:
    """Write bytes (images, height, width, channels) under the names of `Seen`, whole or not at all."""
    original, corrupted, predicted = map(_bytes, (seen.original, seen.corrupted, seen.predicted))
    with atomic_file(folder / NAME) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, original=original, corrupted=corrupted, predicted=predicted)


def _bytes(images: Tensor) -> np.ndarray:
    return (images.float() * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
