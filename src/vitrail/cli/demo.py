"""`vitrail demo`: a Vision Transformer learns to read digits, and shows what it learnt."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vitrail.cli.asking import command_line
from vitrail.cli.demo_answers import answers, figure
from vitrail.cli.demo_pictures import Picture, cut, draw, enlarged, letters_wide
from vitrail.cli.live_state import percent
from vitrail.cli.terminal import console
from vitrail.cli.training import Terminal, say_plan
from vitrail.config import VitConfig, read_values, times
from vitrail.data.sources.source import Source
from vitrail.experiments.ask import Ask, names_of
from vitrail.runtime.processes import ALONE
from vitrail.runtime.threads import one_thread
from vitrail.training.folder import RunFolder

if TYPE_CHECKING:
    from vitrail.data import Preparation
    from vitrail.experiments.experiment import Experiment, Run
    from vitrail.training.finish import Outcome
    from vitrail.training.session import Session

_RECIPE = "vit-digits"
_WIDEST = 92
_MOST_SAMPLES, _MOST_ANSWERS = 8, 4
_GAP = 2


def run(seed: int = 0, out: Path = Path("runs"), epochs: int | None = None) -> None:
    """Train a Vision Transformer on embedded digits, measure it, look inside and write a report: offline, on the CPU.

    Args:
        seed: Another number gives another network.
        out: The folder that holds the folders of runs.
        epochs: Passes over the images, if not the recipe's: fewer are faster and worse.
    """
    from vitrail.experiments.driver import Driver, How
    from vitrail.experiments.folders import Destination, claimed
    from vitrail.experiments.train import plan

    given = {"data": "digits", "seed": seed} | ({} if epochs is None else {"epochs": epochs})
    ask = Ask(verb="train", subjects=(_RECIPE,), given=read_values(given, names_of("train")))
    teller = Teller()
    driver = Driver(How(device=torch.device("cpu"), audience=teller, command=command_line()))
    with one_thread():
        training = plan(ask, driver)
        sources = driver.sources(training.config.data)
        with claimed(Destination(out, "demo", is_exact=False), sources, ALONE) as target:
            driver.drive(training, training.at(target.path))
    assert teller.outcome is not None and teller.preparation is not None
    _say_result(teller.outcome)
    _show_answers(teller.preparation, target, teller.outcome)
    _say_what_to_try(target)


class Teller(Terminal):
    """Tells the story of the run, and remembers how it ended."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self.preparation: Preparation | None = None

    def begins(self, experiment: "Experiment", run: "Run", session: "Session", folder: RunFolder, number: int) -> None:
        """What a Vision Transformer is, and what will happen."""
        self.preparation = session.preparation
        _say_what_will_happen(session)
        say_plan(session, folder)

    def ended(self, experiment: "Experiment", run: "Run", outcome: "Outcome", folder: RunFolder) -> None:
        """It is told below, with examples."""
        self.outcome = outcome

    def result(self, experiment: "Experiment", result: object, folder: object) -> None:
        """It is told below, with examples."""


def _say_what_will_happen(session: "Session") -> None:
    out, train, model = console(), session.data.train, session.config.model
    assert isinstance(model, VitConfig)
    patches = model.grid[0] * model.grid[1]
    firsts = [int(np.flatnonzero(train.labels.values == number)[0]) for number in range(len(train.classes))]
    images = [_pixels(train, index) for index in firsts]
    out.print("\n[bold]A Vision Transformer learns to read digits[/]\n")
    out.print(_row(*(draw(out, image) for image in images[: _fitting(out, _MOST_SAMPLES, images[0])])))
    story = (
        f"It learns from {len(train):,} handwritten digits like these. To a Vision Transformer an image is a sentence "
        f"of {patches} words: it is cut into {patches} patches of {times(model.patch_size)} pixels, and each becomes "
        f"{model.width} numbers. In {model.depth} blocks every patch looks at all the others and takes from them what "
        "it needs; the mean of what they found says which digit it is. Nobody tells it where to look: it starts from "
        "random numbers, and each mistake moves them a little."
    )
    out.print()
    out.print(_row(draw(out, enlarged(out, cut(images[4], model.patch_size))), story), width=_width(out))
    out.print()


def _say_result(outcome: "Outcome") -> None:
    metrics = outcome.metrics
    assert metrics is not None
    right = round(metrics.accuracy * metrics.images)
    console().print(
        f"\n[bold]It reads {right:,} of {metrics.images:,} test digits right: {percent(metrics.accuracy)}.[/] "
        "It had seen none of them before.\n"
    )


def _show_answers(preparation: "Preparation", folder: RunFolder, outcome: "Outcome") -> None:
    out = console()
    assert outcome.source is not None and outcome.predictions is not None
    count = _fitting(out, _MOST_ANSWERS, enlarged(out, _pixels(outcome.source, 0)))
    out.print(
        "Some of them; below each the patches it looked at, the brightest the most (attention, followed through all "
        "blocks), and its three best guesses:\n",
        width=_width(out),
    )
    shown = answers(folder, outcome.source, outcome.predictions, preparation, count)
    out.print(figure(out, shown))


def _say_what_to_try(folder: RunFolder) -> None:
    out, model = console(), escape(shlex.quote(str(folder.path)))
    out.print("\n[bold]Open[/] its page, with the curves, what it confuses and its worst mistakes:")
    # Whole, however long, so that a terminal makes a link of it.
    out.print(f"  [cyan]{escape(_link(folder.report))}[/]", soft_wrap=True)
    out.print("\n[bold]Try[/]")
    commands = {
        f"vitrail serve {model}": "draw a digit, and watch where it looks",
        f"vitrail predict {model} IMAGES": "what it takes your images for",
        f"vitrail info {model}": "what this network is",
        f"vitrail train {_RECIPE} --seed 1": "another start: how much is luck?",
        "vitrail data check FOLDER": "is anything wrong with your images?",
        "vitrail train --data FOLDER": "learn from a folder for each class",
        "vitrail finetune vit-ti16 --data FOLDER": "the same, from published weights (23 MB)",
        "vitrail list recipes": "the paper's, and ours for small data",
    }
    width = max(map(len, commands))
    is_narrow = width + max(map(len, commands.values())) + 4 > out.width
    for command, why in commands.items():
        between = "\n    " if is_narrow else " " * (width - len(command) + 2)
        out.print(f"  [bold cyan]{command}[/]{between}[dim]{why}[/]", soft_wrap=True)


def _pixels(source: Source, index: int) -> Picture:
    pixels = source.read(index)
    assert isinstance(pixels, np.ndarray)
    return pixels / 255


def _row(*parts: RenderableType) -> Table:
    row = Table.grid(padding=(0, _GAP))
    for part in parts:
        row.add_column(no_wrap=isinstance(part, Text))
    row.add_row(*parts)
    return row


def _fitting(out: Console, most: int, picture: Picture) -> int:
    """How many such pictures fit side by side."""
    return min(most, (_width(out) + _GAP) // (letters_wide(out, picture) + _GAP))


def _link(path: Path) -> str:
    return path.resolve().as_uri()


def _width(out: Console) -> int:
    return min(out.width, _WIDEST)
