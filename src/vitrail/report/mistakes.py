"""The mistakes that cost most, each with its picture."""

import base64
import io

import numpy as np

from vitrail.data import Source
from vitrail.data.check.words import counted, number, path, text
from vitrail.data.decoding.decode import decode
from vitrail.errors import DataError
from vitrail.evaluate import Predictions
from vitrail.report.numbers import percent

_SHOWN = 20
_SIDE = 160
# Smaller pictures are enlarged, pixel by pixel.
_SMALL = 80


def worst_mistakes(predictions: Predictions) -> np.ndarray:
    """Places of the wrong images with the highest loss, the worst first."""
    wrong = np.flatnonzero(~predictions.right[:, 0])
    losses = np.nan_to_num(predictions.losses[wrong], nan=np.inf)
    return wrong[np.argsort(-losses, kind="stable")][:_SHOWN]


def mistake_words(predictions: Predictions) -> str:
    """How many there are, and how sure the model was of itself."""
    wrong = int((~predictions.right[:, 0]).sum())
    sure, right = predictions.confidence[:, 0].mean(), predictions.right[:, 0].mean()
    return (
        f"{counted(wrong, 'image')} of {number(len(predictions))} wrong; those with the highest loss first. "
        f"On average the model was {percent(float(sure))} sure and {percent(float(right))} right."
    )


def gallery(source: Source, predictions: Predictions, *, is_grey: bool, data: str) -> str:
    """A picture with truth, guess and place for each; places are shown without the folder `data`."""
    shots = "".join(_shot(source, predictions, int(index), is_grey, data) for index in worst_mistakes(predictions))
    return f'<div class="shots">{shots}</div>'


def _shot(source: Source, predictions: Predictions, index: int, is_grey: bool, data: str) -> str:
    classes = source.classes
    true = ", ".join(classes[one] for one in source.labels.classes_of(index)) or "none of the classes"
    guess, sure = classes[predictions.guesses[index, 0]], predictions.confidence[index, 0]
    return (
        f'<figure><div class="frame">{_picture(source, index, is_grey)}</div><figcaption>'
        f'<span class="truth">{text(true)}</span><span class="guess">{text(guess)} <i>{percent(float(sure))}</i></span>'
        f'<span class="path">{path(source.where(index), data)}</span></figcaption></figure>'
    )


def _picture(source: Source, index: int, is_grey: bool) -> str:
    try:
        image = decode(source.read(index), "L" if is_grey else "RGB", where=source.where(index)).image
    except DataError:
        return '<span class="gone">no longer readable</span>'
    look = ' class="pixels"' if max(image.size) <= _SMALL else ""
    image.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return f'<img alt=""{look} src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode("ascii")}">'
