"""`vitrail selftrain`: a teacher labels images that nobody labelled, and a noised student learns from all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape

from vitrail.cli.asking import (
    Model,
    ResumeAloneHelp,
    Settable,
    carry_out,
    is_help,
    is_resume,
    read_ask,
    settable,
    show_help,
)
from vitrail.cli.terminal import console, printable, table
from vitrail.cli.training import Terminal, say_next, say_plan
from vitrail.config import VitConfig
from vitrail.config.spelling import SHORT
from vitrail.config.training import Parallel
from vitrail.errors import notice
from vitrail.experiments import selftrain
from vitrail.experiments.resolve import SCRATCH
from vitrail.experiments.selftrain import Options, Plan, SelftrainFolder, noised_images, noised_network
from vitrail.recipes import recipe
from vitrail.training.folder import NamedFolder, RunFolder

if TYPE_CHECKING:
    from vitrail.experiments.experiment import Experiment, Run
    from vitrail.experiments.selftrain_result import Model as Learnt
    from vitrail.experiments.selftrain_result import Result, Score, Taught
    from vitrail.experiments.selftrain_sets import Sets
    from vitrail.training.session import Session


@dataclass(frozen=True, kw_only=True)
class Help(Options, Settable[Model]):
    __doc__ = Options.__doc__
    processes: Annotated[int | None, tyro.conf.Suppress] = None
    parallel: Annotated[Parallel, tyro.conf.Suppress] = "auto"
    or_resume: Annotated[bool, tyro.conf.Suppress] = False


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail selftrain TEACHER --data D --unlabelled IMAGES ...`, or `vitrail selftrain --resume FOLDER`."""
    if is_help(words):
        _help(words)
    carry_out(read_ask("selftrain", words), Teller)


class Teller(Terminal):
    """Tells who teaches whom what."""

    def planned(self, experiment: "Experiment", folder: NamedFolder, **facts: Any) -> None:
        """What will happen."""
        assert isinstance(experiment, Plan)
        say_rounds(experiment, facts["sets"], folder, is_again=facts["is_again"])

    def begins(self, experiment: "Experiment", run: "Run", session: "Session", folder: RunFolder, number: int) -> None:
        """The run of a student."""
        say_plan(session, folder)

    def tell(self, experiment: "Experiment", fact: Any, **about: Any) -> None:
        """What a student is taught, and at the end of a round whether it knows less than its teacher."""
        assert isinstance(experiment, Plan)
        if "folder" in about:
            tell_fall(fact, about["number"], about["folder"])
        else:
            say_round(experiment, about["number"], fact)

    def result(self, experiment: "Experiment", result: Any, folder: NamedFolder) -> None:
        """Teacher and students beside each other."""
        assert isinstance(experiment, Plan) and isinstance(folder, SelftrainFolder)
        say_result(experiment, result, folder)


AUDIENCE = Teller


def _help(words: Sequence[str]) -> None:
    if is_resume(words):
        show_help(ResumeAloneHelp, "vitrail selftrain", "", short={})
    chosen = recipe(SCRATCH)
    kind: Any = Help
    assert chosen.model is not None
    known = settable(chosen, noised_network(chosen.model), held_out=chosen.held_out)
    known["augment"] = noised_images(chosen.augment, chosen.model.image_size)
    show_help(
        kind[type(chosen.model)],
        "vitrail selftrain TEACHER",
        "`vitrail selftrain --resume FOLDER` goes on with one.",
        kind(**known),
        {**SHORT, **selftrain.SHORT},
    )


_FEW = 10


def say_rounds(plan: Plan, sets: "Sets", folder: NamedFolder, *, is_again: bool = False) -> None:
    """Who teaches whom what; `is_again` in a folder where no student had begun."""
    choice, unlabelled = plan.choice, plan.unlabelled
    of_each = f", {choice.per_class:,} of each class" if choice.per_class else ", as many of each class"
    lines = [
        f"[bold]{escape(printable(plan.teacher))}[/] labels {len(sets.unlabelled):,} images of "
        f"{escape(printable(unlabelled.data))}, {escape(unlabelled.split)}: {choice.labels} labels where it is sure by "
        f"{choice.threshold:g} or more{of_each if choice.balance else ''}",
        f"[bold]{escape(plan.config.recipe)}[/] learns from them and from {len(sets.labelled.train):,} labelled ones, "
        f"against {_noise(plan)}; {plan.rounds} round{'s' if plan.rounds > 1 else ''}",
        *map(escape, sets.labelled.copies),
        f"{'begins anew in' if is_again else 'writes'} {escape(printable(str(folder.path)))}",
    ]
    console().print("\n".join(lines) + "\n")


