"""What a finished run said about each image that it was measured on, read back from its folder."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitrail.data import Source
from vitrail.errors import VitrailError
from vitrail.evaluation import Predictions
from vitrail.runtime.archives import open_npz

_ARRAYS = ("guesses", "confidence", "right", "losses")
# A sum of shares in float32 may be a little more than all.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Answers:
    """The predictions, and which images they are about."""

    predictions: Predictions
    labels: np.ndarray | None
    """The class of each image; none where an image may have several, or the file is an old one."""
    digest: str | None
    """Of the images; none in an old file."""

    def ensure_about(self, source: Source, classes: tuple[str, ...]) -> None:
        """Refuse images that are not those the predictions are about: numbers beside them would be wrong."""
        came = ""
        if len(source) != len(self.predictions):
            came = f"there are {len(source):,} images now, and {len(self.predictions):,} were measured"
        elif source.classes != classes:
            came = "the classes are not those of the run"
        elif not np.array_equal(_first_is_right(source, self.predictions), self.predictions.right[:, 0]):
            came = "the labels are not those that were measured"
        elif self.digest is not None and source.digest() != self.digest:
            came = "the images are not those that were measured"
        if came:
            raise VitrailError(f"the data has changed since: {came}", where=f"{source.name}, {source.split}")


def read_answers(path: Path, classes: int) -> Answers:
    """What `finish` of the training room wrote; damage is an error that names the file."""
    try:
        with open_npz(path) as file:
            found = Predictions(*(file[name] for name in _ARRAYS))
            labels = file.get("labels")
            digest = str(file["digest"]) if "digest" in file else None
    except FileNotFoundError:
        raise VitrailError("is not there any more", where=str(path)) from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise VitrailError(f"cannot be read ({error})", where=str(path)) from None
    shape = found.guesses.shape
    fits = len(shape) == 2 and shape[1] and found.right.shape == found.confidence.shape == shape
    if not fits or found.losses.shape != shape[:1] or not shape[0] or not _are_classes(found.guesses, classes):
        raise VitrailError("holds other arrays than those of a run", where=str(path))
    sure = found.confidence[~np.isnan(found.confidence)]
    if sure.size and (sure.min() < 0 or sure.max() > 1 + _ROUNDING):
        raise VitrailError("holds other probabilities than those of a run", where=str(path))
    if labels is not None and (labels.shape != shape[:1] or not _are_classes(labels, classes)):
        raise VitrailError("holds other labels than those of a run", where=str(path))
    return Answers(found, labels, digest)


def _are_classes(numbers: np.ndarray, classes: int) -> bool:
    return numbers.dtype.kind in "iu" and int(numbers.min()) >= 0 and int(numbers.max()) < classes


def _first_is_right(source: Source, predictions: Predictions) -> np.ndarray:
    first = predictions.guesses[:, 0]
    if not source.labels.is_multi:
        return source.labels.values == first
    return np.array([int(guess) in source.labels.classes_of(index) for index, guess in enumerate(first)], dtype=bool)
