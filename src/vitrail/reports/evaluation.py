"""The page of an evaluation: how good a model is, class by class, and how far its word can be trusted."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vitrail.data.check.words import number, text
from vitrail.evaluation import Evaluation, Measured, MultiLabelEvaluation, confusion
from vitrail.evaluation.metrics import Share
from vitrail.reports.again import flat
from vitrail.reports.cells import cells_of
from vitrail.reports.class_bars import class_picture
from vitrail.reports.classes import class_parts
from vitrail.reports.confusion import MOST_CLASSES, heat_map
from vitrail.reports.document import Section, document, wide
from vitrail.reports.headline import network_words
from vitrail.reports.numbers import duration, percent
from vitrail.reports.parts import calibration_section, figure_sections, mistakes_section, notes_section
from vitrail.reports.pictures import Pictures
from vitrail.reports.reliability import reliability_diagram

GENERATOR = "vitrail evaluate"
# A matrix of more classes would not fit into memory, nor its table into a page.
_MOST_LISTED = 3000
_TOP = 5
_FACTS = ("model", "fingerprint", "preprocessing", "precision", "device")


def evaluation_page(measured: Measured, record: dict[str, Any], context: dict[str, Any]) -> str:
    """The page of one model; `record` is what `result.json` says of it, `context` what it says of all."""
    data = context["data"]
    title = f'{text(short_name(measured.subject.name))} <span class="on">on</span> {text(short_name(data["data"]))}'
    header = f"<div><h1>{title}</h1><p>{network_words(measured.subject.model.config)}</p></div>"
    return document(
        f"{text(short_name(measured.subject.name))} on {text(short_name(data['data']))}",
        header,
        _hero(measured, data["split"]),
        [*_sections(measured), _noted(data["notes"]), _again(record, context)],
        generator=GENERATOR,
    )


def pictures(measured: Measured) -> dict[str, str]:
    """The drawings of a page by name; those of images with several classes would say nothing."""
    found = measured.evaluation
    if not isinstance(found, Evaluation) or not is_told(measured):
        return {}
    drawn = {"reliability": reliability_diagram(found.calibration), "classes": class_picture(found.classes)}
    if len(found.classes) <= MOST_CLASSES:
        table = confusion(measured.predictions, measured.source.labels.values, len(found.classes))
        drawn["confusion"] = heat_map(table, measured.source.classes)
    return drawn


def is_told(measured: Measured) -> bool:
    """Whether it is known which output of the model is which class of the data, so that an answer can be right."""
    return measured.matched_by != "order"


def short_name(name: str) -> str:
    """The last part of a path; any other name as it is."""
    return Path(name).name if Path(name).is_absolute() else name


def _hero(measured: Measured, split: str) -> str:
    found = measured.evaluation
    cards = "".join(f'<div class="card"><b>{value}</b><span>{words}</span></div>' for value, words in _cards(measured))
    images = f"{number(found.images)} {text(split)} images"
    if not is_told(measured):
        score = (
            f'<div class="score"><p>How many of {images} are right cannot be told: which output of the model is which '
            "class of the data is not known. --classes says it.</p></div>"
        )
    elif isinstance(found, Evaluation):
        score = _score(found.top1, f"of {images} are right at the first guess")
    elif found.mean_average_precision is None:
        score = f'<div class="score"><p>None of the {images} shows a class.</p></div>'
    else:
        whole, _ = percent(found.mean_average_precision).split()
        score = (
            f'<div class="score"><b>{whole}<small>%</small></b><p>mean average precision on {images}'
            "<br><span>the mean over the classes that an image shows</span></p></div>"
        )
    return f'<section class="hero">{score}<div class="cards">{cards}</div></section>'


def _score(share: Share, words: str) -> str:
    whole, _ = percent(share.share).split()
    span = f"95 % interval: {percent(share.low)} to {percent(share.high)}"
    return (
        f'<div class="score"><b>{whole}<small>%</small></b><p>{words} ({number(share.right)})<br>'
        f"<span>{span}</span></p></div>"
    )


def _cards(measured: Measured) -> Iterator[tuple[str, str]]:
    found = measured.evaluation
    if isinstance(found, Evaluation):
        if is_told(measured):
            if len(found.classes) > _TOP:
                yield percent(found.top5.share), f"right within five guesses ({number(found.top5.right)})"
            yield f"{found.loss:.3f}", "mean cross-entropy"
            yield percent(found.calibration.ece, 2), "expected calibration error"
        if found.real is not None:
            real = found.real
            skipped = f"; {number(real.skipped)} without labels skipped"
            yield percent(real.top1.share), f"by ReaL labels, of {number(real.labelled)} images{skipped}"
    elif is_told(measured):
        yield from _several_cards(found)
    yield f"{found.images / measured.seconds:,.0f}", f"images per second, {duration(measured.seconds)} in all"


def _several_cards(found: MultiLabelEvaluation) -> Iterator[tuple[str, str]]:
    yield percent(found.exact.share), "have all their classes right and none too many"
    if found.hit is not None:
        yield percent(found.hit.share), f"have a right first guess, of {number(found.hit.images)} with a class"
    for value, words in ((found.micro_f1, "micro"), (found.macro_f1, "macro")):
        if value is not None:
            yield f"{value:.3f}", f"{words} F1 at a probability of one half"
    yield f"{found.loss:.3f}", "mean sigmoid cross-entropy"


def _sections(measured: Measured) -> Iterator[Section]:
    found, source, predictions = measured.evaluation, measured.source, measured.predictions
    if not is_told(measured):
        yield from figure_sections(measured.subject, source)
        return
    album = Pictures(source, is_grey=measured.subject.preparation.channels == 1)
    # Before all others, so that they are not the ones a full page leaves out.
    mistakes = mistakes_section(measured.subject, source, predictions, album, source.name)
    if isinstance(found, Evaluation):
        drawn = pictures(measured)
        mean = f"Mean of the classes: {percent(found.class_mean)}."
        yield Section("accuracy", "Accuracy of the classes", mean, drawn["classes"])
        lead, body = f"{number(found.images)} images.", ""
        if len(found.classes) <= _MOST_LISTED:
            table = confusion(predictions, source.labels.values, len(found.classes))
            cells = cells_of(source, predictions, album, source.name)
            lead, body = f"{lead} {cells.hint}".rstrip(), class_parts(table, source.classes, cells)
        else:
            lead = f"{number(len(found.classes))} classes are too many for a page: result.json has all."
        yield Section("classes", "Class by class", lead, body)
    else:
        yield Section("classes", "Class by class", "Each class is a question of its own.", _labels(found))
    if mistakes is not None:
        yield mistakes
    if isinstance(found, Evaluation):
        yield calibration_section(found.calibration)
    yield from figure_sections(measured.subject, source)


def _labels(found: MultiLabelEvaluation) -> str:
    """The classes that are shown or guessed, the worst first."""
    there = sorted(
        (one for one in found.classes if one.images or one.guessed),
        key=lambda one: (-1.0 if one.average_precision is None else one.average_precision, one.number),
    )
    rows = "".join(
        f"<tr><td>{text(one.name)}</td>{_cell(one.images, number(one.images))}"
        f"{_cell(one.guessed, number(one.guessed))}{_cell(one.right, number(one.right))}"
        f"{_cell(one.average_precision, percent(one.average_precision or 0.0))}"
        f"{_cell(one.f1, f'{one.f1 or 0.0:.3f}')}</tr>"
        for one in there[:_MOST_LISTED]
    )
    names = ("images", "guessed", "right", "average precision", "F1")
    heads = "<th><button>class</button>" + "".join(f'<th class="n"><button>{name}</button>' for name in names)
    table = f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return wide("Table of classes", table)


def _cell(value: float | None, shown: str) -> str:
    """A number that can be sorted by; one that there is not is below all others and is not shown."""
    return '<td class="n" data-v="-1"></td>' if value is None else f'<td class="n" data-v="{value:.6g}">{shown}</td>'


def _noted(notes: Sequence[str]) -> Section:
    return notes_section(notes, "Every file was read before the first answer, and there was nothing to note.")


def _again(record: dict[str, Any], context: dict[str, Any]) -> Section:
    return Section("again", "How to do it again", "", facts_table({name: record[name] for name in _FACTS}, context))


def facts_table(record: dict[str, Any], context: dict[str, Any]) -> str:
    """The command, and what its numbers depend on."""
    shown = {**record, **{name: value for name, value in context.items() if name != "command"}}
    rows = "".join(
        f'<tr><td class="path">{text(name)}</td><td class="path">{text(value)}</td></tr>'
        for name, value in flat(shown)
        # What is empty was not asked for, or is not there.
        if value not in ("[]", '""')
    )
    return f'<pre class="command">{text(context["command"])}</pre><table class="facts">{rows}</table>'