def _noise(plan: Plan) -> str:
    model, augment = plan.config.model, plan.config.augment
    kinds = []
    if isinstance(model, VitConfig):
        kinds = [f"dropout {model.dropout:g}", f"stochastic depth {model.stochastic_depth:g}"]
    if augment.randaugment_layers:
        kinds.append(f"RandAugment {augment.randaugment_layers} x {augment.randaugment_magnitude:g}")
    return ", ".join(kinds) or "nothing but its augmentation"


def say_round(plan: Plan, number: int, taught: "Taught") -> None:
    """What the student of a round is taught."""
    out = console()
    again = f", {taught.copies:,} with repetitions" if taught.copies > taught.images else ""
    out.print(
        f"[bold]Round {number} of {plan.rounds}[/]: {taught.images:,} of {taught.offered:,} images are taught{again}"
    )
    if taught.sure is not None and taught.images < taught.offered:
        unsure, spare = taught.offered - taught.sure, taught.sure - taught.images
        reasons = [f"{unsure:,} that the teacher is less sure of than {plan.choice.threshold:g}"] if unsure else []
        reasons += [f"{spare:,} that would make classes uneven (--no-balance takes them)"] if spare else []
        out.print(f"left out: {', '.join(reasons)}")
    if taught.only:
        notice(
            f"The teacher calls all of them {printable(taught.only)}: its student will hardly know another class. "
            "A teacher that has learnt for longer, or from more labels, does better."
        )
    elif taught.unseen:
        names = ", ".join(map(printable, taught.unseen[:_FEW])) + (", ..." if len(taught.unseen) > _FEW else "")
        out.print(f"the teacher found no image of {escape(names)}: only labelled ones show it")


def say_result(plan: Plan, result: "Result", folder: SelftrainFolder) -> None:
    """Teacher and students beside each other, measured on the same images."""
    out, models = console(), (result.teacher, *result.students)
    columns = ["taught"]
    columns += ["labels right"] if any(model.taught and model.taught.right for model in models) else []
    columns += ["held-out"] if any(model.held_out for model in models) else []
    columns += ["test"] if any(model.test for model in models) else []
    shown = table("model", *columns, numbers=tuple(columns))
    for number, model in enumerate(models):
        cells = _cells(model)
        shown.add_row(f"round {number}" if number else "teacher", *(cells[column] for column in columns))
    out.print(shown)
    counts = [f"{score.images:,} {what} images" for what, score in _measured(result.teacher) if score]
    if counts:
        out.print(f"Accuracy is counted on {' and '.join(counts)}.")
    if "labels right" in columns:
        out.print("Labels right: checked afterwards against the true labels, which were used for nothing.")
    last = len(result.students)
    if last > 1 and (fall := _fall(result.teacher, result.students[-1])):
        notice(f"The last student is worse than the first teacher, {printable(result.teacher.name)}: {fall}.")
    paths = (folder.model, folder.round(plan.rounds).report, folder.result)
    for path, what in zip(paths, ("the last student", "its page: open it", "these numbers"), strict=True):
        out.print(f"{escape(printable(str(path)))}  {what}", soft_wrap=True)
    say_next(RunFolder(folder.path), plan.config.model)


def tell_fall(result: "Result", number: int, folder: SelftrainFolder) -> None:
    """Say so where the student of a round knows less than its own teacher, before it teaches the next one."""
    models = (result.teacher, *result.students)
    if fall := _fall(models[number - 1], models[number]):
        kept = folder.round(number - 1).path if number > 1 else result.teacher.name
        notice(
            f"The student of round {number} is worse than its teacher: {fall}. Noise wants time: give students more "
            f"--epochs, or keep {printable(str(kept))}."
        )


def _fall(before: "Learnt", after: "Learnt") -> str:
    """How much less one model knows than another, on the images that say it most fairly; nothing where it does not."""
    pairs = zip(_measured(before), _measured(after), strict=True)
    scores = [(what, one, other) for (what, one), (_, other) in pairs if one and other]
    if not scores:
        return ""
    # A teacher may have learnt from what is held out here; the test images are the fairer ones.
    what, one, other = scores[-1]
    if other.accuracy >= one.accuracy:
        return ""
    return f"{_percent(other)} of the {what} images against {_percent(one)}"


def _measured(model: "Learnt") -> list[tuple[str, "Score | None"]]:
    return [("held-out", model.held_out), ("test", model.test)]


def _cells(model: "Learnt") -> dict[str, str]:
    taught = model.taught
    return {
        "taught": f"{taught.images:,}" if taught else "",
        "labels right": _percent(taught.right) if taught else "",
        "held-out": _percent(model.held_out),
        "test": _percent(model.test),
    }


def _percent(score: "Score | None") -> str:
    return "" if score is None else f"{100 * score.accuracy:.2f} %"
