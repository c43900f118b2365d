"""The folder of an evaluation: numbers, answers, pages and pictures, each written whole or not at all."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.data.outside import ensure_outside
from vitrail.data.sources.source import Source
from vitrail.errors import UsageError, setting
from vitrail.evaluation import Measured
from vitrail.reports.comparison import overview_page
from vitrail.reports.evaluation import evaluation_page, pictures
from vitrail.reports.style import picture
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text

FORMAT = "vitrail-evaluation/1"
_RESULT, _PAGE, _ANSWERS, _FIGURES = "result.json", "report.html", "predictions.npz", "figures"


@dataclass(frozen=True)
class EvaluationFolder:
    """Where `vitrail evaluate --out` writes; of several models each has a folder inside."""

    path: Path
    models: tuple[str, ...]

    @property
    def result(self) -> Path:
        """Every number, for programs."""
        return self.path / _RESULT

    @property
    def page(self) -> Path:
        """For people."""
        return self.path / _PAGE

    def home(self, number: int) -> Path:
        """Where the answers and pictures of a model go."""
        if len(self.models) == 1:
            return self.path
        name = re.sub(r"[^\w.-]+", "-", Path(self.models[number]).name)[:60].strip(".-")
        return self.path / f"{number + 1}-{name or 'model'}"

    def ensure_free(self, source: Source, command: str) -> None:
        """Refuse a place inside the data, and one that holds something else: a run has a report of its own."""
        ensure_outside([source], self.path)
        another = f"Choose another {setting('out')}"
        if self.path.is_symlink() and not self.path.exists():
            raise UsageError("is a link that leads nowhere", where=str(self.path), fix=another)
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise UsageError("is there already and is no folder", where=str(self.path), fix=another)
        if any(self.path.iterdir()) and not self._is_ours():
            raise UsageError(
                "is there already and holds something else than an evaluation",
                where=str(self.path),
                fix=another,
            )
        if self._is_ours() and self._command() not in (None, command):
            raise UsageError(
                f"holds another evaluation: {self._command()}",
                wanted="none, or that of the same command",
                where=str(self.path),
                fix=f"{another}, or remove it.",
            )
        for folder in {self.path, *(self.home(number) for number in range(len(self.models)))}:
            for place in (folder, folder / _FIGURES):
                if place.is_symlink() and place != self.path:
                    raise UsageError("is a link, and results are never written elsewhere", where=str(place))

    def write_model(self, number: int, measured: Measured, record: dict[str, Any], context: dict[str, Any]) -> None:
        """The answers, pictures and page of one model, as soon as there are any."""
        home, source = self.home(number), measured.source
        arrays = {**vars(measured.predictions), "classes": np.array(source.classes), "images": _places(source)}
        if measured.matched_by == "order":
            # Neither which guess is right, nor what an output is called.
            arrays = {name: array for name, array in arrays.items() if name not in ("right", "losses", "classes")}
        elif not source.labels.is_multi:
            arrays["labels"] = source.labels.values
        with atomic_file(home / _ANSWERS) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
        for name, svg in pictures(measured).items():
            _write(home / _FIGURES / f"{name}.svg", picture(svg))
        _write(home / _PAGE, evaluation_page(measured, record, context))

    def write_whole(self, whole: dict[str, Any]) -> None:
        """`result.json`, and of several models the page that compares them."""
        _write(self.result, json_text(whole, indent=2) + "\n")
        if len(self.models) > 1:
            context = {name: value for name, value in whole.items() if name not in ("models", "summary", "errors")}
            records = [(f"{self.home(one['place'] - 1).name}/{_PAGE}", one) for one in whole["models"]]
            _write(self.page, overview_page(records, whole["summary"] or {}, whole["errors"], context))

    def written(self) -> Sequence[tuple[Path, str]]:
        """What a person finds there."""
        pages = [(self.page, "the page: open it"), (self.result, "every number")]
        home = self.home(0) if len(self.models) == 1 else self.path / "*"
        return [*pages, (home / _ANSWERS, "what was said about each image"), (home / _FIGURES, "pictures")]

    def _command(self) -> str | None:
        """What made the evaluation that is there."""
        return json.loads(self.result.read_text(encoding="utf-8")).get("command")

    def _is_ours(self) -> bool:
        try:
            found = json.loads(self.result.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(found, dict) and found.get("format") == FORMAT


def _places(source: Source) -> np.ndarray:
    return np.array([source.where(index) for index in range(len(source))])


def _write(path: Path, content: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(content, encoding="utf-8")
