"""`vitrail fewshot`: a linear classifier from a few images of each class, solved in closed form on frozen features."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vitrail.cli.on_features import Case, Flag, Models, Options, on_features, run_verb
from vitrail.cli.terminal import console, print_json, printable, table
from vitrail.config.checks import positive

if TYPE_CHECKING:
    from vitrail.evaluation.protocol import ShotsResult

_L2 = 2.0**10


@dataclass(frozen=True)
class _Row:
    """A model on a data set with one number of shots."""

    case: Case
    result: "ShotsResult"


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail fewshot MODEL ... --data D ...`."""
    run_verb("fewshot", run, words)


def run(
    models: Models,
    /,
    options: Annotated[Options, tyro.conf.arg(name="")],
    shots: tuple[int, ...] = (1, 5, 10, 25),
    seeds: int = 3,
    l2: float = _L2,
    l2_grid: Flag = False,
) -> None:
    """Learn from a few images of each class and measure on all test images: the paper's few-shot accuracy.

    Regularised least squares on frozen features, exactly as big_vision solves it. Features are kept in the cache, so
    the next command on the same model and data does not compute them again.

    Args:
        models: Model folders, runs, files or names with published weights.
        options: Where features come from.
        shots: Images of each class to learn from.
        seeds: Choices of images, over which mean and standard deviation are taken.
        l2: The regularisation.
        l2_grid: Try 2^-10 to 2^19. Over several data sets one is chosen for all of them, as at the time of the paper;
            on one data set nothing is chosen and the curve is shown.
    """
    from vitrail.evaluation.feature_sets import ensure_positive
    from vitrail.evaluation.protocol import L2_GRID, measure_shots

    # Before minutes are spent on features.
    for number in shots:
        positive("shots", number)
    positive("seeds", seeds)
    ensure_positive("l2", l2)
    tried = tuple(sorted({*L2_GRID, l2})) if l2_grid else (l2,)

    def measure(case: Case) -> Iterator[_Row]:
        found = measure_shots(case.sets(), case.classes, shots=shots, seeds=seeds, l2=tried, device=case.device)
        return (_Row(case, result) for result in found)

    def show(rows: list[_Row]) -> None:
        chosen = _choose(rows, l2)
        if options.json:
            print_json(_for_programs(rows, chosen, seeds))
        else:
            _print(rows, chosen, seeds)

    on_features(models, options, measure, show)


@dataclass(frozen=True)
class _Choice:
    """The l2 of a model and a number of shots, and the data sets it was chosen on; none when it was given."""

    l2: float
    chosen_on: tuple[str, ...] = ()


def _choose(rows: list[_Row], given: float) -> dict[tuple[str, int], _Choice]:
    """One l2 per model and number of shots: that of the best mean rank, where there are data sets to rank on."""
    from vitrail.evaluation.protocol import choose_l2

    alike: dict[tuple[str, int], list[_Row]] = {}
    for row in rows:
        group = alike.setdefault((row.case.model, row.result.shots), [])
        # The same data named twice is one data set.
        if row.case.data not in {other.case.data for other in group}:
            group.append(row)
    return {
        key: _Choice(choose_l2([row.result for row in group]), tuple(row.case.data for row in group))
        if len(group) > 1 and len(group[0].result.l2) > 1
        else _Choice(given)
        for key, group in alike.items()
    }


