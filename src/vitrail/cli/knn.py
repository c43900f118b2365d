"""`vitrail knn`: what the most similar training images are, on frozen features."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from vitrail.cli.on_features import Case, Models, Options, on_features, run_verb
from vitrail.cli.terminal import console, print_json, printable, table
from vitrail.config.checks import positive

if TYPE_CHECKING:
    from vitrail.evaluation.nearest import Nearest

_TEMPERATURE = 0.07


@dataclass(frozen=True)
class _Row:
    case: Case
    found: tuple["Nearest", ...]


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail knn MODEL ... --data D ...`."""
    run_verb("knn", run, words)


def run(
    models: Models,
    /,
    options: Annotated[Options, tyro.conf.arg(name="")],
    k: tuple[int, ...] = (20,),
    temperature: float = _TEMPERATURE,
) -> None:
    """Let the k most similar training images, by cosine of their features, vote on every test image.

    Nothing is learnt and nothing is chosen. Features are shared with `vitrail fewshot` and `vitrail probe`.

    Args:
        models: Model folders, runs, files or names with published weights.
        options: Where features come from.
        k: How many neighbours vote.
        temperature: In the weighted vote a neighbour counts exp(cosine / temperature).
    """
    from vitrail.evaluation.feature_sets import ensure_positive
    from vitrail.evaluation.nearest import nearest_neighbours

    # Before minutes are spent on features.
    for number in k:
        positive("k", number)
    ensure_positive("temperature", temperature)

    def measure(case: Case) -> Iterator[_Row]:
        sets = case.sets()
        yield _Row(case, nearest_neighbours(*sets.train, *sets.test, k=k, temperature=temperature, device=case.device))

    def show(rows: list[_Row]) -> None:
        if options.json:
            print_json({"temperature": temperature, "results": [_for_programs(row) for row in rows]})
        else:
            _print(rows, temperature)

    on_features(models, options, measure, show)


def _print(rows: list[_Row], temperature: float) -> None:
    heads = ("model", "data", "classes", "k", "plain vote", "weighted vote", "training images", "test images")
    shown = table(*heads, numbers=heads[2:])
    for row in rows:
        case = row.case
        for found in row.found:
            shown.add_row(
                *(printable(case.model), printable(case.data), f"{len(case.classes):,}", str(found.k)),
                *(f"{100 * found.plain:.2f}", f"{100 * found.weighted:.2f}"),
                *(f"{len(case.train.source):,}", f"{found.images:,}"),
            )
    console().print(shown)
    console().print(
        f"Test accuracy in %, every test image counted once. Weighted: exp(cosine / {temperature:g}) votes each."
    )


def _for_programs(row: _Row) -> dict[str, object]:
    votes = [
        {
            "k": found.k,
            "test_images": found.images,
            "plain_right": found.plain_right,
            "plain": found.plain,
            "weighted_right": found.weighted_right,
            "weighted": found.weighted,
        }
        for found in row.found
    ]
    return {**row.case.facts(), "votes": votes}
