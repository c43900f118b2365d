"""The part of a page that shows a teacher beside its students."""

from collections.abc import Iterator

from vitrail.config.spelling import as_typed
from vitrail.data.check.words import counted, number, text
from vitrail.errors import VitrailError
from vitrail.evaluation import interval
from vitrail.experiments.selftrain import SelftrainFolder
from vitrail.experiments.selftrain_result import Model, Result, Score, read_result
from vitrail.reports.document import Section, wide
from vitrail.reports.numbers import percent

_ANCHOR, _TITLE = "teaching", "Teacher and students"
# Points below which a difference would be rounded to none.
_SAME = 0.05


def teaching_section(folder: SelftrainFolder, begun: int, shown: int | None = None) -> Section:
    """Everyone on the same images, up to the round that has `begun`; `shown` is the student that the page is about."""
    try:
        result = read_result(folder.result)
    except VitrailError as error:
        return Section(_ANCHOR, _TITLE, f"This part is left out. {text(as_typed(error))}", "")
    columns = {name: cells for name, cells in _columns(_models(result, begun)).items() if any(cells)}
    heads = "".join(f'<th class="{_look(name)}">{name}' for name in columns)
    rows = "".join(
        f"<tr><td>{_name(place, shown)}</td>"
        + "".join(f'<td class="{_look(name)}">{cell}</td>' for name, cell in zip(columns, cells, strict=True))
        + "</tr>"
        for place, cells in enumerate(zip(*columns.values(), strict=True))
    )
    table = f'<table class="teaching"><thead><tr><th>model{heads}</tr></thead><tbody>{rows}</tbody></table>'
    told = f'<p class="more">{words}</p>' if (words := " ".join(_remarks(result))) else ""
    return Section(_ANCHOR, _TITLE, _verdict(result), wide("Table of teacher and students", table) + told)


def _models(result: Result, begun: int) -> list[Model | None]:
    """The teacher and the student of each round; none for one that has not come to its end."""
    return [result.teacher, *result.students, *[None] * (begun - len(result.students))]


def _columns(models: list[Model | None]) -> dict[str, list[str]]:
    """The cells below each heading, empty where there is nothing to say."""
    taught = [None if model is None else model.taught for model in models]
    return {
        "test": [_accuracy(model and model.test) for model in models],
        "held-out": [_accuracy(model and model.held_out) for model in models],
        "taught": [
            "not at its end" if model is None else f"{number(one.images)} of {number(one.offered)}" if one else ""
            for model, one in zip(models, taught, strict=True)
        ],
        "labels right": [_percent(one.right) if one and one.right else "" for one in taught],
    }


def _look(column: str) -> str:
    return "share" if column in ("test", "held-out") else "n"


def _name(place: int, shown: int | None) -> str:
    chip = ' <span class="chip s0">this page</span>' if place and place == shown else ""
    return (f"round {place}" if place else "teacher") + chip


def _accuracy(score: Score | None) -> str:
    """A share as a bar with its 95 % interval, and as a number."""
    if score is None:
        return ""
    right = round(score.accuracy * score.images)
    low, high = interval(right, score.images)
    told = f"{number(right)} of {counted(score.images, 'image')} right, 95 % interval {percent(low)} to {percent(high)}"
    return (
        f'<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{told}">'
        f'<title>{told}</title><rect class="back" width="100" height="8"/>'
        f'<rect class="hit" width="{100 * score.accuracy:.1f}" height="8"/>'
        f'<path class="span" d="M{100 * low:.1f} 4H{100 * high:.1f}"/></svg>{_percent(score)}'
    )


def _percent(score: Score) -> str:
    """In one piece, in however narrow a column."""
    return percent(score.accuracy).replace(" ", "\N{NO-BREAK SPACE}")


def _verdict(result: Result) -> str:
    """The last student against the first teacher, on the images that say it most fairly."""
    if not result.students:
        return "The first student has not come to its end; this is what its teacher knows."
    last = result.students[-1]
    for what, before, after in (
        ("test", result.teacher.test, last.test),
        ("held-out", result.teacher.held_out, last.held_out),
    ):
        if before is None or after is None:
            continue
        points = 100 * (after.accuracy - before.accuracy)
        apart = f"{abs(points):.1f} points {'more' if points > 0 else 'less'} than"
        if abs(points) < _SAME:
            apart = "about as many as"
        return (
            f"The student of round {len(result.students)} has {_percent(after)} of "
            f"{counted(after.images, f'{what} image')} right, {apart} the teacher ({text(result.teacher.name)})."
        )
    return "Nothing was held out and there is no test split, so nothing says who knows more."


def _remarks(result: Result) -> Iterator[str]:
    scores = (("test", result.teacher.test), ("held-out", result.teacher.held_out))
    counts = [counted(score.images, f"{what} image") for what, score in scores if score]
    if counts:
        yield f"Everyone is measured on the same {' and '.join(counts)}; the line in a bar is the 95 % interval."
    if result.teacher.held_out is not None:
        yield "A teacher may have learnt from what is held out here; students have not."
    if any(one.taught and one.taught.copies > one.taught.images for one in result.students):
        yield "Taught: each image counted once, however often it was learnt from to make classes even."
    if any(one.taught and one.taught.right for one in result.students):
        yield "Labels right: compared afterwards with the true labels, which were used for nothing."