def _print(rows: list[_Row], chosen: dict[tuple[str, int], _Choice], seeds: int) -> None:
    out = console()
    numbers = tuple(f"{shots}-shot" for shots in dict.fromkeys(sorted(row.result.shots for row in rows)))
    several = len({row.case.model for row in rows}) > 1
    heads = (*(["model"] if several else []), "data", "classes", *numbers, "test images")
    shown = table(*heads, numbers=(*numbers, "classes", "test images"))
    cases: dict[tuple[str, str], dict[int, _Row]] = {}
    for row in rows:
        cases.setdefault((row.case.model, row.case.data), {})[row.result.shots] = row
    for (model, data), by_shots in cases.items():
        case, images = next((row.case, row.result.images) for row in by_shots.values())
        cells = [
            _mean_and_std(by_shots[shots].result, chosen[model, shots].l2) if shots in by_shots else "-"
            for shots in (int(head.removesuffix("-shot")) for head in numbers)
        ]
        names = [*([printable(model)] if several else []), printable(data)]
        shown.add_row(*names, f"{len(case.classes):,}", *cells, f"{images:,}")
    out.print(shown)
    over = (
        f"mean ± standard deviation over {seeds} choices of images (seeds 0 to {seeds - 1})" if seeds > 1 else "seed 0"
    )
    out.print(f"Test accuracy in %, {over}; every test image is counted each time.", soft_wrap=True)
    for line in _about_l2(rows, chosen):
        out.print(line, markup=False, soft_wrap=True)
    if len(rows[0].result.l2) > 1:
        _print_curves(cases, chosen)


def _about_l2(rows: list[_Row], chosen: dict[tuple[str, int], _Choice]) -> Iterator[str]:
    """What was chosen, on what."""
    tried = rows[0].result.l2
    given = sorted({choice.l2 for choice in chosen.values() if not choice.chosen_on})
    if len(tried) == 1:
        yield f"l2 is {_power(tried[0])}, given and not chosen on any image."
    elif given:
        yield (
            f"l2 is {_power(given[0])} where one data set was measured: none was chosen, because only its test images "
            "could choose. The curve below is of test accuracy; its best value is no fair score."
        )
    for (model, shots), choice in chosen.items():
        if choice.chosen_on:
            yield (
                f"{printable(model)}, {shots}-shot: l2 {_power(choice.l2)} for all, chosen on the test images of "
                f"{', '.join(map(printable, choice.chosen_on))} by mean rank, as at the time of the paper."
            )


def _print_curves(cases: dict[tuple[str, str], dict[int, _Row]], chosen: dict[tuple[str, int], _Choice]) -> None:
    out = console()
    for (model, data), by_shots in cases.items():
        heads = tuple(f"{shots}-shot" for shots in by_shots)
        shown = table(
            "l2",
            *heads,
            numbers=("l2", *heads),
        )
        for l2 in next(iter(by_shots.values())).result.l2:
            marks = [" *" if chosen[model, shots].l2 == l2 else "  " for shots in by_shots]
            cells = [_mean_and_std(row.result, l2) for row in by_shots.values()]
            shown.add_row(_power(l2), *(cell + mark for cell, mark in zip(cells, marks, strict=True)))
        out.print(printable(f"{model} on {data}: test accuracy for every l2 (* is in the table above)"), markup=False)
        out.print(shown)


def _mean_and_std(result: "ShotsResult", l2: float) -> str:
    values = result.accuracies(l2)
    spread = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.2f}{spread}"


def _power(l2: float) -> str:
    """2^10 for a power of two, else the number."""
    mantissa, exponent = l2.hex().split("p")
    return f"2^{int(exponent)}" if mantissa == "0x1.0000000000000" else f"{l2:g}"


def _for_programs(rows: list[_Row], chosen: dict[tuple[str, int], _Choice], seeds: int) -> dict[str, Any]:
    cases: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        case, result = row.case, row.result
        choice = chosen[case.model, result.shots]
        accuracies = result.accuracies(choice.l2)
        there = cases.setdefault((case.model, case.data), {**case.facts(), "shots": []})
        there["shots"].append(
            {
                "shots": result.shots,
                "learnt_from": result.learnt_from,
                "test_images": result.images,
                "l2": choice.l2,
                "l2_chosen_on_test_images_of": list(choice.chosen_on),
                "accuracy": statistics.fmean(accuracies),
                "std": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
                "accuracies": accuracies,
                "tried_l2": list(result.l2),
                "right": [list(row) for row in result.right],
            }
        )
    return {"seeds": list(range(seeds)), "results": list(cases.values())}
