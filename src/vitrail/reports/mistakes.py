"""The mistakes that cost most, each with its picture and, where the network has attention, with where it looked."""

from collections.abc import Mapping

import numpy as np

from vitrail.data import Source
from vitrail.data.check.words import counted, number, path, text
from vitrail.evaluation import Predictions
from vitrail.reports.numbers import percent
from vitrail.reports.pictures import Pictures

_SHOWN, _OPEN = 20, 12


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


def gallery(
    source: Source, predictions: Predictions, pictures: Pictures, data: str, looked: Mapping[int, str] | None = None
) -> str:
    """A picture with truth, guess and place for each; places are shown without the folder `data`.

    `looked` has a second picture for some of them.
    """
    worst = [int(index) for index in worst_mistakes(predictions)]
    beside = looked or {}
    shots = [shot(source, predictions, pictures, index, data, beside.get(index, "")) for index in worst]
    look = f"shots{' doubled' if beside else ''}"
    first, rest = "".join(shots[:_OPEN]), "".join(shots[_OPEN:])
    more = f"<summary>{counted(len(shots[_OPEN:]), 'more mistake')}</summary>"
    folded = f'<details>{more}<div class="{look}">{rest}</div></details>' if rest else ""
    return f'<div class="{look}">{first}</div>{folded}'


def shot(
    source: Source,
    predictions: Predictions,
    pictures: Pictures,
    index: int,
    data: str,
    beside: str = "",
    who: str = "taken for",
) -> str:
    """An image with what it is, what it was taken for, by whom where there are several, and where it lies."""
    classes = source.classes
    true = ", ".join(classes[one] for one in source.labels.classes_of(index)) or "none of the classes"
    guess, sure = classes[predictions.guesses[index, 0]], predictions.confidence[index, 0]
    second = f'<div class="frame">{beside}</div>' if beside else ""
    return (
        f'<figure><div class="frames"><div class="frame">{pictures.of(index)}</div>{second}</div><figcaption>'
        f'<span class="truth">{text(true)}</span><span class="guess"><i>{who}</i> {text(guess)} '
        f"<i>{percent(float(sure))}</i></span>"
        f'<span class="path">{path(source.where(index), data)}</span></figcaption></figure>'
    )
