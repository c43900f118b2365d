"""When the answer is found: what the head would say after each layer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from vitrail.data.check.words import counted
from vitrail.reports.figures import INK, SOFT, Figure, distinct_colours
from vitrail.reports.glyphs import Naming
from vitrail.reports.shown import Shown

# More lines than these cross each other beyond recognition.
_MOST_LINES = 6
# Letters of a name of which two fit beside each other.
_SHORT = 34


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
    few = min(len(shown), _MOST_LINES)
    drawn: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        (
            f"{shown.file(number)}: {shown.guess(number, naming)}",
            found.probability[:, places[number]],
            {"color": colour, "linewidth": 1.1, "alpha": 0.9},
        )
        for number, colour in enumerate(distinct_colours(few))
    ]
    if found.probability.shape[1] > few:
        mean, dashed = found.probability.mean(axis=1), {"linewidth": 1.2, "linestyle": (0, (4, 2))}
        drawn.append(("mean over all images", mean, {"color": INK, "linewidth": 2}))
        drawn.append(("guesses that are final", found.agreement, {"color": INK, **dashed}))
    # Names are told below the lines: beside them they would take the room of the lines.
    across = 2 if max(len(name) for name, _, _ in drawn) <= _SHORT else 1
    canvas = Canvas(figsize=(4.4, 2.8 + 0.15 * -(-len(drawn) // across)), layout="constrained")
    axes = canvas.subplots()
    depths = np.arange(len(found.probability))
    for name, line, how in drawn:
        axes.plot(depths, line, label=name, clip_on=False, **how)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(0, depths[-1])
    axes.yaxis.grid(True, color=SOFT, alpha=0.2, linewidth=0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("Layers read (0 is the embedding)")
    axes.set_ylabel("Probability of the final answer")
    axes.set_title("The answer after each layer")
    canvas.legend(loc="outside lower center", ncols=across, fontsize=7)
    return canvas
