"""The curves of several runs in the same charts, told apart by colour, by how a line is broken, and by its marks."""

from collections.abc import Callable, Sequence

from vitrail.reports.axes import Axis, loss_axis, share_axis
from vitrail.reports.chart import Chart, Line, Point
from vitrail.reports.curves import from_zero, percent_tick, planned_rates, points, share_title
from vitrail.reports.numbers import percent
from vitrail.reports.story import Story

SHAPES = (
    "m-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z",
    "m-3 -3h6v6h-6z",
    "m0 -4l4 7h-8z",
    "m0 -4.5l4.2 4.5l-4.2 4.5l-4.2 -4.5z",
    "m-3.2 -3.2l6.4 6.4m0 -6.4l-6.4 6.4",
    "m0 -4.4v8.8m-4.4 -4.4h8.8",
)
"""A circle, a square, a triangle, a diamond, a cross and a plus: as many as runs can be told apart."""


def overlaid(letters: Sequence[str], stories: Sequence[Story]) -> list[Chart]:
    """Charts of what any of the runs has."""
    epochs = {round(1 / story.epoch(1), 6) for story in stories}
    last = max(story.step for story in stories)

    def drawn(
        title: str, curves: list[list[Point]], axis: Callable[..., Axis], show: Callable[[float], str], **more
    ) -> Chart:
        lines = [
            Line(letter, f"r{place}", curve, SHAPES[place])
            for place, (letter, curve) in enumerate(zip(letters, curves, strict=True))
        ]
        values = [value for curve in curves for _, value in curve]
        return Chart(
            title=title,
            lines=lines,
            y=axis(values),
            show=show,
            last_step=last,
            steps_per_epoch=epochs.copy().pop() if len(epochs) == 1 else None,
            **more,
        )

    made = [
        drawn("Loss in training", [points(story.training, "loss") for story in stories], loss_axis, _loss),
        drawn(
            _share_title(stories),
            [points(story.evaluations, "accuracy") for story in stories],
            share_axis,
            percent,
            tick=percent_tick,
        ),
        drawn("Held-out loss", [points(story.evaluations, "loss") for story in stories], loss_axis, _loss),
        drawn("Learning rate", [planned_rates(story) for story in stories], from_zero, lambda value: f"{value:.3g}"),
    ]
    return [chart for chart in made if any(line.points for line in chart.lines)]


def _share_title(stories: Sequence[Story]) -> str:
    """What the share on held-out images is of, which differs between runs with and without labels."""
    return f"Held-out {', '.join(dict.fromkeys(share_title(story).lower() for story in stories))}"


def _loss(value: float) -> str:
    return f"{value:.4g}"
