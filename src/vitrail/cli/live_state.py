"""What is known of a run from its events."""

import time
from collections import deque
from collections.abc import Iterable
from datetime import timedelta

from vitrail.cli.terminal import printable
from vitrail.training.events import (
    Done,
    Evaluated,
    Evaluating,
    Event,
    FewShotScored,
    LengthSet,
    Measuring,
    MicroBatchHalved,
    PieceDone,
    ProcessesChanged,
    Record,
    RolledBack,
    Saved,
    Skipped,
    Stepped,
    ThreadsChanged,
    Trained,
    from_record,
)

# What a curve of a few hundred dots can show; longer runs are averaged.
_MOST_POINTS = 1024
# Enough to be warned; the count goes on.
_MOST_SKIPS_TOLD = 10

Points = list[tuple[float, float]]
"""Steps, and what was measured at each."""


class Seen:
    """What is known of a run from the events so far."""

    def __init__(
        self,
        title: str,
        steps: int,
        epochs: float,
        *,
        start: int,
        seconds: float,
        held_out: int,
        test: int,
        word: str = "accuracy",
    ) -> None:
        self.title, self.steps, self.epochs, self.step = printable(title), steps, epochs, start
        self.held_out, self.test, self.word = held_out, test, word
        self.phase = "preparing"
        self.images = 0
        self.piece = ""
        """How far the step under way is, where a batch is taken in pieces."""
        self.latest: Trained | None = None
        self.losses: Points = []
        self.evaluations: Points = []
        self.bests: list[tuple[int, float]] = []
        self.saved: int | None = start or None
        self.skipped = 0
        self.outcome = ""
        self.news: deque[str] = deque()
        self._begin = time.monotonic() - seconds
        self._updates = 0
        self._first_update = 0.0
        self._first_piece: tuple[float, float] | None = None
        self._share = 0.0
        self._saves_unasked = start

    def hear(self, event: Event) -> None:
        """Take in an event; an update, of which there are hundreds in a second, costs next to nothing."""
        match event:
            case Stepped():
                self.step, self.piece = event.step, ""
                if not self._updates:
                    self._first_update, self.phase = time.monotonic(), "training"
                self._updates += 1
            case PieceDone():
                self.piece = f"{event.images:,} of {event.of:,} images of step {event.step:,}"
                self._share = event.images / event.of
                self._first_piece = self._first_piece or (time.monotonic(), self._share)
            case Evaluating() | Measuring():
                if self.phase != event.event:
                    self.phase, self.images = event.event, 0
                self.images += event.images
            case _:
                self._take(event)

    def remember(self, history: Iterable[Record]) -> None:
        """Draw the curves of what came before, up to the step where the run goes on."""
        for event in map(from_record, history):
            if isinstance(event, Trained | Evaluated) and event.step <= self.step:
                self._draw_in(event)

    def seconds(self) -> float:
        """Time spent on the run."""
        return time.monotonic() - self._begin

    def seconds_left(self) -> float | None:
        """From the mean speed since the first update, which had to wait for compilers and workers."""
        if self._updates < 2:
            return self._first_seconds_left()
        return (self.steps - self.step) * (time.monotonic() - self._first_update) / (self._updates - 1)

    def _first_seconds_left(self) -> float | None:
        """Before there are updates to count, from the pieces of the first one."""
        # A step that ran out of memory begins again, with smaller pieces.
        if self._updates or self._first_piece is None or self._share <= self._first_piece[1]:
            return None
        began, share = self._first_piece
        return (self.steps - self.step - self._share) * (time.monotonic() - began) / (self._share - share)

    def epoch(self) -> str:
        """Passes over the data, of all."""
        digits = 1 if self.epochs >= 1 else 2
        return "/".join(
            f"{value:,.{digits}f}".rstrip("0").removesuffix(".")
            for value in (self.epochs * self.step / max(self.steps, 1), self.epochs)
        )

    def measuring(self) -> str:
        """How far an evaluation is."""
        of = f"/{self.images_in_all():,}" if self.images_in_all() else ""
        what = "evaluating" if self.phase == "evaluating" else "measuring the kept model on"
        return f"{what} {self.images:,}{of} images"

    def images_in_all(self) -> int:
        """What the present evaluation will count; 0 where nobody said."""
        return self.held_out if self.phase == "evaluating" else self.test or self.held_out

    def finish(self) -> None:
        """Nothing more will come."""
        if self.phase != "done":
            self.phase = "stopped"

    def _take(self, event: Event) -> None:
        self.phase = "training" if self._updates else "preparing"
        match event:
            case Trained() | Evaluated():
                self._draw_in(event)
            case Saved():
                self._saved(event.step)
            case Skipped():
                self.skipped += 1
            case RolledBack():
                self._forget_after(event.step)
            case LengthSet():
                self.epochs *= event.steps / max(self.steps, 1)
                self.steps = event.steps
            case Done():
                self.phase, self.outcome = "done", _outcome(event, self.word)
        if (told := sentence(event)) and not (isinstance(event, Skipped) and self.skipped > _MOST_SKIPS_TOLD):
            self.news.append(told)
        if isinstance(event, Evaluated | RolledBack | MicroBatchHalved | LengthSet):
            self._saves_unasked = event.step

    def _draw_in(self, event: Trained | Evaluated) -> None:
        if isinstance(event, Trained):
            self.latest = event
            self.losses = _thinned([*self.losses, (event.step, event.loss)])
            return
        self.evaluations = [*self.evaluations, (event.step, event.accuracy)]
        if event.is_best:
            self.bests.append((event.step, event.accuracy))

    def _saved(self, step: int) -> None:
        self.saved = step or None
        # Those that follow an evaluation or an event are a matter of course; one by the clock is news.
        if step != self._saves_unasked:
            self.news.append(f"Saved at step {step:,}.")

    def _forget_after(self, step: int) -> None:
        self.step = step
        self.losses = [point for point in self.losses if point[0] <= step]
        self.evaluations = [point for point in self.evaluations if point[0] <= step]
        self.bests = [best for best in self.bests if best[0] <= step]


