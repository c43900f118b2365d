"""Two runs that were measured on the same images: which of them is right where the other is not."""

import math
from dataclasses import dataclass

import numpy as np

from vitrail.data import Source
from vitrail.data.check.words import counted, number, text
from vitrail.reports.document import wide
from vitrail.reports.mistakes import shot
from vitrail.reports.numbers import percent
from vitrail.reports.pictures import Pictures
from vitrail.reports.story import Story

_SHOWN = 12
# What is seen less often than this is no accident, as most people count.
_CHANCE = 0.05
_CLASSES = 40


@dataclass(frozen=True)
class Disagreement:
    """How two runs differ, image by image."""

    both: int
    first: np.ndarray
    """Images that only the first has right; those where the second is most wrong come first."""
    second: np.ndarray
    """The other way round."""
    neither: int

    @property
    def chance(self) -> float:
        """How probable so uneven a split is between two that are equally good (sign test; McNemar 1947)."""
        few, all_ = min(len(self.first), len(self.second)), len(self.first) + len(self.second)
        halves = [_log_choose(all_, count) - all_ * math.log(2) for count in range(few + 1)]
        return min(1.0, 2 * sum(math.exp(one) for one in halves))


def why_not(first: Story, second: Story) -> str:
    """Why two runs cannot be compared image by image; empty where they can."""
    for story in (first, second):
        if story.record.config.masking is not None:
            return f"{story.path.name} learnt without labels, and names no classes."
        if story.predictions is None:
            return f"{story.path.name} has not been measured, or what it said is not there. {story.left_out}".strip()
    ours, theirs = _digest(first), _digest(second)
    if ours is None or theirs is None:
        return "which images they were measured on is not known any more."
    if ours != theirs and first.record.classes != second.record.classes:
        return "their classes do not have the same names."
    if ours != theirs:
        return "they were measured on different images."
    return ""


def disagreement(first: Story, second: Story) -> Disagreement:
    """Count what each has right; only for runs that `why_not` says nothing against."""
    one, other = first.predictions, second.predictions
    assert one is not None and other is not None
    right, also = one.right[:, 0], other.right[:, 0]

    def worst(chosen: np.ndarray, losses: np.ndarray) -> np.ndarray:
        places = np.flatnonzero(chosen)
        return places[np.argsort(-np.nan_to_num(losses[places], nan=np.inf), kind="stable")]

    return Disagreement(
        both=int((right & also).sum()),
        first=worst(right & ~also, other.losses),
        second=worst(also & ~right, one.losses),
        neither=int((~right & ~also).sum()),
    )


def disagreement_parts(letters: tuple[str, str], stories: tuple[Story, Story]) -> str:
    """The counts, what they mean, and the images that only one of the two has right."""
    found = disagreement(*stories)
    a, b = letters
    rows = "".join(
        f'<tr><td>{words}</td><td class="n">{number(count)}</td></tr>'
        for words, count in (
            ("both are right", found.both),
            (f"only {a} is right", len(found.first)),
            (f"only {b} is right", len(found.second)),
            ("neither is right", found.neither),
        )
    )
    heads = f'<thead><tr><th>{a} and {b}<th class="n">images</tr></thead>'
    table = f'<table class="short">{heads}<tbody>{rows}</tbody></table>'
    source = stories[0].source or stories[1].source
    if source is None:
        why = text(stories[0].left_out)
        return f'<p>{_verdict(letters, found)}</p>{table}<p class="more">The images cannot be shown. {why}</p>'
    galleries = ""
    for letter, chosen, wrong in ((a, found.first, stories[1]), (b, found.second, stories[0])):
        if len(chosen):
            other = b if letter == a else a
            galleries += f"<h3>Only {letter} is right</h3>{_gallery(other, wrong, chosen, source)}"
    return f"<p>{_verdict(letters, found)}</p>{table}{_by_class(letters, stories)}{galleries}"


def _by_class(letters: tuple[str, str], stories: tuple[Story, Story]) -> str:
    """The accuracy of each class by both, where they differ most first."""
    classes, labels = stories[0].record.classes, stories[0].labels
    if labels is None:
        return ""
    shares = []
    for story in stories:
        assert story.predictions is not None
        right = np.bincount(labels, story.predictions.right[:, 0], minlength=len(classes))
        shares.append(right / np.maximum(np.bincount(labels, minlength=len(classes)), 1))
    images = np.bincount(labels, minlength=len(classes))
    apart = np.abs(shares[0] - shares[1])
    order = sorted(np.flatnonzero(images).tolist(), key=lambda one: (-apart[one], one))
    rows = "".join(
        f'<tr><td>{text(classes[one])}</td><td class="n">{number(int(images[one]))}</td>'
        f'<td class="n">{percent(float(shares[0][one]))}</td><td class="n">{percent(float(shares[1][one]))}</td></tr>'
        for one in order[:_CLASSES]
    )
    heads = f'<th>class<th class="n">images<th class="n">{letters[0]} right<th class="n">{letters[1]} right'
    more = (
        ""
        if len(order) <= _CLASSES
        else f'<p class="more">and {counted(len(order) - _CLASSES, "more class", "more classes")}</p>'
    )
    return (
        "<h3>Class by class, where they differ most first</h3>"
        + wide("Classes", f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>")
        + more
    )


def _gallery(letter: str, wrong: Story, chosen: np.ndarray, source: Source) -> str:
    """The images that one of the two takes for something else."""
    assert wrong.predictions is not None
    config = wrong.record.config
    pictures = Pictures(source, is_grey=config.model.channels == 1)
    shots = "".join(
        shot(source, wrong.predictions, pictures, int(index), config.data.data, who=f"{letter} takes it for")
        for index in chosen[:_SHOWN]
    )
    hidden = len(chosen) - _SHOWN
    more = f'<p class="more">and {number(hidden)} more</p>' if hidden > 0 else ""
    return f'<div class="shots">{shots}</div>{more}'


def _verdict(letters: tuple[str, str], found: Disagreement) -> str:
    differing = len(found.first) + len(found.second)
    if not differing:
        return "<b>There is no difference.</b> Both are right about the same images."
    ahead, more = (letters[0], found.first) if len(found.first) >= len(found.second) else (letters[1], found.second)
    if len(found.first) == len(found.second):
        return (
            f"<b>There is no clear difference.</b> They differ on {counted(differing, 'image')}, and each is right "
            "about half of them."
        )
    chance = found.chance
    odds = "less than 0.1 %" if chance < 0.001 else percent(chance)
    verdict = f"{ahead} is better on these images." if chance <= _CHANCE else "There is no clear difference."
    return (
        f"<b>{verdict}</b> They differ on {counted(differing, 'image')}, of which {ahead} has {number(len(more))} "
        f"right. Of two models that are equally good, so uneven a split is seen in {odds} of cases (sign test)."
    )


def _digest(story: Story) -> str | None:
    return story.digest or (story.source.digest() if story.source is not None else None)


def _log_choose(whole: int, part: int) -> float:
    return math.lgamma(whole + 1) - math.lgamma(part + 1) - math.lgamma(whole - part + 1)
