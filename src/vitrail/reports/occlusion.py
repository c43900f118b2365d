"""What an answer rests on: the input beside how much each covered part takes from it."""

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure as Canvas

from vitrail.data.check.words import counted
from vitrail.inspection import Covers
from vitrail.reports.figures import Figure
from vitrail.reports.glyphs import Naming
from vitrail.reports.pairs import draw_pairs
from vitrail.reports.shown import Shown

_STRENGTH = 0.75
# Below this a map stays pale: an answer that nothing shakes is not to look shaken.
_FULL = 0.1


def occlusion_figure(drops: np.ndarray, shown: Shown, there: Covers) -> Figure:
    """Pairs of pictures; `drops` is (images, rows, columns), a number for each cover."""
    # The largest: those at the upper and left edge begin at it.
    cover = [max(box[side + 2] - box[side] for box in there.boxes) for side in (0, 1)]
    return Figure(
        name="occlusion",
        title="What the answer rests on",
        caption=(
            f"For {counted(len(shown), 'image')}, the input and beside it in red where a grey cover of "
            f"{cover[0]}x{cover[1]} pixels makes the network less sure of its answer, in blue where it makes it "
            f"surer; below it the largest loss and gain, which are full colour from {_FULL:.0%} on. The value at "
            "a place is p(c | x) − p(c | x with the cover there) for the class c that the network answers "
            f"without a cover; at most a cover takes {_between(drops.max(axis=(1, 2)))} from it."
        ),
        seen=f"a cover takes at most {_between(drops.max(axis=(1, 2)))} from the answer",
        draw=lambda naming: _drawn(drops, shown, there.cell, naming),
        numbers={"occlusion": drops.astype(np.float32)},
        facts={
            "cover": cover,
            "cell": list(there.cell),
            "images": [
                {**fact, "largest_drop": float(drop.max()), "largest_gain": float(max(0.0, -drop.min()))}
                for fact, drop in zip(shown.facts(), drops, strict=True)
            ],
        },
        labels=shown.named(),
    )


def _between(values: np.ndarray) -> str:
    low, high = f"{max(0.0, values.min()):.0%}", f"{max(0.0, values.max()):.0%}"
    return low if low == high else f"{low} to {high}"


def _drawn(drops: np.ndarray, shown: Shown, cell: tuple[int, int], naming: Naming) -> Canvas:
    beside = [painted(picture, drop, cell) for picture, drop in zip(shown.pictures, drops, strict=True)]
    words = [f"−{max(0.0, drop.max()):.0%} to +{max(0.0, -drop.min()):.0%}" for drop in drops]
    return draw_pairs(shown, "Covered here", beside, naming, words)


def painted(picture: np.ndarray, drop: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    """The picture in grey, red where the drop is positive and blue where it is negative, cell by cell."""
    height, width = picture.shape[:2]
    rows = np.minimum(np.arange(height) // cell[0], drop.shape[0] - 1)
    columns = np.minimum(np.arange(width) // cell[1], drop.shape[1] - 1)
    end = max(float(np.abs(drop).max()), _FULL)
    strength = (drop / end)[rows[:, None], columns[None, :]]
    colours = colormaps["coolwarm"](0.5 + strength / 2)[:, :, :3]
    share = _STRENGTH * np.abs(strength)[:, :, None]
    grey = picture.mean(axis=2, keepdims=True)
    return grey * (1 - share) + colours * share
