"""Answers as people and programs read them, shown as they come."""

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vitrail.cli.terminal import READABLE_WIDTH, folded, print_json, printable
from vitrail.config.spelling import as_typed

if TYPE_CHECKING:
    from vitrail.prediction.predictor import Answer, Predictor

_BAR, _BLOCK = 24, "█"
_LONGEST_NAME = 48


class Shown(Protocol):
    """Where answers go."""

    def __init__(self, predictor: "Predictor", names: Sequence[str], top: int) -> None: ...

    def add(self, answer: "Answer") -> None:
        """One more."""
        ...

    def end(self) -> None:
        """All that came have come."""
        ...


class Lines:
    """For people: a list of classes for one image, else a line for each."""

    def __init__(self, predictor: "Predictor", names: Sequence[str], top: int) -> None:
        self._predictor, self._top, self._is_one = predictor, top, len(names) == 1
        self._block = _BLOCK if _can_print(_BLOCK) else "#"
        self._width = min(_LONGEST_NAME, max((_cells(printable(name)) for name in names), default=0))

    def add(self, answer: "Answer") -> None:
        if answer.error is not None:
            return
        found = _record(self._predictor, answer, self._top)["predictions"]
        if self._is_one:
            print(printable(answer.name))
            width = max(_cells(printable(one["label"])) for one in found)
            # Two spaces, the class, two, seven letters for the probability, and two more.
            longest = max(0, min(_BAR, READABLE_WIDTH - width - 13))
            for one in found:
                bar = self._block * round(one["probability"] * longest)
                print(f"  {_padded(printable(one['label']), width)}  {one['probability']:7.2%}  {bar}".rstrip())
            return
        first, *others = found
        rest = ", ".join(f"{printable(one['label'])} {one['probability']:.1%}" for one in others)
        line = f"{_padded(_short(printable(answer.name)), self._width)}  {first['probability']:6.1%}"
        line += f"  {printable(first['label'])}"
        if rest and _cells(f"{line}   ({rest})") <= READABLE_WIDTH:
            line += f"   ({rest})"
        elif rest:
            # What came second and third is told below: the columns of the first guesses stay in sight.
            line += f"\n{folded(f'    ({rest})')}"
        print(line, flush=True)

    def end(self) -> None:
        """Every line is there already."""


class Csv:
    """For spreadsheets: a row per image, also for one that could not be read."""

    def __init__(self, predictor: "Predictor", names: Sequence[str], top: int) -> None:
        self._predictor = predictor
        self._top = min(top, predictor.described.config.num_classes)
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        columns = [f"{name}_{rank}" for rank in range(1, self._top + 1) for name in ("label", "probability")]
        self._writer.writerow(["image", *columns, "error"])

    def add(self, answer: "Answer") -> None:
        if answer.error is not None:
            self._writer.writerow([answer.name, *[""] * (2 * self._top), as_typed(answer.error)])
            return
        found = _record(self._predictor, answer, self._top)["predictions"]
        cells = [cell for one in found for cell in (one["label"], f"{one['probability']:.6g}")]
        self._writer.writerow([answer.name, *cells, ""])

    def end(self) -> None:
        sys.stdout.flush()


class Json:
    """For programs: one document with what was asked of what, and a record per image."""

    def __init__(self, predictor: "Predictor", names: Sequence[str], top: int) -> None:
        self._predictor, self._top = predictor, top
        self._records: list[dict[str, Any]] = []

    def add(self, answer: "Answer") -> None:
        if answer.error is not None:
            self._records.append({"image": answer.name, "error": as_typed(answer.error)})
        else:
            self._records.append(_record(self._predictor, answer, self._top))

    def end(self) -> None:
        whole = {
            "format": "vitrail-predictions/1",
            "model": self._predictor.source,
            "backend": self._predictor.backend.name,
            "images": self._records,
        }
        print_json(whole)


def _record(predictor: "Predictor", answer: "Answer", top: int) -> dict[str, Any]:
    from vitrail.prediction.answers import record

    assert answer.logits is not None
    return record(answer.name, answer.logits, predictor.described, top)


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _can_print(text: str) -> bool:
    try:
        return bool(text.encode(sys.stdout.encoding or "utf-8"))
    except UnicodeEncodeError:
        return False


def _padded(text: str, width: int) -> str:
    return text + " " * max(0, width - _cells(text))


def _short(name: str) -> str:
    """The end of a long path, which tells it from its neighbours."""
    return name if _cells(name) <= _LONGEST_NAME else f"...{name[-(_LONGEST_NAME - 3) :]}"
