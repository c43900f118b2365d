"""Parts that the pages of a run, an evaluation and a model have in common."""

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitrail.data import Part, Source
from vitrail.data.check.words import text
from vitrail.evaluate import Predictions
from vitrail.evaluate.calibration import Calibration
from vitrail.evaluate.subject import Subject
from vitrail.report.attended import Looked, affordable, looked_at
from vitrail.report.document import Section
from vitrail.report.mistakes import gallery, mistake_words, worst_mistakes
from vitrail.report.pictures import Pictures
from vitrail.report.reliability import reliability_parts, trust_words
from vitrail.report.style import DARK

if TYPE_CHECKING:
    from vitrail.report.figures import Figure
    from vitrail.report.inspection import FigureName

# Enough for a mean over heads that hardly changes.
_IMAGES = 64

_BESIDE = (
    "At the right of each what the network was given, with its attention rolled out over it: the brighter, the larger "
    "the share in the answer."
)


def calibration_section(found: Calibration) -> Section:
    """How far the word of a model can be trusted."""
    return Section("calibration", "Can its word be trusted?", trust_words(found), reliability_parts(found))


def mistakes_section(
    subject: Subject | None, source: Source, predictions: Predictions, pictures: Pictures, data: str
) -> Section | None:
    """The mistakes that cost most, with where the network looked; none where all is right."""
    if predictions.right[:, 0].all():
        return None
    worst = [int(index) for index in worst_mistakes(predictions)]
    looked = Looked() if subject is None else looked_at(subject, source, worst, pictures)
    words = [mistake_words(predictions), *([_BESIDE] if looked.pictures else []), text(looked.left_out)]
    shots = gallery(source, predictions, pictures, data, looked.pictures)
    return Section("mistakes", "Worst mistakes", " ".join(filter(None, words)), shots)


def notes_section(notes: Sequence[str], nothing: str, body: str = "") -> Section:
    """What was noted about the images before they were used."""
    items = "".join(f"<li>{text(note)}</li>" for note in notes)
    return Section("data", "The images", "" if notes else nothing, (f"<ul>{items}</ul>" if notes else "") + body)


def figure_sections(subject: Subject | None, source: Source | None) -> Iterator[Section]:
    """What the network has learnt, as the figures of the paper; those that show images need some."""
    if subject is None:
        return
    # Drawing is a heavy thing to import, and not every page draws.
    from vitrail.report.inspection import WITHOUT_IMAGES, figures_of

    images = None
    wanted: Sequence[FigureName] = WITHOUT_IMAGES
    if source is not None:
        most = min(_IMAGES, affordable(subject), len(source))
        spread = np.unique(np.linspace(0, len(source) - 1, most).round().astype(np.int64))
        images = Part(source, spread, source.split)
        wanted = (*WITHOUT_IMAGES, "distance", "lens")
    found = figures_of(subject.model, subject.preparation, images, wanted=wanted)
    if found:
        shown = "".join(map(figure_html, found))
        yield Section("learnt", "What it has learnt", "", f'<div class="figures">{shown}</div>')


def figure_html(figure: "Figure") -> str:
    """A figure with its two sentences; as a picture of its own, because only the page's own style may act in it."""
    from vitrail.report.figures import as_svg

    drawn = as_svg(figure, themed=True)
    opening, rest = drawn.split(">", 1)
    address = base64.b64encode(f"{opening}><style>{DARK}</style>{rest}".encode()).decode("ascii")
    return (
        f'<figure class="drawn"><img alt="{text(figure.title)}" src="data:image/svg+xml;base64,{address}">'
        f"<figcaption><b>{text(figure.title)}.</b> {text(figure.caption)}</figcaption></figure>"
    )
