"""The view of a run on a terminal: how far, how fast, how good, and the curves so far."""

from collections.abc import Callable
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from vitrail.cli.live_state import Points, Seen, clock, percent
from vitrail.cli.terminal import megabytes
from vitrail.training.events import Trained

_WIDEST = 100
_PLOT_ROWS = 3
_LABEL = 8
_NARROWEST_FOR_PLOTS, _LOWEST_FOR_PLOTS = 40, 14
_SLOW_DATA = 0.1
# The bits of the eight dots of a braille letter: a left and a right column, from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


class View:
    """A picture of what is known, at most twelve lines high."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        seen, width = self._seen, min(options.max_width, _WIDEST)
        lines = [Text(seen.title, style="bold")]
        lines.append(_bar(seen.step, seen.steps, width, options.ascii_only))
        lines += _flow(self._position(), width)
        lines += _flow(numbers(seen.latest, seen.word) + self._faults() if seen.latest else [], width)
        lines += _flow(self._held_out(), width)
        has_room = width >= _NARROWEST_FOR_PLOTS and options.size.height >= _LOWEST_FOR_PLOTS
        if has_room and not options.ascii_only:
            lines += self._plots(width)
        lines.append(self._status(width, options.ascii_only))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis" if not options.ascii_only else "crop"
            yield line

    def _position(self) -> list[Text]:
        seen = self._seen
        fields = [_field("step", f"{seen.step:,}/{seen.steps:,}"), _field("epoch", seen.epoch())]
        fields.append(_field("time", clock(seen.seconds())))
        if seen.phase != "done" and (left := seen.seconds_left()) is not None:
            fields.append(_field("left", clock(left)))
        return fields

    def _faults(self) -> list[Text]:
        return [_field("skipped", f"{self._seen.skipped:,}", "bold red")] if self._seen.skipped else []

    def _held_out(self) -> list[Text]:
        seen, fields = self._seen, []
        if seen.evaluations:
            fields.append(_field("held-out", percent(seen.evaluations[-1][1])))
        if seen.bests:
            step, accuracy = seen.bests[-1]
            fields.append(_field("best", f"{percent(accuracy)} at step {step:,}", "bold green"))
        return fields

    def _plots(self, width: int) -> list[Text]:
        seen, half = self._seen, (width - 2) // 2
        left = _plot("training loss", seen.losses, seen.steps, half, "yellow", _loss)
        right = _plot(
            f"held-out {seen.word}", seen.evaluations, seen.steps, half, "green", lambda share: percent(share, 1)
        )
        return [Text.assemble(one, "  ", other) for one, other in zip(left, right, strict=True)]

    def _status(self, width: int, ascii_only: bool) -> Text:
        seen = self._seen
        match seen.phase:
            case "preparing":
                return Text(seen.piece or "preparing the first step", style="dim")
            case "training":
                saved = f"saved at step {seen.saved:,}; " if seen.saved else ""
                return Text(f"{saved}Ctrl-C stops and saves", style="dim")
            case "done":
                return Text(seen.outcome, style="bold green")
            case "stopped":
                return Text(f"stopped at step {seen.step:,}", style="bold yellow")
        words = f" {seen.measuring()}"
        return Text.assemble(_bar(seen.images, seen.images_in_all(), width - len(words), ascii_only), words)


def numbers(latest: Trained, word: str) -> list[Text]:
    """What the last line of the log says, a field each: loss, accuracy, rate, speed, data wait, memory."""
    wait = latest.data_wait
    fields = [
        _field("loss", _loss(latest.loss)),
        _field(word, percent(latest.accuracy, 1)),
        _field("rate", f"{latest.learning_rate:.3g}"),
        Text.assemble((f"{latest.images_per_second:,.0f}", "bold"), (" images/s", "dim")),
        _field("data wait", percent(wait, 0), "bold yellow" if wait > _SLOW_DATA else "bold"),
    ]
    if latest.memory_bytes is not None:
        fields.append(_field("memory", megabytes(latest.memory_bytes)))
    return fields


def braille(heights: dict[int, float], width: int, rows: int) -> list[str]:
    """A curve with a height in each column of dots, two by four in a letter, from the lowest value to the highest."""
    letters = [[0x2800] * width for _ in range(rows)]
    if heights:
        low, high = min(heights.values()), max(heights.values())
        before = None
        for column, value in heights.items():
            dot = round((4 * rows - 1) * ((high - value) / (high - low) if high > low else 0.5))
            # A steep piece is filled in, so that the line has no holes.
            for row in range(min(dot, before), max(dot, before) + 1) if before is not None else (dot,):
                letters[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
            before = dot
    return ["".join(map(chr, line)) for line in letters]


def _heights(points: Points, last: float, columns: int) -> dict[int, float]:
    """The mean of the points in each column, and straight lines between."""
    groups: dict[int, list[float]] = {}
    for step, value in points:
        groups.setdefault(min(int(step / max(last, 1) * columns), columns - 1), []).append(value)
    known = [(column, sum(values) / len(values)) for column, values in groups.items()]
    heights = dict(known[:1])
    for (begin, first), (end, second) in pairwise(known):
        for column in range(begin + 1, end + 1):
            heights[column] = first + (second - first) * (column - begin) / (end - begin)
    return heights


def _plot(name: str, points: Points, last: int, width: int, style: str, show: Callable[[float], str]) -> list[Text]:
    """A heading and a curve beside its highest and lowest value, each line `width` wide."""
    columns = width - _LABEL - 1
    heights = _heights(points, last, 2 * columns)
    labels = [""] * _PLOT_ROWS
    if heights:
        labels[0], labels[-1] = show(max(heights.values())), show(min(heights.values()))
    lines = braille(heights, columns, _PLOT_ROWS)
    return [
        Text(f"{'':{_LABEL}} {name}".ljust(width)[:width], style="dim"),
        *(
            Text.assemble((f"{label:>{_LABEL}} ", "dim"), (line, style))
            for label, line in zip(labels, lines, strict=True)
        ),
    ]


def _bar(done: int, of: int, width: int, ascii_only: bool) -> Text:
    full, rest = "#-" if ascii_only else "━─"
    filled = min(int(width * done / of), width) if of else 0
    return Text.assemble((full * filled, "cyan"), (rest * (width - filled), "bright_black"))


def _flow(fields: list[Text], width: int) -> list[Text]:
    """Fields side by side, on as many lines as they need; none is broken."""
    lines: list[Text] = []
    gap = "   " if width >= 80 else "  "
    for field in fields:
        if lines and lines[-1].cell_len + len(gap) + field.cell_len <= width:
            lines[-1].append(gap).append_text(field)
        else:
            lines.append(field.copy())
    return lines


def _field(label: str, value: str, style: str = "bold") -> Text:
    return Text.assemble((f"{label} ", "dim"), (value, style))


def _loss(value: float) -> str:
    if value and not 0.001 <= abs(value) < 1000:
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.2e}"
    return f"{value:.3f}"
