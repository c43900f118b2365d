"""The page of a run and its pictures, written beside its log or to a place of its own."""

import warnings
from pathlib import Path

from vitrail.config.spelling import OPTIONS
from vitrail.data import Source
from vitrail.data.check.findings import Findings
from vitrail.data.outside import ensure_outside
from vitrail.errors import Notice, UsageError, VitrailError, marked, spelled
from vitrail.evaluation import Predictions, confusion
from vitrail.evaluation.subject import Subject, open_subject
from vitrail.reports.confusion import MOST_CLASSES, heat_map
from vitrail.reports.curves import charts
from vitrail.reports.document import Section
from vitrail.reports.page import page
from vitrail.reports.so_far import subject_so_far
from vitrail.reports.story import Story, gather
from vitrail.reports.style import picture
from vitrail.reports.summary import Summary
from vitrail.runtime.atomic import atomic_file
from vitrail.training.folder import RunFolder


def write_report(
    folder: RunFolder,
    source: Source | None = None,
    predictions: Predictions | None = None,
    *,
    summary: Summary | None = None,
    findings: Findings | None = None,
    first: Section | None = None,
    look_inside: bool = True,
    out: Path | None = None,
) -> Path:
    """Write `report.html` and `figures/*.svg`, each whole or not at all; returns the page.

    `source` and `predictions` are what the run was measured on and what its model said; without them they are opened
    again from the folder's records, and a page whose data has gone says so. With a summary the page is that of the
    whole that the run was part of, and is written to its folder. `findings` are what a check of the data said;
    `first` stands before everything about the run. To look inside is to show where the network looked and what it has
    learnt, which takes some seconds. With `out` nothing but that one file is written.
    """
    place = RunFolder(folder.path if summary is None else summary.path)
    figures = folder.path / "figures"
    if figures.is_symlink() and out is None:
        raise UsageError("is a link, and a report is never written elsewhere", where=str(figures))
    story = gather(folder, source, predictions, summary)
    if out is not None and story.source is not None:
        ensure_outside([story.source], out)
    drawn = charts(story)
    whole = page(story, drawn, _kept_model(story, folder) if look_inside else None, findings, first)
    if out is None:
        for name, svg in {**{name: chart.svg() for name, chart in drawn.items()}, **_matrix(story)}.items():
            write_page(figures / f"{name}.svg", picture(svg))
    write_page(out or place.report, whole)
    return out or place.report


def write_page(path: Path, content: str) -> None:
    """Write a file, whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(content, encoding="utf-8")


def _kept_model(story: Story, folder: RunFolder) -> Subject | str | None:
    """The model, before the end of a run as far as it has come, or the words why it cannot be looked into."""
    if story.done is not None and not folder.model.is_dir():
        return "The model (model/ in its folder) is not there any more."
    with warnings.catch_warnings():
        # What is worth noting was noted when it was trained.
        warnings.simplefilter("ignore", Notice)
        try:
            return open_subject(folder.model) if folder.model.is_dir() else subject_so_far(folder)
        except VitrailError as error:
            return spelled(marked(error), OPTIONS)


def _matrix(story: Story) -> dict[str, str]:
    predictions, labels, classes = story.predictions, story.labels, story.record.classes
    if predictions is None or labels is None or len(classes) > MOST_CLASSES:
        return {}
    return {"confusion": heat_map(confusion(predictions, labels, len(classes)), classes)}
