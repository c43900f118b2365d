"""`vitrail train`: pre-training and training from scratch, and going on with any run."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vitrail.cli.asking import (
    MaskedSettable,
    Model,
    ResumeHelp,
    Settable,
    carry_out,
    is_help,
    is_resume,
    parsed,
    read_ask,
    settable,
    show_help,
)
from vitrail.cli.terminal import console
from vitrail.cli.training import Terminal, say_next, say_plan, say_result, watched
from vitrail.config import DataConfig
from vitrail.experiments.ask import names_of
from vitrail.experiments.resolve import OWN_DATA, SCRATCH, scratch_recipe
from vitrail.experiments.train import Options
from vitrail.training.folder import NamedFolder, RunFolder

if TYPE_CHECKING:
    from vitrail.experiments.experiment import Experiment, Run
    from vitrail.training.finish import Outcome
    from vitrail.training.session import Session

# Images up to which a network from scratch is not likely the best.
_FEW = 10_000


@dataclass(frozen=True, kw_only=True)
class Help(Options, Settable[Model]):
    """Train a network on images: from scratch, by a recipe whose every value can be changed."""


@dataclass(frozen=True, kw_only=True)
class MaskedHelp(Options, MaskedSettable[Model]):
    """Teach a network without labels: part of each image is hidden, and predicted from the rest."""


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail train RECIPE --data D ...`, the same with timm:NAME for RECIPE, or `vitrail train --resume RUN`."""
    if is_help(words):
        _help(words)
    carry_out(read_ask("train", words), Teller)


class Teller(Terminal):
    """Tells of one run."""

    def __init__(self) -> None:
        self._has_ended = False

    def begins(self, experiment: "Experiment", run: "Run", session: "Session", folder: RunFolder, number: int) -> None:
        """What will happen, on what, for about how long."""
        say_plan(session, folder)
        config, images = session.config, len(session.data.train)
        if config.recipe == SCRATCH and images < _FEW and not session.progress.step:
            _advise_finetuning(config.data, images)

    def ended(self, experiment: "Experiment", run: "Run", outcome: "Outcome", folder: RunFolder) -> None:
        """How good it is, and what to type next."""
        self._has_ended = True
        say_result(outcome, folder, watched(run.config))
        data = run.config.data if outcome.metrics is not None else None
        say_next(folder, run.config.model, is_labelled=run.config.masking is None, data=data)

    def result(self, experiment: "Experiment", result: Any, folder: NamedFolder) -> None:
        """Of a run that was done before, where everything is."""
        if not self._has_ended:
            console().print(f"This run is finished: its model is {folder.model}, its page {folder.report}.")


AUDIENCE = Teller


def _help(words: Sequence[str]) -> None:
    if is_resume(words):
        show_help(ResumeHelp, "vitrail train", "", short={})
    subjects, _ = parsed([word for word in words if word not in ("-h", "--help")], names_of("train"))
    chosen = scratch_recipe(subjects[0] if subjects else SCRATCH, None)
    kind: Any = Help if chosen.masking is None else MaskedHelp
    known = settable(chosen, chosen.model, data=OWN_DATA.get(chosen.name), held_out=chosen.held_out)  # type: ignore[arg-type]
    show_help(
        kind[type(chosen.model)],
        f"vitrail train {subjects[0] if subjects else '[RECIPE]'}",
        "`vitrail train --resume RUN` goes on with a run, and with --help behind it lists what may then differ.",
        kind(**known),
    )


def _advise_finetuning(data: DataConfig, images: int) -> None:
    """Few images teach a network that has seen none before little; who knows that may still want it from scratch."""
    # The numbers are those of benchmarks/results/h200-transfer.md.
    console().print(
        f"{images:,} images are few for a network that starts from nothing: a published one, fine-tuned, is likely far "
        "better and sooner done. (On 3,680 photos of pets a ViT-Ti/16 came to 91.5 %, from scratch to 21.2 %.)\n"
        f"  vitrail finetune vit-ti16 --data {shlex.quote(data.data)}{' --skip-bad' * data.skip_bad}\n",
        markup=False,
        soft_wrap=True,
    )
