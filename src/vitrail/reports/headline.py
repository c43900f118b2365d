"""The number that matters, what it was measured on, and how the model was chosen."""

from pathlib import Path
from statistics import median

import torch

from vitrail.config import BitConfig, ModelConfig, PeerConfig, ResNetConfig, times
from vitrail.data.check.words import counted, number, text
from vitrail.evaluation import interval
from vitrail.models import build
from vitrail.recipes import recipe_title
from vitrail.reports.curves import points
from vitrail.reports.hidden import hidden_score
from vitrail.reports.numbers import duration, is_number, loss_words, percent
from vitrail.reports.story import Story
from vitrail.reports.summary import account, score

_TOP = 5


def header(story: Story) -> str:
    """Name, recipe, data and network, and whether the run came to its end."""
    config = story.record.config
    origin = f", from the weights of <b>{text(config.start)}</b>" if config.start else ""
    return f"<div><h1>{title(story)}</h1><p>{state(story)} &nbsp;{network_words(config.model)}{origin}</p></div>"


def title(story: Story) -> str:
    """The name of a run, its recipe and its data in short, as text; a name that repeats the recipe is left out."""
    config = story.record.config
    name = (story.path if story.summary is None else story.summary.path).resolve().name
    place = Path(config.data.data)
    data = place.name if place.is_absolute() and place.name else config.data.data
    called = "" if name.startswith(config.recipe) else f"{name}: "
    return text(f"{called}{recipe_title(config.recipe, config.model)} on {data}")


def state(story: Story) -> str:
    """Whether a run came to its end, in a word."""
    if story.done:
        return '<span class="verdict fine">finished</span>'
    if story.has_diverged:
        return f'<span class="verdict bad">diverged at step {number(story.step)}</span>'
    if story.is_stopped:
        return f'<span class="verdict open">stopped at step {number(story.step)} of {number(story.steps)}</span>'
    return f'<span class="verdict open">at step {number(story.step)} of {number(story.steps)}</span>'


def hero(story: Story) -> str:
    """The headline number with its count, the sentence behind it, and the other numbers of the run."""
    if story.record.config.masking is not None:
        how = f'<p class="how">{text(selection(story))}</p>'
        return f'<section class="hero">{hidden_score(story)}{how}{_cards(story)}</section>'
    what = "have a right first guess" if _is_multi(story) else "are right at the first guess"
    if whole := story.summary:
        return f'<section class="hero">{score(whole, what)}<p class="how">{account(whole)}</p>{_cards(story)}</section>'
    how = f'<p class="how">{text(selection(story))}</p>'
    return f'<section class="hero">{_score(story, what)}{how}{_cards(story)}</section>'


def _score(story: Story, what: str) -> str:
    metrics = story.metrics
    if metrics is None or not metrics.images:
        return ""
    right = round(metrics.accuracy * metrics.images)
    low, high = interval(right, metrics.images)
    whole, _ = percent(metrics.accuracy).split()
    span = f"95 % interval: {percent(low)} to {percent(high)}"
    return (
        f'<div class="score"><b>{whole}<small>%</small></b><p>of {number(metrics.images)} {split_words(story)} '
        f"images {what} ({number(right)})<br><span>{span}</span></p></div>"
    )


def selection(story: Story) -> str:
    """How the model was chosen, and what that means for the number."""
    config, counts = story.record.config, story.record.counts
    held = counts.get("held-out")
    images = counted(held or 0, f"held-out {'training ' if config.data.held_out else ''}image")
    if story.done is None:
        yet = " yet" * (not story.has_diverged)
        now = " It is being trained right now: this page shows how far it had come." if story.is_live else ""
        stopped = f" {stop_words(story)}" if story.is_stopped else ""
        return f"The run has not come to its end, so its model has not been measured{yet}.{now}{stopped}"
    if story.split is None:
        return (
            "Nothing was held out and no test split was measured, so nothing here says how good the model is on "
            "images that it has not seen."
        )
    if story.split == "test":
        once = "the test split was looked at once, at the end"
        if held is None:
            return f"Nothing was held out: the last model was kept, and {once}."
        if config.train.keep == "last":
            return f"The last model was kept, whatever {images} said; {once}."
        return f"Selected on {images} as the best of {counted(len(story.evaluations), 'evaluation')}; {once}."
    if config.train.keep == "last":
        return f"No test split was measured. The last model was kept and measured on {images}, which chose nothing."
    return f"No test split was measured: {_best_of(story, images)}."


