"""A run as one HTML page that needs nothing but itself."""

import base64
import hashlib
from collections.abc import Iterator

import numpy as np

import vitrail
from vitrail.data.check.page_style import LOGO
from vitrail.data.check.words import counted, number, text
from vitrail.evaluate import confusion
from vitrail.report.again import facts, next_commands
from vitrail.report.chart import Chart
from vitrail.report.classes import SORTING, class_accuracy, class_parts
from vitrail.report.curves import explanation
from vitrail.report.events import sentences
from vitrail.report.headline import header, hero, split_words
from vitrail.report.mistakes import gallery
from vitrail.report.numbers import percent
from vitrail.report.story import Story
from vitrail.report.style import STYLE
from vitrail.report.summary import tables

_WIDE = ("loss", "accuracy")


def page(story: Story, charts: dict[str, Chart]) -> str:
    """The whole document."""
    config = story.record.config
    # Only this style and this script may act, whatever a class or a file is called.
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(STYLE)}; script-src {_hash(SORTING)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="generator" content="vitrail report">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(config.recipe)} on {text(config.data.data)}</title><style>{STYLE}</style></head><body><main>"
        f"<header>{LOGO}{header(story)}</header>{hero(story)}{''.join(_sections(story, charts))}"
        f"<footer>Made by vitrail {text(vitrail.__version__)}. Everything on this page is in this one file.</footer>"
        f"</main><script>{SORTING}</script></body></html>\n"
    )


def _sections(story: Story, charts: dict[str, Chart]) -> Iterator[str]:
    if story.summary is not None:
        first = f"What follows below is about seed {story.summary.seeds[0].seed}, whose model is kept."
        title = "Learning rates and seeds" if story.summary.rates else "Seeds"
        yield _section("whole", title, first, tables(story.summary))
    yield _curves(story, charts)
    if story.metrics is not None:
        yield from _measured(story)
    yield _happened(story)
    yield _section("again", "How to do it again", _exactness(story), facts(story))
    commands = "".join(
        f'<dt><pre class="command">{text(command)}</pre></dt><dd>{text(gives)}</dd>'
        for command, gives in next_commands(story)
    )
    yield _section("next", "What to type next", "", f'<dl class="next">{commands}</dl>')


def _curves(story: Story, charts: dict[str, Chart]) -> str:
    if not charts:
        return _section("curves", "How it went", "The log holds no step yet.", "")
    wide = "".join(chart.svg() for name, chart in charts.items() if name in _WIDE)
    small = "".join(chart.svg() for name, chart in charts.items() if name not in _WIDE)
    body = f'<div class="charts">{wide}</div><div class="charts">{small}</div>'
    return _section("curves", "How it went", explanation(story), body)


def _measured(story: Story) -> Iterator[str]:
    source, predictions = story.source, story.predictions
    if source is None or predictions is None:
        why = f" {story.left_out}" if story.left_out else ""
        yield _section(
            "classes",
            "Classes and mistakes",
            f"The images that were measured cannot be shown, so this part is left out.{text(why)}",
            "",
        )
        return
    if source.labels.is_multi:
        lead = "an image of this data may show several classes, so there is no one class that it is taken for."
        yield _section("classes", "Class by class", f"No confusion matrix: {lead}", "")
    else:
        table = confusion(predictions, source.labels.values, len(story.record.classes))
        yield _section("classes", "Class by class", _class_words(story, table), class_parts(story, table))
    wrong = int((~predictions.right[:, 0]).sum())
    if wrong:
        yield _section("mistakes", "Worst mistakes", _mistake_words(story, wrong), gallery(story, source, predictions))


def _class_words(story: Story, table: np.ndarray) -> str:
    mean = float(np.nanmean(class_accuracy(table)))
    return f"{number(int(table.sum()))} {split_words(story)} images. Mean of the classes: {percent(mean)}."


def _mistake_words(story: Story, wrong: int) -> str:
    assert story.predictions is not None
    sure, right = story.predictions.confidence[:, 0].mean(), story.predictions.right[:, 0].mean()
    return (
        f"{counted(wrong, 'image')} of {number(len(story.predictions))} wrong; those with the highest loss first. "
        f"On average the model was {percent(float(sure))} sure and {percent(float(right))} right."
    )


def _happened(story: Story) -> str:
    told = sentences(story.events)
    if story.has_diverged:
        told.append("The loss was not finite after three returns to a checkpoint: diverged.json names the last files.")
    told += [f"About the images: {note}" for note in (story.source.notes if story.source is not None else ())]
    if not told:
        return _section("events", "What happened", "Every update was made as planned.", "")
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in told)
    return _section("events", "What happened", "", f"<ul>{items}</ul>")


def _exactness(story: Story) -> str:
    train = story.record.config.train
    is_plain_cpu = story.record.device.startswith("cpu") and not train.compile
    how = "bit by bit" if train.deterministic or is_plain_cpu else "up to rounding"
    return f"The same command, data and versions give the same batches in the same order and the same model, {how}."


def _section(anchor: str, title: str, lead: str, body: str) -> str:
    words = f'<p class="lead">{lead}</p>' if lead else ""
    return f'<section id="{anchor}"><h2>{title}</h2>{words}{body}</section>'


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"
