"""Several runs beside each other: results, what differs in their settings, their curves, and where they disagree."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain
from string import ascii_uppercase

import numpy as np

from vitrail.config import to_json
from vitrail.data.check.words import counted, number, text
from vitrail.errors import UsageError
from vitrail.evaluation import interval
from vitrail.evaluation.calibration import calibrate
from vitrail.recipes import recipe_title
from vitrail.reports.again import flat
from vitrail.reports.disagreement import disagreement_parts, why_not
from vitrail.reports.document import Section, document, wide
from vitrail.reports.headline import parameters, short_count, split_words, state
from vitrail.reports.numbers import duration, loss_words, percent
from vitrail.reports.overlaid import SHAPES, overlaid
from vitrail.reports.page import GENERATOR
from vitrail.reports.story import Story

MOST_RUNS = len(SHAPES)
# A value that is longer is cut: a list of layers, say.
_VALUE = 60


def versus_page(stories: Sequence[Story], *, title: str = "", lead: str = "", first: Section | None = None) -> str:
    """The whole document; `first` stands before everything about the runs."""
    if not 2 <= len(stories) <= MOST_RUNS:
        raise UsageError(f"there are {len(stories)} runs to compare", wanted=f"two to {MOST_RUNS}")
    letters = ascii_uppercase[: len(stories)]
    names = run_names(stories)
    shown = title or " and ".join([", ".join(names[:-1]), names[-1]])
    header = f"<div><h1>{text(shown)}</h1><p>{lead or f'{len(stories)} runs beside each other'}</p></div>"
    sections = chain([] if first is None else [first], _sections(letters, names, stories))
    return document(text(shown), header, "", sections, generator=GENERATOR)


def run_names(stories: Sequence[Story]) -> list[str]:
    """The names of their folders, or whole paths where two are called the same."""
    paths = [story.path if story.summary is None else story.summary.path for story in stories]
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _sections(letters: str, names: Sequence[str], stories: Sequence[Story]) -> Iterator[Section]:
    yield Section("results", "Results", _measured_on(letters, stories), _results(letters, names, stories))
    yield _settings(letters, stories)
    yield _curves(letters, stories)
    for place in range(1, len(stories)):
        pair = letters[0], letters[place]
        title = "Where they disagree" if len(stories) == 2 else f"Where {pair[0]} and {pair[1]} disagree"
        reason = why_not(stories[0], stories[place])
        if reason:
            lead, body = f"They cannot be compared image by image: {text(reason)}", ""
        else:
            lead, body = "", disagreement_parts(pair, (stories[0], stories[place]))
        yield Section(f"images-{pair[1].lower()}", title, lead, body)
    yield Section("again", "How to do it again", "", _commands(letters, stories))


def _results(letters: str, names: Sequence[str], stories: Sequence[Story]) -> str:
    """A column for each run, so that numbers of a kind stand beside each other."""
    heads = "".join(
        f'<th class="n" scope="col">{letter} &nbsp;{text(name)}' for letter, name in zip(letters, names, strict=True)
    )
    columns = [_values(story) for story in stories]
    rows = "".join(
        f'<tr><th scope="row">{name}{"".join(f"<td class=n>{column[name]}</td>" for column in columns)}</tr>'
        for name in columns[0]
        if any(column[name] for column in columns)
    )
    table = f'<table class="runs"><thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return wide("Table of results", table)


def _values(story: Story) -> dict[str, str]:
    """What is said about a run, empty where it has no such number."""
    config, metrics, whole, best = story.record.config, story.metrics, story.summary, story.best
    accuracy = hidden = span = images = loss = error = ""
    # Of a run without labels every share is of what was hidden, and no count of images.
    guessed = "" if config.masking is None else f" {config.masking.guessed}"
    if metrics is not None and metrics.images:
        if guessed:
            hidden = f"<b>{percent(metrics.accuracy, 2)}</b>{guessed}"
        else:
            low, high = interval(round(metrics.accuracy * metrics.images), metrics.images)
            accuracy, span = f"<b>{percent(metrics.accuracy, 2)}</b>", f"{percent(low, 2)} to {percent(high, 2)}"
        images, loss = f"{number(metrics.images)} {split_words(story)}", loss_words(metrics.loss, 4)
    if whole is not None and whole.mean is not None and whole.std is not None:
        accuracy = f"<b>{100 * whole.mean:.2f} ± {100 * whole.std:.2f} %</b> of {counted(len(whole.seeds), 'seed')}"
    said = story.predictions
    if said is not None and config.train.loss == "softmax" and np.isfinite(said.confidence[:, 0]).all():
        error = percent(calibrate(said).ece, 2)
    seconds = whole.seconds if whole else story.done.get("seconds") if story.done else None
    return {
        "run": state(story),
        "recipe": text(recipe_title(config.recipe, config.model)),
        "data": text(config.data.data),
        "accuracy": accuracy,
        "95 % interval": span,
        "of what was hidden": hidden,
        "images": images,
        "loss": loss,
        "calibration error": error,
        "best held-out": f"{percent(best['accuracy'], 2)}{guessed}" if best else "",
        "time": "" if seconds is None else duration(seconds),
        "parameters": short_count(parameters(config.model)),
    }


def _measured_on(letters: str, stories: Sequence[Story]) -> str:
    open_ = [letter for letter, story in zip(letters, stories, strict=True) if story.done is None]
    return f"Not at its end, so not measured: {', '.join(open_)}." if open_ else ""


def _settings(letters: str, stories: Sequence[Story]) -> Section:
    every = [dict(_facts(story)) for story in stories]
    names = list(dict.fromkeys(name for one in every for name in one))
    differing = [name for name in names if len({one.get(name, "") for one in every}) > 1]
    same = len(names) - len(differing)
    lead = f"{counted(same, 'other value is', 'other values are')} the same."
    if not differing:
        return Section("settings", "What differs", f"Nothing: all {len(names)} values are the same.", "")
    heads = "".join(f"<th>{letter}" for letter in letters)
    rows = "".join(
        f'<tr><td class="path">{text(name)}</td>'
        + "".join(f'<td class="path">{text(_cut(one.get(name, "")))}</td>' for one in every)
        + "</tr>"
        for name in differing
    )
    table = f'<table class="settings"><thead><tr><th>setting{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return Section("settings", "What differs", lead, wide("Table of settings", table))


def _facts(story: Story) -> Iterator[tuple[str, str]]:
    """Everything that a number may depend on, by name."""
    record = story.record
    yield from flat(to_json(record.config))
    yield "training images", record.digest[:16]
    yield from ((f"{name} images", number(count)) for name, count in record.counts.items())
    yield "device", record.device
    yield from ((f"version of {name}", str(version)) for name, version in record.versions.items() if version)


def _cut(value: str) -> str:
    return value if len(value) <= _VALUE else f"{value[: _VALUE - 1]}…"


def _curves(letters: str, stories: Sequence[Story]) -> Section:
    drawn = overlaid(letters, stories)
    if not drawn:
        return Section("curves", "How they went", "Their logs hold no step yet.", "")
    sizes = {story.record.config.train.batch_size for story in stories}
    lead = "A step is a batch, and batches are not equally large." if len(sizes) > 1 else ""
    return Section("curves", "How they went", lead, f'<div class="charts">{"".join(one.svg() for one in drawn)}</div>')


def _commands(letters: str, stories: Sequence[Story]) -> str:
    parts = []
    for letter, story in zip(letters, stories, strict=True):
        command = story.record.command if story.summary is None else story.summary.command
        seed = story.record.config.train.seed
        parts.append(f'<dt><pre class="command">{text(command)}</pre></dt><dd>{letter}, seed {seed}</dd>')
    paths = [story.path if story.summary is None else story.summary.path for story in stories]
    anew = shlex.join(["vitrail", "report", *map(str, paths)])
    parts.append(f'<dt><pre class="command">{text(anew)}</pre></dt><dd>this page</dd>')
    return f'<dl class="next">{"".join(parts)}</dl>'
