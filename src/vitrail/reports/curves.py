"""How a run went over its steps: loss, accuracy, learning rate, speed and waiting for data."""

from collections.abc import Callable

from vitrail.reports.axes import Axis, linear_axis, loss_axis, share_axis
from vitrail.reports.chart import Chart, Line, Mark, Point
from vitrail.reports.events import marked
from vitrail.reports.numbers import is_number, percent
from vitrail.reports.story import Story
from vitrail.training.events import Record
from vitrail.training.schedule import learning_rate, resolved, total_steps

# As many as a small chart has pixels for.
_RATES = 200
_SMALL = {"width": 312.0, "height": 220.0}


def charts(story: Story) -> dict[str, Chart]:
    """Each chart that has something to show, by the name of its picture."""
    learnt, seen = story.training, story.evaluations
    losses = [Line("training", "s0", points(learnt, "loss")), Line("held-out", "s1", points(seen, "loss"))]
    shares = [Line("training", "s0", points(learnt, "accuracy")), Line("held-out", "s1", points(seen, "accuracy"))]
    masking, few_shot = story.record.config.masking, []
    if story.few_shots:
        few_shot.append(Line(f"{story.few_shots[-1]['shots']}-shot", "s2", points(story.few_shots, "accuracy")))
    if masking is None:
        shares += few_shot
    rates = [Line("learning rate", "s2", planned_rates(story))]
    speeds = [Line("images/s", "s0", points(learnt, "images_per_second"))]
    waits = [Line("waiting", "s1", points(learnt, "data_wait"))]
    # A time limit sets the length again and again, and that disturbs nothing.
    disturbances = [event for event in story.events if event["event"] != "length"]
    best = story.best
    star = None
    if best is not None and is_number(best.get("accuracy")):
        star = (best["step"], best["accuracy"], f"best {percent(best['accuracy'])}")

    def drawn(title: str, lines: list[Line], axis: Callable[..., Axis], show: Callable[[float], str], **more) -> Chart:
        return Chart(
            title=title,
            lines=lines,
            y=axis([value for line in lines for _, value in line.points]),
            show=show,
            last_step=story.step,
            steps_per_epoch=1 / story.epoch(1),
            marks=[Mark(step, told) for step, told in marked(disturbances)],
            **more,
        )

    made = {
        "loss": drawn("Loss", losses, loss_axis, lambda value: f"{value:.4g}"),
        "accuracy": drawn(share_title(story), shares, share_axis, percent, tick=percent_tick, star=star),
        "learning-rate": drawn("Learning rate", rates, from_zero, lambda value: f"{value:.3g}", **_SMALL),
        "speed": drawn("Images per second", speeds, from_zero, lambda value: f"{value:,.0f}", **_SMALL),
        "data-wait": drawn(
            "Share of time waiting for data", waits, _share_from_zero, percent, tick=percent_tick, **_SMALL
        ),
    }
    if masking is not None:
        # Classes that it has not learnt are another matter than patches, and what the whole is for.
        title = f"Few-shot accuracy on {story.record.config.data.few_shot}"
        made["few-shot"] = drawn(title, few_shot, share_axis, percent, tick=percent_tick)
    return {name: chart for name, chart in made.items() if any(line.points for line in chart.lines)}


def share_title(story: Story) -> str:
    """What the share beside the loss is called."""
    masking = story.record.config.masking
    return "Accuracy" if masking is None else masking.guessed.capitalize()


def points(records: list[Record], name: str) -> list[Point]:
    """A value over the steps; records without it, or with one that is not finite, are left out."""
    return [(record["step"], record[name]) for record in records if is_number(record.get(name))]


def planned_rates(story: Story) -> list[Point]:
    """The learning rate from the first update on: it is known for every step, not only for those in the log."""
    config, last = story.record.config, story.step
    planned = total_steps(config.train, story.record.counts["train"])
    lengths = [event for event in story.events if event["event"] == "length" and is_number(event.get("steps"))]
    factors = [event for event in story.events if event["event"] == "rollback" and is_number(event.get("rate_factor"))]

    def rate(step: int) -> float:
        # What was set last holds from its step on: a later return may lead to before an earlier one.
        length = next((event["steps"] for event in reversed(lengths) if event["step"] <= step), planned)
        factor = next((event["rate_factor"] for event in reversed(factors) if event["step"] <= step), 1.0)
        return learning_rate(resolved(config.schedule, config.optim, length), step) * factor

    steps = sorted({round(place * last / _RATES) for place in range(_RATES + 1)}) if last else []
    return [(step, rate(step)) for step in steps]


def explanation(story: Story) -> str:
    """Why the two losses cannot be compared as they are, where that is so."""
    train, augment, masking = story.record.config.train, story.record.config.augment, story.record.config.masking
    if not story.evaluations or not story.training:
        return ""
    causes = [
        *(["smoothed labels"] if train.label_smoothing else []),
        *(["mixed images"] if augment.is_mixing else []),
        *(["augmentation"] if augment.crop != "whole" or augment.flip or augment.randaugment_layers else []),
    ]
    averaged = "the averaged weights" if train.average else "the weights of that step"
    harder = f"with {_listed(causes)}, " if causes else ""
    hidden = "" if masking is None else ", the same patches hidden every time"
    return f"Training: {harder}mean since the line before. Held-out: plain images{hidden}, {averaged}."


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def from_zero(values: list[float]) -> Axis:
    """An axis that begins at nothing."""
    return linear_axis(values, low=0.0, wanted=4)


def _share_from_zero(values: list[float]) -> Axis:
    return share_axis([*values, 0.04], low=0.0)


def percent_tick(value: float) -> str:
    """A share on an axis."""
    return f"{100 * value:.4g}%"