def stop_words(story: Story) -> str:
    """That a run was stopped, and how to go on with it; empty for any other."""
    if not story.is_stopped:
        return ""
    return f"It was stopped at step {number(story.step)}, by a signal or by the machine. To go on: {story.resume}"


def _best_of(story: Story, images: str) -> str:
    """What was chosen among, because the best of several is luck in part."""
    if len(story.evaluations) < 2:
        return f"the number is about the same {images} that the model was to be chosen on, with nothing to choose from"
    last = story.evaluations[-1]["accuracy"]
    share = f" (the last one had {percent(last)})" if is_number(last) else ""
    return (
        f"the model is the best of {counted(len(story.evaluations), 'evaluation')} on the same {images}{share}, so its "
        "number is a little too good"
    )


def split_words(story: Story) -> str:
    """What the measured images are called."""
    return "test" if story.split == "test" else "held-out"


def network_words(config: ModelConfig) -> str:
    """A network in one line."""
    classes = counted(config.num_classes, "class", "classes") if config.num_classes else "no head"
    size = f"{times(config.image_size)} px, {classes}"
    if isinstance(config, PeerConfig):
        return f"{config.name} of {config.package}, {size}"
    if isinstance(config, BitConfig):
        return f"ResNet of {sum(config.blocks)} units, width {config.width}, {size}"
    behind = ""
    if config.backbone is not None:
        behind = " behind a ResNet" if isinstance(config.backbone, ResNetConfig) else " behind convolutions"
    return (
        f"Vision Transformer, {counted(config.depth, 'block')} of width {config.width}, {times(config.grid)} patches "
        f"of {times(config.pixels_per_patch)} px{behind}, {size}"
    )


def _cards(story: Story) -> str:
    best, metrics, record, whole = story.best, story.metrics, story.record, story.summary
    of_seed = "" if whole is None else f", seed {record.config.train.seed}"
    cards: list[tuple[str, str]] = []
    if best is not None and story.split != "held_out" and whole is None:
        where = f"epoch {story.epoch(best['step']):.1f}"
        images = counted(best["images"], "held-out image") if is_number(best.get("images")) else "held-out images"
        cards.append((percent(best["accuracy"]), f"best on {images}, {where}"))
    if metrics is not None:
        if len(record.classes) > _TOP and record.config.masking is None and metrics.top5 is not None:
            cards.append((percent(metrics.top5), f"{split_words(story)}, within five guesses{of_seed}"))
        cards.append((loss_words(metrics.loss, 3), f"{split_words(story)} loss{of_seed}"))
    seconds = whole.seconds if whole else story.done.get("seconds") if story.done else None
    if seconds is None:
        seconds = max((value for _, value in points(story.training, "seconds")), default=None)
    in_all = "" if whole is None else f", {counted(whole.runs, 'run')} in all"
    if seconds is not None:
        cards.append((duration(seconds), f"of training on {text(record.device)}{in_all}"))
    if speeds := [value for _, value in points(story.training, "images_per_second")]:
        cards.append((f"{median(speeds):,.0f}", "images per second"))
    cards.append((short_count(parameters(record.config.model)), "parameters"))
    told = "".join(f'<div class="card"><b>{value}</b><span>{words}</span></div>' for value, words in cards)
    return f'<div class="cards">{told}</div>'


def parameters(config: ModelConfig) -> int:
    """How many numbers a network learns."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(config).parameters())


def short_count(count: int) -> str:
    """A large number for people."""
    return f"{count / 1e6:.1f} M" if count >= 10**6 else number(count)


def _is_multi(story: Story) -> bool:
    return story.source is not None and story.source.labels.is_multi
