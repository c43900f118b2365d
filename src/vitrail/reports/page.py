"""A run as one HTML page that needs nothing but itself."""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from vitrail.data.check.findings import Findings
from vitrail.data.check.words import number, text
from vitrail.evaluation import Predictions, confusion
from vitrail.evaluation.calibration import calibrate
from vitrail.evaluation.subject import Subject
from vitrail.reports.again import facts, next_commands
from vitrail.reports.cells import NO_CELLS, cells_of
from vitrail.reports.chart import Chart
from vitrail.reports.classes import class_accuracy, class_parts
from vitrail.reports.curves import explanation
from vitrail.reports.document import Section, document
from vitrail.reports.events import sentences
from vitrail.reports.findings import findings_parts
from vitrail.reports.headline import header, hero, split_words, stop_words, title
from vitrail.reports.hidden import hidden_sections
from vitrail.reports.numbers import percent
from vitrail.reports.parts import calibration_section, figure_sections, mistakes_section, notes_section
from vitrail.reports.pictures import Pictures
from vitrail.reports.story import Story
from vitrail.reports.summary import tables

GENERATOR = "vitrail report"
_WIDE = ("loss", "accuracy", "few-shot")
_READ = "Every file was read before the first step, and there was nothing to note."


def page(
    story: Story,
    charts: dict[str, Chart],
    subject: Subject | str | None = None,
    findings: Findings | None = None,
    first: Section | None = None,
) -> str:
    """The whole document; `subject` is the model, or why it cannot be looked into.

    `findings` are what a check of the data said; `first` stands before everything about the run.
    """
    return document(
        title(story),
        header(story),
        hero(story),
        chain([] if first is None else [first], _sections(story, charts, subject, findings)),
        generator=GENERATOR,
    )


def _sections(
    story: Story, charts: dict[str, Chart], subject: Subject | str | None, findings: Findings | None
) -> Iterator[Section]:
    if story.summary is not None:
        first = f"What follows below is about seed {story.summary.seeds[0].seed}, whose model is kept."
        title = "Learning rates and seeds" if story.summary.rates else "Seeds"
        yield Section("whole", title, first, tables(story.summary))
    yield curves_section(story, charts)
    if story.record.config.masking is not None:
        yield from hidden_sections(story)
    elif story.metrics is not None or story.left_out:
        yield from _measured(story, subject)
    yield from figure_sections(subject, story.source, _so_far_words(story, subject))
    yield _data(story, findings)
    yield _happened(story)
    yield Section("again", "How to do it again", _exactness(story), facts(story))
    commands = "".join(
        f'<dt><pre class="command">{text(command)}</pre></dt><dd>{text(gives)}</dd>'
        for command, gives in next_commands(story)
    )
    yield Section("next", "What to type next", "", f'<dl class="next">{commands}</dl>')


def curves_section(story: Story, charts: dict[str, Chart]) -> Section:
    """How it went, with the two charts that matter above the others."""
    if not charts:
        return Section("curves", "How it went", "The log holds no step yet.", "")
    wide = "".join(chart.svg() for name, chart in charts.items() if name in _WIDE)
    small = "".join(chart.svg() for name, chart in charts.items() if name not in _WIDE)
    body = f'<div class="charts">{wide}</div><div class="charts">{small}</div>'
    return Section("curves", "How it went", explanation(story), body)


def _measured(story: Story, subject: Subject | str | None) -> Iterator[Section]:
    predictions, source = story.predictions, story.source
    if predictions is None:
        yield Section("classes", "Classes and mistakes", f"This part is left out. {text(story.left_out)}", "")
        return
    data, is_multi = story.record.config.data.data, source is not None and source.labels.is_multi
    pictures, mistakes = None, None
    if source is not None:
        pictures = Pictures(source, is_grey=story.record.config.model.channels == 1)
        # Before all others, so that they are not the ones a full page leaves out.
        mistakes = mistakes_section(subject, source, predictions, pictures, data)
    yield _classes(story, predictions, pictures, is_multi=is_multi)
    if mistakes is not None:
        yield mistakes
    if not is_multi and story.record.config.train.loss == "softmax":
        if np.isfinite(predictions.confidence[:, 0]).all():
            yield calibration_section(calibrate(predictions))
        else:
            lead = "The model gave answers that are no numbers: its weights are damaged, or its run diverged."
            yield Section("calibration", "Can its word be trusted?", lead, "")


def _classes(story: Story, predictions: Predictions, pictures: Pictures | None, *, is_multi: bool) -> Section:
    if is_multi:
        lead = "an image of this data may show several classes, so there is no one class that it is taken for."
        return Section("classes", "Class by class", f"No confusion matrix: {lead}", "")
    gone = f"The images that were measured cannot be shown. {text(story.left_out)}" if story.source is None else ""
    if story.labels is None:
        return Section("classes", "Classes and mistakes", f"{gone} Without their labels this part is left out.", "")
    table = confusion(predictions, story.labels, len(story.record.classes))
    cells = NO_CELLS
    if story.source is not None and pictures is not None:
        cells = cells_of(story.source, predictions, pictures, story.record.config.data.data)
    words = " ".join(filter(None, [_class_words(story, table), cells.hint, gone]))
    return Section("classes", "Class by class", words, class_parts(table, story.record.classes, cells))


def _class_words(story: Story, table: np.ndarray) -> str:
    mean = float(np.nanmean(class_accuracy(table)))
    return f"{number(int(table.sum()))} {split_words(story)} images. Mean of the classes: {percent(mean)}."


def _so_far_words(story: Story, subject: Subject | str | None) -> str:
    if story.done is not None or not isinstance(subject, Subject):
        return ""
    step = subject.model.provenance.get("step")
    at = f" at step {number(step)}" if isinstance(step, int) else ""
    return f"The run has not come to its end: these are its weights{at}."


def _data(story: Story, findings: Findings | None) -> Section:
    notes = dict.fromkeys([*story.record.notes, *(story.source.notes if story.source is not None else ())])
    counts = ", ".join(f"{text(name)} {number(count)}" for name, count in story.record.counts.items())
    found = notes_section(list(notes), _READ, "" if findings is None else findings_parts(findings))
    return Section(found.anchor, found.title, f"{counts}. {found.lead}".rstrip(), found.body)


def _happened(story: Story) -> Section:
    told = sentences(story.events)
    if stopped := stop_words(story):
        told.append(stopped)
    if story.has_diverged:
        told.append("The loss was not finite after three returns to a checkpoint: diverged.json names the last files.")
    if not told:
        return Section("events", "What happened", "Every update was made as planned.", "")
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in told)
    return Section("events", "What happened", "", f"<ul>{items}</ul>")


def _exactness(story: Story) -> str:
    train = story.record.config.train
    is_plain_cpu = story.record.device.startswith("cpu") and not train.compile
    how = "bit by bit" if train.deterministic or is_plain_cpu else "up to rounding"
    return f"The same command, data and versions give the same batches in the same order and the same model, {how}."
