"""What is known of a run from its records."""

import time
from collections import deque
from collections.abc import Iterable
from datetime import timedelta

from vitrail.cli.terminal import printable
from vitrail.training.log import Record

# What a curve of a few hundred dots can show; longer runs are averaged.
_MOST_POINTS = 1024
# Enough to be warned; the count goes on.
_MOST_SKIPS_TOLD = 10

Points = list[tuple[float, float]]
"""Steps, and what was measured at each."""


class Seen:
    """What is known of a run from the records so far."""

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
        self.latest: Record | None = None
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

    def hear(self, record: Record) -> None:
        """Take in a record; an update, of which there are hundreds in a second, costs next to nothing."""
        event = record["event"]
        if event == "step":
            self.step, self.piece = record["step"], ""
            if not self._updates:
                self._first_update, self.phase = time.monotonic(), "training"
            self._updates += 1
        elif event == "piece":
            self.piece = f"{record['images']:,} of {record['of']:,} images of step {record['step']:,}"
            self._share = record["images"] / record["of"]
            self._first_piece = self._first_piece or (time.monotonic(), self._share)
        elif event in ("evaluating", "testing"):
            if self.phase != event:
                self.phase, self.images = event, 0
            self.images += record["images"]
        else:
            self._take(event, record)

    def remember(self, history: Iterable[Record]) -> None:
        """Draw the curves of what came before, up to the step where the run goes on."""
        for record in history:
            if record["event"] in ("train", "evaluated") and record["step"] <= self.step:
                self._draw_in(record)

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

    def _take(self, event: str, record: Record) -> None:
        self.phase = "training" if self._updates else "preparing"
        match event:
            case "train" | "evaluated":
                self._draw_in(record)
            case "saved":
                self._saved(record["step"])
            case "skipped":
                self.skipped += 1
            case "rollback":
                self._forget_after(record["step"])
            case "length":
                self.epochs *= record["steps"] / max(self.steps, 1)
                self.steps = record["steps"]
            case "done":
                self.phase, self.outcome = "done", _outcome(record, self.word)
        if (told := sentence(record)) and (event != "skipped" or self.skipped <= _MOST_SKIPS_TOLD):
            self.news.append(told)
        if event in ("evaluated", "rollback", "micro_batch", "length"):
            self._saves_unasked = record["step"]

    def _draw_in(self, record: Record) -> None:
        if record["event"] == "train":
            self.latest = record
            self.losses = _thinned([*self.losses, (record["step"], record["loss"])])
            return
        self.evaluations = [*self.evaluations, (record["step"], record["accuracy"])]
        if record["is_best"]:
            self.bests.append((record["step"], record["accuracy"]))

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


def sentence(record: Record) -> str | None:
    """What to tell of a record that a person did not expect; none for the others."""
    step = f"{record.get('step', 0):,}"
    match record["event"]:
        case "few_shot":
            return (
                f"After step {step} a {record['shots']}-shot score of {100 * record['accuracy']:.2f} % on "
                f"{record['data']} ({record['images']:,} images)."
            )
        case "skipped":
            return f"Step {step} was skipped: {record['reason']}."
        case "rollback":
            return (
                f"Back from step {record['from']:,} to step {step}, because losses were not finite; "
                f"the learning rate is {record['rate_factor']:g} times the planned one from here on."
            )
        case "micro_batch":
            return (
                f"Memory ran out at step {step}: {record['micro_batch']:,} images at a time instead of "
                f"{record['from']:,} from here on, in batches as large as before."
            )
        case "processes":
            ranks, before = record["processes"], record["from"]
            return (
                f"From step {step} on in {ranks} process{'es' if ranks > 1 else ''} instead of {before}, with "
                f"{record['micro_batch']:,} images at a time, in batches as large as before."
            )
        case "threads":
            return f"From step {step} on in {record['threads']} threads instead of {record['from']}: not exactly."
        case "length" if record["steps"] == record["step"]:
            return f"The time limit is reached after step {step}."
        case "length":
            return f"The time limit leaves room for {record['steps']:,} steps."
    return None


def percent(share: float, digits: int = 2) -> str:
    """A share for people."""
    return f"{100 * share:.{digits}f} %"


def clock(seconds: float) -> str:
    """A time for people: 0:00:07."""
    return str(timedelta(seconds=max(round(seconds), 0)))


def _outcome(record: Record, word: str) -> str:
    done, metrics = f"done in {clock(record['seconds'])}", record["metrics"]
    if metrics is None:
        return done
    split = "test" if record["split"] == "test" else "held-out"
    if word != "accuracy":
        return f"{done}: {word} {percent(metrics['accuracy'])}, loss {metrics['loss']:.4g} on {split} images"
    return f"{done}: {percent(metrics['accuracy'])} of {metrics['images']:,} {split} images are right"


def _thinned(points: Points) -> Points:
    """Half as many, each the mean of two neighbours, once there are too many."""
    if len(points) < _MOST_POINTS:
        return points
    pairs = zip(points[::2], points[1::2], strict=True)
    return [((first[0] + second[0]) / 2, (first[1] + second[1]) / 2) for first, second in pairs]
