"""The images of each cell of a confusion matrix, shown when the cell is chosen."""

from dataclasses import dataclass

import numpy as np

from vitrail.data import Source
from vitrail.data.check.words import counted, number, path, text
from vitrail.evaluation import Predictions
from vitrail.reports.numbers import percent
from vitrail.reports.pictures import SMALL, Pictures

Place = tuple[int, int]
"""What an image is, and what it was taken for."""

MOST_IMAGES = 480
"""In all cells of a page together."""
_PER_CELL = 24


@dataclass(frozen=True)
class Cells:
    """Which images are shown where; the markup is made once."""

    panels: dict[Place, str]

    def link(self, place: Place) -> str | None:
        """Where a cell leads to, if there is something to see."""
        return f"#{anchor(place)}" if place in self.panels else None

    @property
    def hint(self) -> str:
        """What a reader may do, where there is something to see."""
        return "Choose a cell to see its images." if self.panels else ""

    @property
    def html(self) -> str:
        """All panels, of which the one that is linked to is seen."""
        return f'<div class="cells">{"".join(self.panels.values())}</div>'


NO_CELLS = Cells({})


def cells_of(source: Source, predictions: Predictions, pictures: Pictures, data: str) -> Cells:
    """A panel for each cell, those with most mistakes first, each with the images of the highest loss."""
    members = _members(source.labels.values, predictions)
    most = _most_each([len(images) for images in members.values()])
    chosen = list(members.items())[:MOST_IMAGES]
    return Cells(
        {place: _panel(place, images, images[:most], (source, predictions, pictures, data)) for place, images in chosen}
    )


def anchor(place: Place) -> str:
    """The name of a panel inside its page."""
    return f"cell-{place[0]}-{place[1]}"


def _members(labels: np.ndarray, predictions: Predictions) -> dict[Place, np.ndarray]:
    """The images of each cell, the highest loss first; mistakes before what is right, large cells before small."""
    losses = np.nan_to_num(predictions.losses, nan=np.inf)
    order = np.argsort(-losses, kind="stable")
    found: dict[Place, list[int]] = {}
    for index, true, guess in zip(order, labels[order], predictions.guesses[order, 0], strict=True):
        found.setdefault((int(true), int(guess)), []).append(int(index))
    ranked = sorted(found.items(), key=lambda item: (item[0][0] == item[0][1], -len(item[1]), item[0]))
    return {place: np.array(images) for place, images in ranked}


def _most_each(counts: list[int]) -> int:
    """As many for each cell as leave the whole below its bound."""
    for most in range(_PER_CELL, 1, -1):
        if sum(min(count, most) for count in counts) <= MOST_IMAGES:
            return most
    return 1


def _panel(place: Place, images: np.ndarray, shown: np.ndarray, of: tuple[Source, Predictions, Pictures, str]) -> str:
    source, predictions, pictures, data = of
    true, guess = (text(source.classes[one]) for one in place)
    title = f"{true} taken for {guess}" if place[0] != place[1] else f"{true}, and rightly so"
    which = "" if len(shown) == len(images) else f"; the {number(len(shown))} with the highest loss"
    shots = "".join(
        f'<figure><div class="frame">{pictures.of(int(index), SMALL)}</div>'
        f"<figcaption>{percent(float(predictions.confidence[index, 0]))} sure"
        f'<span class="path">{path(source.where(int(index)), data)}</span></figcaption></figure>'
        for index in shown
    )
    return (
        f'<div class="cell" id="{anchor(place)}" tabindex="-1"><h3>{title}</h3>'
        f'<p class="lead">{counted(len(images), "image")}{which}. <a href="#classes">Close</a></p>'
        f'<div class="shots small">{shots}</div></div>'
    )
