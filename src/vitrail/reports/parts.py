"""Parts that the pages of a run, an evaluation and a model have in common."""

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vitrail.config.figures import WITHOUT_IMAGES, FigureName
from vitrail.config.spelling import OPTIONS
from vitrail.data import Part, Preparation, Source
from vitrail.data.check.words import text
from vitrail.data.sources.parts import evenly
from vitrail.errors import marked, spelled
from vitrail.evaluation import Predictions
from vitrail.evaluation.calibration import Calibration
from vitrail.evaluation.subject import Subject
from vitrail.models import Classifier
from vitrail.reports.attended import Looked, affordable, looked_at
from vitrail.reports.document import Section
from vitrail.reports.mistakes import gallery, mistake_words, worst_mistakes
from vitrail.reports.pictures import Pictures
from vitrail.reports.reliability import reliability_parts, trust_words
from vitrail.reports.style import DARK

if TYPE_CHECKING:
    from vitrail.reports.figures import Figure

# Enough for a mean over heads that hardly changes.
_IMAGES = 64
_WITH_IMAGES: tuple[FigureName, ...] = (*WITHOUT_IMAGES, "distance", "lens")

_BESIDE = (
    "At the right of each what the network was given under a map of its attention rollout, from black over red to "
    "yellow: the brighter, the larger the share in the answer. (<b>vitrail inspect</b> darkens the image instead.)"
)


def calibration_section(found: Calibration) -> Section:
    """How far the word of a model can be trusted."""
    return Section("calibration", "Can its word be trusted?", trust_words(found), reliability_parts(found))


def mistakes_section(
    subject: Subject | str | None, source: Source, predictions: Predictions, pictures: Pictures, data: str
) -> Section | None:
    """The mistakes that cost most, with where the network looked; none where all is right."""
    if predictions.right[:, 0].all():
        return None
    worst = [int(index) for index in worst_mistakes(predictions)]
    looked = Looked() if not isinstance(subject, Subject) else looked_at(subject, source, worst, pictures)
    words = [mistake_words(predictions), *([_BESIDE] if looked.pictures else []), text(looked.left_out)]
    shots = gallery(source, predictions, pictures, data, looked.pictures)
    return Section("mistakes", "Worst mistakes", " ".join(filter(None, words)), shots)


def notes_section(notes: Sequence[str], nothing: str, body: str = "") -> Section:
    """What was noted about the images before they were used."""
    items = "".join(f"<li>{text(note)}</li>" for note in notes)
    return Section("data", "The images", "" if notes else nothing, (f"<ul>{items}</ul>" if notes else "") + body)


def figure_sections(subject: Subject | str | None, source: Source | None, lead: str = "") -> Iterator[Section]:
    """What the network has learnt, as the figures of the paper; those that show images need some.

    In place of the subject there may be words why there is none.
    """
    if subject is None:
        return
    if isinstance(subject, str):
        yield Section("learnt", "What it has learnt", f"This part is left out. {text(subject)}", "")
        return
    images = None
    if source is not None:
        images = Part(source, evenly(len(source), min(_IMAGES, affordable(subject))), source.split)
    yield from learnt_sections(subject.model, subject.preparation, images, lead)


def learnt_sections(
    model: Classifier, preparation: Preparation | None, images: Source | None, lead: str = ""
) -> Iterator[Section]:
    """The same for a network and some images, or none; what cannot be shown of it is told below."""
    # Drawing is a heavy thing to import, and not every page draws.
    from vitrail.reports.figures import Figure
    from vitrail.reports.inspection import LeftOut, each_figure, grouped

    wanted = WITHOUT_IMAGES if images is None else _WITH_IMAGES
    found = list(each_figure(model, preparation, images, wanted))
    shown = "".join(figure_html(one) for one in found if isinstance(one, Figure))
    missing = "".join(
        f"<li>{text(one.name)}: {text(spelled(marked(one.error), OPTIONS))}</li>"
        for one in grouped(one for one in found if isinstance(one, LeftOut))
    )
    body = f'<div class="figures">{shown}</div>' if shown else ""
    body += f'<p class="more">Not shown:</p><ul class="more">{missing}</ul>' if missing else ""
    yield Section("learnt", "What it has learnt", lead, body)


def figure_html(figure: "Figure") -> str:
    """A figure with its two sentences; as a picture of its own, because only the page's own style may act in it."""
    from vitrail.reports.figures import as_svg

    drawn = as_svg(figure, themed=True)
    opening, rest = drawn.split(">", 1)
    address = base64.b64encode(f"{opening}><style>{DARK}</style>{rest}".encode()).decode("ascii")
    return (
        f'<figure class="drawn"><img alt="{text(figure.title)}" src="data:image/svg+xml;base64,{address}">'
        f"<figcaption><b>{text(figure.title)}.</b> {text(figure.caption)}</figcaption></figure>"
    )
