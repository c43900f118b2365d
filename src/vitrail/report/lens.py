"""When the answer is found: what the head would say after each layer."""

from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from vitrail.data.check.words import counted
from vitrail.report.figures import INK, SOFT, Figure
from vitrail.report.glyphs import Naming
from vitrail.report.shown import Shown

# More lines than these cross each other beyond recognition.
_MOST_LINES = 6


@dataclass(frozen=True)
class Lens:
    """What the layers say about some images."""

    probability: np.ndarray
    """Of the final answer, (depth + 1, images)."""
    guesses: np.ndarray
    """The first guess after each layer, (depth + 1, images)."""
    squashed: str = "softmax"
    """How logits become probabilities: softmax, or sigmoid where each class was learnt by itself."""

    @property
    def agreement(self) -> np.ndarray:
        """The share of images for which each layer guesses what the last one does."""
        return (self.guesses == self.guesses[-1]).mean(axis=1)


def lens_figure(found: Lens, shown: Shown, places: np.ndarray) -> Figure:
    """A line for each image that is shown, and the mean over all; `places` are those of the shown among all."""
    depth, images = found.probability.shape[0] - 1, found.probability.shape[1]
    settled = next(layer for layer in range(depth + 1) if (found.agreement[layer:] >= 0.5).all())
    few = min(len(shown), _MOST_LINES)
    lines = "Each coloured line is an image"
    if images > few:
        lines += (
            f", the black one the mean over all {images:,}, and the dashed one the share of first guesses that are "
            "the final ones already"
        )
    return Figure(
        name="lens",
        title="The answer after each layer",
        caption=(
            "How probable the final answer is when the head reads the tokens after each layer, for "
            f"{counted(images, 'image')} (0 is the embedding). {lines}. {_settled_words(settled, depth)} It is "
            f"{found.squashed}(head(LN(z_l))) at the class that the whole network answers, with z_l of equations "
            "(2) and (3) and the final LayerNorm and head as they are."
        ),
        seen=(
            f"half of the first guesses are final after {settled} of {depth} layers"
            if settled
            else "half of the first guesses are final before the first layer"
        ),
        draw=lambda naming: _drawn(found, shown, places, naming),
        numbers={"lens_probability": found.probability.astype(np.float32), "lens_guesses": found.guesses},
        facts={
            "images": images,
            "mean_probability": found.probability.mean(axis=1).tolist(),
            "agreement": found.agreement.tolist(),
            "settled": settled,
        },
        labels=shown.named(),
    )


def _settled_words(settled: int, depth: int) -> str:
    if not settled:
        return (
            "Before the first layer half of the first guesses are the final ones, so this network says much the same "
            "whatever its layers find."
        )
    if settled == depth:
        return f"Only after the last of {depth} layers are half of the first guesses the final ones."
    return f"After {settled} of {depth} layers at least half of the first guesses are the final ones."


def _drawn(found: Lens, shown: Shown, places: np.ndarray, naming: Naming) -> Canvas:
    canvas = Canvas(figsize=(6.6, 3.2), layout="constrained")
    axes = canvas.subplots()
    depths = np.arange(len(found.probability))
    few = min(len(shown), _MOST_LINES)
    colours = colormaps["turbo"](np.linspace(0.1, 0.9, max(few, 2)))
    for number in range(few):
        name = f"{shown.file(number)}: {shown.guess(number, naming)}"
        line = found.probability[:, places[number]]
        axes.plot(depths, line, color=colours[number], linewidth=1.1, alpha=0.9, label=name)
    if found.probability.shape[1] > few:
        axes.plot(depths, found.probability.mean(axis=1), color=INK, linewidth=2, label="mean over all images")
        axes.plot(
            depths, found.agreement, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label="guesses that are final"
        )
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(0, depths[-1])
    axes.yaxis.grid(True, color=SOFT, alpha=0.2, linewidth=0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("Layers read (0 is the embedding)")
    axes.set_ylabel("Probability of the final answer")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7)
    return canvas
