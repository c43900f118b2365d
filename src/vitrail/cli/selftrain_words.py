"""What `vitrail selftrain` says: the plan before, each round as it begins, teacher and students at the end."""

from typing import TYPE_CHECKING

from rich.markup import escape

from vitrail.cli.terminal import console, printable, table
from vitrail.cli.training import say_next
from vitrail.config import VitConfig
from vitrail.errors import notice

if TYPE_CHECKING:
    from vitrail.selftrain.folder import SelftrainFolder
    from vitrail.selftrain.plan import Plan
    from vitrail.selftrain.result import Model, Result, Score, Taught
    from vitrail.selftrain.sets import Sets

_FEW = 10


def say_rounds(plan: "Plan", sets: "Sets", folder: "SelftrainFolder", *, is_again: bool = False) -> None:
    """Who teaches whom what; `is_again` in a folder where no student had begun."""
    choice, unlabelled = plan.choice, plan.unlabelled
    of_each = f", {choice.per_class:,} of each class" if choice.per_class else ", as many of each class"
    lines = [
        f"[bold]{escape(printable(plan.teacher))}[/] labels {len(sets.unlabelled):,} images of "
        f"{escape(printable(unlabelled.data))}, {escape(unlabelled.split)}: {choice.labels} labels where it is sure by "
        f"{choice.threshold:g} or more{of_each if choice.balance else ''}",
        f"[bold]{escape(plan.config.recipe)}[/] learns from them and from {len(sets.labelled.train):,} labelled ones, "
        f"against {_noise(plan)}; {plan.rounds} round{'s' if plan.rounds > 1 else ''}",
        f"{'begins anew in' if is_again else 'writes'} {escape(printable(str(folder.path)))}",
    ]
    console().print("\n".join(lines) + "\n")


def _noise(plan: "Plan") -> str:
    model, augment = plan.config.model, plan.config.augment
    kinds = []
    if isinstance(model, VitConfig):
        kinds = [f"dropout {model.dropout:g}", f"stochastic depth {model.stochastic_depth:g}"]
    if augment.randaugment_layers:
        kinds.append(f"RandAugment {augment.randaugment_layers} x {augment.randaugment_magnitude:g}")
    return ", ".join(kinds) or "nothing but its augmentation"


def say_round(plan: "Plan", number: int, taught: "Taught") -> None:
    """What the student of a round is taught."""
    out = console()
    again = f", {taught.copies:,} with repetitions" if taught.copies > taught.images else ""
    out.print(
        f"[bold]Round {number} of {plan.rounds}[/]: {taught.images:,} of {taught.offered:,} images are taught{again}"
    )
    if taught.unseen:
        names = ", ".join(map(printable, taught.unseen[:_FEW])) + (", ..." if len(taught.unseen) > _FEW else "")
        out.print(f"the teacher found no image of {escape(names)}: only labelled ones show it")


def say_result(plan: "Plan", result: "Result", folder: "SelftrainFolder") -> None:
    """Teacher and students beside each other, measured on the same images."""
    from vitrail.train.folder import RunFolder

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
    if told := _warning(result):
        notice(told)
    paths = (folder.model, folder.round(plan.rounds).report, folder.result)
    for path, what in zip(paths, ("the last student", "its page: open it", "these numbers"), strict=True):
        out.print(f"{escape(printable(str(path)))}  {what}", soft_wrap=True)
    say_next(RunFolder(folder.path))


def _warning(result: "Result") -> str:
    """That the last student knows less than the first teacher, where the same images say so."""
    pairs = zip(_measured(result.teacher), _measured(result.students[-1]), strict=True)
    scores = [(what, before, after) for (what, before), (_, after) in pairs if before and after]
    if not scores:
        return ""
    # A teacher may have learnt from what is held out here; the test images are the fairer ones.
    what, before, after = scores[-1]
    if after.accuracy >= before.accuracy:
        return ""
    return (
        f"The last student is worse than the teacher on the {what} images: noise wants time. Give it more --epochs, or "
        f"keep {printable(result.teacher.name)}."
    )


def _measured(model: "Model") -> list[tuple[str, "Score | None"]]:
    return [("held-out", model.held_out), ("test", model.test)]


def _cells(model: "Model") -> dict[str, str]:
    taught = model.taught
    return {
        "taught": f"{taught.images:,}" if taught else "",
        "labels right": _percent(taught.right) if taught else "",
        "held-out": _percent(model.held_out),
        "test": _percent(model.test),
    }


def _percent(score: "Score | None") -> str:
    return "" if score is None else f"{100 * score.accuracy:.2f} %"
