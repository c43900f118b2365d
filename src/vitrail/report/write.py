"""The page of a run and its pictures, written beside its log."""

from pathlib import Path

from vitrail.data import Source
from vitrail.errors import UsageError
from vitrail.evaluate import Predictions, confusion
from vitrail.report.confusion import MOST_CLASSES, heat_map
from vitrail.report.curves import charts
from vitrail.report.page import page
from vitrail.report.story import Story, gather
from vitrail.report.style import picture
from vitrail.report.summary import Summary
from vitrail.runtime.atomic import atomic_file
from vitrail.train.folder import RunFolder


def write_report(
    folder: RunFolder,
    source: Source | None = None,
    predictions: Predictions | None = None,
    *,
    summary: Summary | None = None,
) -> Path:
    """Write `report.html` and `figures/*.svg`, each whole or not at all; returns the page.

    `source` and `predictions` are what the run was measured on and what its model said; without them they are opened
    again from the folder's records, and a page whose data has gone says so. With a summary the page is that of the
    whole that the run was part of, and is written to its folder.
    """
    place = RunFolder(folder.path if summary is None else summary.path)
    figures = folder.path / "figures"
    if figures.is_symlink():
        raise UsageError("is a link, and a report is never written elsewhere", where=str(figures))
    story = gather(folder, source, predictions, summary)
    drawn = charts(story)
    for name, svg in {**{name: chart.svg() for name, chart in drawn.items()}, **_matrix(story)}.items():
        _write(figures / f"{name}.svg", picture(svg))
    _write(place.report, page(story, drawn))
    return place.report


def _matrix(story: Story) -> dict[str, str]:
    source, predictions, classes = story.source, story.predictions, story.record.classes
    if source is None or predictions is None or source.labels.is_multi or len(classes) > MOST_CLASSES:
        return {}
    return {"confusion": heat_map(confusion(predictions, source.labels.values, len(classes)), classes)}


def _write(path: Path, content: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(content, encoding="utf-8")
