"""`vitrail probe`: a linear classifier on frozen features of all training images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from vitrail.cli.on_features import Case, Models, Options, on_features, run_verb
from vitrail.cli.terminal import console, print_json, printable, table
from vitrail.config.checks import count
from vitrail.errors import notice

if TYPE_CHECKING:
    from vitrail.evaluation.probe import Probe


@dataclass(frozen=True)
class _Row:
    case: Case
    found: "Probe"


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail probe MODEL ... --data D ...`."""
    run_verb("probe", run, words)


def run(
    models: Models,
    /,
    options: Annotated[Options, tyro.conf.arg(name="")],
    l2: float | None = None,
    seed: int = 0,
) -> None:
    """Logistic regression on the whitened features of all training images, solved in float64 until it stands still.

    The l2 is chosen on training images that are held out, never on test images: each once, in five folds; of more than
    10,000 a fifth. The classifier then learns from all of them. Features are shared with `vitrail fewshot` and `knn`.

    Args:
        models: Model folders, runs, files or names with published weights.
        options: Where features come from.
        l2: The regularisation, in place of a choice: mean cross-entropy + l2 / 2 |W|².
        seed: Which training images are held out together to choose on.
    """
    from vitrail.evaluation.feature_sets import ensure_positive
    from vitrail.evaluation.probe import L2_GRID, linear_probe

    # Before minutes are spent on features.
    count("seed", seed)
    if l2 is not None:
        ensure_positive("l2", l2)

    def measure(case: Case) -> Iterator[_Row]:
        sets = case.sets()
        asked = L2_GRID if l2 is None else l2
        found = linear_probe(*sets.train, *sets.test, l2=asked, seed=seed, device=case.device)
        if not found.converged:
            notice(
                f"{case.model} on {case.data}: the loss was still falling after {found.iterations:,} iterations; a "
                "larger --l2 converges sooner."
            )
        yield _Row(case, found)

    def show(rows: list[_Row]) -> None:
        if options.json:
            print_json({"seed": seed, "results": [_for_programs(row) for row in rows]})
        else:
            _print(rows)

    on_features(models, options, measure, show)


def _print(rows: list[_Row]) -> None:
    heads = ("model", "data", "classes", "accuracy", "l2", "chosen on", "learnt from", "test images", "iterations")
    shown = table(*heads, numbers=heads[2:])
    for row in rows:
        case, found = row.case, row.found
        shown.add_row(
            *(printable(case.model), printable(case.data), f"{len(case.classes):,}", f"{100 * found.accuracy:.2f}"),
            *(f"{found.l2:g}", f"{found.held_out:,}" if found.held_out else "given"),
            *(f"{len(case.train.source):,}", f"{found.images:,}", f"{found.iterations:,}"),
        )
    console().print(shown)
    console().print(
        "Test accuracy in %, every test image counted once. The l2 is chosen on training images that are held out; "
        "then all of them are learnt from.",
        soft_wrap=True,
    )


def _for_programs(row: _Row) -> dict[str, object]:
    from vitrail.config import to_json

    found = row.found
    return {
        **row.case.facts(),
        "accuracy": found.accuracy,
        "right": found.right,
        "test_images": found.images,
        "l2": found.l2,
        "chosen_on_held_out_training_images": found.held_out,
        "folds": found.folds,
        "tried": [to_json(one) for one in found.tried],
        "iterations": found.iterations,
        "converged": found.converged,
        "largest_gradient": found.gradient,
    }
