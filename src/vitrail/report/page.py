"""A run as one HTML page that needs nothing but itself."""

from collections.abc import Iterator

import numpy as np

from vitrail.data.check.words import number, text
from vitrail.evaluate import confusion
from vitrail.report.again import facts, next_commands
from vitrail.report.chart import Chart
from vitrail.report.classes import class_accuracy, class_parts
from vitrail.report.curves import explanation
from vitrail.report.document import document, section
from vitrail.report.events import sentences
from vitrail.report.headline import header, hero, split_words
from vitrail.report.mistakes import gallery, mistake_words
from vitrail.report.numbers import percent
from vitrail.report.story import Story
from vitrail.report.summary import tables

_WIDE = ("loss", "accuracy")


def page(story: Story, charts: dict[str, Chart]) -> str:
    """The whole document."""
    config = story.record.config
    return document(
        f"{text(config.recipe)} on {text(config.data.data)}",
        header(story),
        f"{hero(story)}{''.join(_sections(story, charts))}",
        generator="vitrail report",
    )


def _sections(story: Story, charts: dict[str, Chart]) -> Iterator[str]:
    if story.summary is not None:
        first = f"What follows below is about seed {story.summary.seeds[0].seed}, whose model is kept."
        title = "Learning rates and seeds" if story.summary.rates else "Seeds"
        yield section("whole", title, first, tables(story.summary))
    yield _curves(story, charts)
    if story.metrics is not None:
        yield from _measured(story)
    yield _happened(story)
    yield section("again", "How to do it again", _exactness(story), facts(story))
    commands = "".join(
        f'<dt><pre class="command">{text(command)}</pre></dt><dd>{text(gives)}</dd>'
        for command, gives in next_commands(story)
    )
    yield section("next", "What to type next", "", f'<dl class="next">{commands}</dl>')


def _curves(story: Story, charts: dict[str, Chart]) -> str:
    if not charts:
        return section("curves", "How it went", "The log holds no step yet.", "")
    wide = "".join(chart.svg() for name, chart in charts.items() if name in _WIDE)
    small = "".join(chart.svg() for name, chart in charts.items() if name not in _WIDE)
    body = f'<div class="charts">{wide}</div><div class="charts">{small}</div>'
    return section("curves", "How it went", explanation(story), body)


def _measured(story: Story) -> Iterator[str]:
    source, predictions = story.source, story.predictions
    if source is None or predictions is None:
        why = f" {story.left_out}" if story.left_out else ""
        yield section(
            "classes",
            "Classes and mistakes",
            f"The images that were measured cannot be shown, so this part is left out.{text(why)}",
            "",
        )
        return
    if source.labels.is_multi:
        lead = "an image of this data may show several classes, so there is no one class that it is taken for."
        yield section("classes", "Class by class", f"No confusion matrix: {lead}", "")
    else:
        table = confusion(predictions, source.labels.values, len(story.record.classes))
        yield section("classes", "Class by class", _class_words(story, table), class_parts(table, story.record.classes))
    if not predictions.right[:, 0].all():
        config = story.record.config
        pictures = gallery(source, predictions, is_grey=config.model.channels == 1, data=config.data.data)
        yield section("mistakes", "Worst mistakes", mistake_words(predictions), pictures)


def _class_words(story: Story, table: np.ndarray) -> str:
    mean = float(np.nanmean(class_accuracy(table)))
    return f"{number(int(table.sum()))} {split_words(story)} images. Mean of the classes: {percent(mean)}."


def _happened(story: Story) -> str:
    told = sentences(story.events)
    if story.has_diverged:
        told.append("The loss was not finite after three returns to a checkpoint: diverged.json names the last files.")
    told += [f"About the images: {note}" for note in (story.source.notes if story.source is not None else ())]
    if not told:
        return section("events", "What happened", "Every update was made as planned.", "")
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in told)
    return section("events", "What happened", "", f"<ul>{items}</ul>")


def _exactness(story: Story) -> str:
    train = story.record.config.train
    is_plain_cpu = story.record.device.startswith("cpu") and not train.compile
    how = "bit by bit" if train.deterministic or is_plain_cpu else "up to rounding"
    return f"The same command, data and versions give the same batches in the same order and the same model, {how}."