def sentence(event: Event) -> str | None:
    """What to tell of an event that a person did not expect; none for the others."""
    step = f"{event.step:,}"
    match event:
        case FewShotScored():
            return (
                f"After step {step} a {event.shots}-shot score of {100 * event.accuracy:.2f} % on "
                f"{event.data} ({event.images:,} images)."
            )
        case Skipped():
            return f"Step {step} was skipped: {event.reason}."
        case RolledBack():
            return (
                f"Back from step {event.before:,} to step {step}, because losses were not finite; "
                f"the learning rate is {event.rate_factor:g} times the planned one from here on."
            )
        case MicroBatchHalved():
            return (
                f"Memory ran out at step {step}: {event.micro_batch:,} images at a time instead of "
                f"{event.before:,} from here on, in batches as large as before."
            )
        case ProcessesChanged():
            return (
                f"From step {step} on in {event.processes} process{'es' if event.processes > 1 else ''} instead of "
                f"{event.before}, with {event.micro_batch:,} images at a time, in batches as large as before."
            )
        case ThreadsChanged():
            return f"From step {step} on in {event.threads} threads instead of {event.before}: not exactly."
        case LengthSet() if event.steps == event.step:
            return f"The time limit is reached after step {step}."
        case LengthSet():
            return f"The time limit leaves room for {event.steps:,} steps."
    return None


def percent(share: float, digits: int = 2) -> str:
    """A share for people."""
    return f"{100 * share:.{digits}f} %"


def clock(seconds: float) -> str:
    """A time for people: 0:00:07."""
    return str(timedelta(seconds=max(round(seconds), 0)))


def _outcome(event: Done, word: str) -> str:
    done, metrics = f"done in {clock(event.seconds)}", event.metrics
    if metrics is None:
        return done
    split = "test" if event.split == "test" else "held-out"
    if word != "accuracy":
        return f"{done}: {word} {percent(metrics['accuracy'])}, loss {metrics['loss']:.4g} on {split} images"
    return f"{done}: {percent(metrics['accuracy'])} of {metrics['images']:,} {split} images are right"


def _thinned(points: Points) -> Points:
    """Half as many, each the mean of two neighbours, once there are too many."""
    if len(points) < _MOST_POINTS:
        return points
    pairs = zip(points[::2], points[1::2], strict=True)
    return [((first[0] + second[0]) / 2, (first[1] + second[1]) / 2) for first, second in pairs]
