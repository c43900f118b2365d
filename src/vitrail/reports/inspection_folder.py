"""The folder of an inspection: pictures, their captions and every number, each written whole or not at all."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.config.figures import FIGURES
from vitrail.errors import UsageError, setting
from vitrail.reports.figures import Figure, as_png, as_svg, png_caption
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text

FORMAT = "vitrail-inspection/1"
_ENDINGS = ("png", "svg")
_RECORD, _NUMBERS, _CAPTIONS = "inspection.json", "numbers.npz", "captions.md"


@dataclass(frozen=True)
class InspectionFolder:
    """Where `vitrail inspect` writes."""

    path: Path

    @property
    def record(self) -> Path:
        """What was seen, for programs."""
        return self.path / _RECORD

    @property
    def numbers(self) -> Path:
        """What was drawn, as arrays."""
        return self.path / _NUMBERS

    @property
    def captions(self) -> Path:
        """What each picture shows and how it is computed, for people."""
        return self.path / _CAPTIONS

    def ensure_free(self) -> None:
        """Refuse a place that holds something else than an inspection."""
        fix = f"Choose another {setting('out')}."
        if self.path.is_symlink() and not self.path.exists():
            raise UsageError("is a link that leads nowhere", where=str(self.path), fix=fix)
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise UsageError("is there already and is no folder", where=str(self.path), fix=fix)
        if any(self.path.iterdir()) and not self._is_ours():
            raise UsageError(
                "is there already and holds something else than an inspection", where=str(self.path), fix=fix
            )

    def begin(self, record: Mapping[str, Any]) -> str:
        """Write what is known before the first figure, so that the folder is known as ours whatever happens next.

        Of an inspection that is there the files that it names are removed, and no others; returns what it was of.
        """
        before = self._read()
        for old in (*self._pictures(before), self.numbers, self.captions):
            old.unlink(missing_ok=True)
        self.write_record({"format": FORMAT, **record, "figures": []})
        return str(before.get("model", "another model")) if before else ""

    def write_figure(self, figure: Figure, dpi: int) -> dict[str, Any]:
        """The two pictures of a figure; returns what is recorded of it."""
        png, svg = (self.path / f"{figure.name}.{ending}" for ending in _ENDINGS)
        with atomic_file(svg) as temporary:
            temporary.write_text(as_svg(figure) + "\n", encoding="utf-8")
        with atomic_file(png) as temporary:
            temporary.write_bytes(as_png(figure, dpi))
        return {
            "name": figure.name,
            "title": figure.title,
            "caption": png_caption(figure),
            "seen": figure.seen,
            "files": [png.name, svg.name],
            "facts": dict(figure.facts),
        }

    def write_record(self, record: Mapping[str, Any]) -> None:
        """`inspection.json`, and beside it the captions of what is there."""
        with atomic_file(self.record) as temporary:
            temporary.write_text(json_text(record, indent=2) + "\n", encoding="utf-8")
        if record["figures"]:
            parts = [
                f"## {as_markdown(one['title'])}\n\n![]({one['files'][0]})\n\n{as_markdown(one['caption'])}\n"
                for one in record["figures"]
            ]
            with atomic_file(self.captions) as temporary:
                temporary.write_text("\n".join(parts), encoding="utf-8")

    def write_numbers(self, numbers: Mapping[str, np.ndarray]) -> None:
        """`numbers.npz`."""
        with atomic_file(self.numbers) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **numbers)  # type: ignore[arg-type]

    def _pictures(self, record: Mapping[str, Any]) -> Iterator[Path]:
        """The pictures that a record names, whatever else is in it."""
        figures = record.get("figures")
        for one in figures if isinstance(figures, list) else ():
            name = one.get("name") if isinstance(one, dict) else None
            if name in FIGURES:
                yield from (self.path / f"{name}.{ending}" for ending in _ENDINGS)

    def _is_ours(self) -> bool:
        return bool(self._read())

    def _read(self) -> dict[str, Any]:
        """The record that is there; empty where it is none of ours."""
        try:
            found = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) and found.get("format") == FORMAT else {}


def as_markdown(text: str) -> str:
    """Text in Markdown, where the name of a class or a file may hold anything."""
    escaped = (
        re.sub(r"([\\`*_\[\]|~!$])", r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    )
    # What some readers take for an address without being told.
    return re.sub(r"(?i)(:)(?=//)|(?<=\bwww)(\.)|(@)", lambda mark: f"&#{ord(mark[0])};", escaped)
