"""What the network of the demo says about a few digits, and which patches it looked at."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from vitrail.cli.demo_pictures import HEAT, Picture, draw, enlarged, has_unicode
from vitrail.data import Part, Preparation, Source, evaluation_batches
from vitrail.evaluation import Predictions
from vitrail.models import VisionTransformer
from vitrail.training.folder import RunFolder
from vitrail.weights.load import load_model

_GUESSES = 3
_BAR = 9


@dataclass(frozen=True)
class Answer:
    """One digit, its guesses, and how much each patch counted."""

    image: Picture
    looked: Picture
    label: str
    guesses: tuple[tuple[str, float], ...]
    """Names and probabilities, the likeliest first."""

    @property
    def is_right(self) -> bool:
        """Whether the first guess is the label."""
        return self.guesses[0][0] == self.label


def few(predictions: Predictions, labels: np.ndarray, count: int) -> np.ndarray:
    """Which images to show: right ones of different classes, then the worst mistake, or else the least sure one."""
    right = predictions.right[:, 0]
    candidates = np.flatnonzero(~right) if not right.all() else np.arange(len(right))
    worst = candidates[predictions.losses[candidates].argmax()]
    firsts: dict[int, int] = {}
    for index in np.flatnonzero(right):
        if index != worst:
            firsts.setdefault(int(labels[index]), int(index))
    return np.array([*list(firsts.values())[: count - 1], worst])


@torch.no_grad()
def answers(
    folder: RunFolder, source: Source, predictions: Predictions, preparation: Preparation, count: int
) -> list[Answer]:
    """Send a few images through the kept model once more, this time with its attention."""
    chosen = few(predictions, source.labels.values, count)
    part, names = Part(source, chosen, source.split), source.classes
    batch = next(iter(evaluation_batches(part, preparation, batch_size=len(chosen))))
    model = load_model(folder.model)
    assert isinstance(model, VisionTransformer)
    _, attention = model.forward_tapped(batch.images, range(model.config.depth))
    patch = model.config.pixels_per_patch
    grids = rollout(list(attention.values())).unflatten(1, model.config.grid)
    found = []
    for place, index in enumerate(chosen):
        guesses = zip(predictions.guesses[index][:_GUESSES], predictions.confidence[index][:_GUESSES], strict=True)
        pixels = part.read(place)
        assert isinstance(pixels, np.ndarray)
        found.append(
            Answer(
                image=pixels / 255,
                looked=_stretched(grids[place].numpy()).repeat(patch[0], axis=0).repeat(patch[1], axis=1),
                label=names[source.labels.values[index]],
                guesses=tuple((names[guess], float(share)) for guess, share in guesses),
            )
        )
    return found


def rollout(layers: list[Float[Tensor, "batch heads tokens tokens"]]) -> Float[Tensor, "batch tokens"]:
    """How much each patch counts in the mean over all: `mean_i (prod_l (A_l + I) / 2)_ij`, heads averaged.

    Abnar & Zuidema (2020): the identity stands for the skip connection.
    """
    tokens = layers[0].shape[-1]
    product = torch.eye(tokens).expand(len(layers[0]), -1, -1)
    for weights in layers:
        product = (weights.mean(dim=1) + torch.eye(tokens)) / 2 @ product
    return product.mean(dim=1)


def figure(out: Console, shown: list[Answer]) -> Table:
    """A column for each answer: the digit, below it where the network looked, below that its guesses."""
    table = Table.grid(padding=(0, 2))
    for _ in shown:
        table.add_column(no_wrap=True)
    table.add_row(*(_verdict(answer) for answer in shown))
    table.add_row(*(draw(out, enlarged(out, answer.image)) for answer in shown))
    table.add_row()
    table.add_row(*(draw(out, enlarged(out, answer.looked), HEAT) for answer in shown))
    table.add_row()
    table.add_row(*(_bars(answer, "█" if has_unicode(out) else "#") for answer in shown))
    return table


def _verdict(answer: Answer) -> Text:
    verdict = ("right", "green") if answer.is_right else ("wrong", "bold red")
    return Text.assemble("a ", (answer.label, "bold"), ": ", verdict)


def _bars(answer: Answer, full: str) -> Text:
    lines = []
    for name, share in answer.guesses:
        style = "dim" if lines else "green" if answer.is_right else "red"
        lines.append(Text.assemble(f"{name} ", ((full * round(_BAR * share)).ljust(_BAR), style), f"{share:4.0%}"))
    return Text("\n").join(lines)


def _stretched(grid: Picture) -> Picture:
    """From the least to the most, because the differences are what there is to see."""
    low, high = grid.min(), grid.max()
    return (grid - low) / (high - low) if high > low else np.zeros_like(grid)
