"""The folder of an inspection: pictures, their captions and every number, each written whole or not at all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.errors import UsageError
from vitrail.report.figures import Figure, as_png, as_svg, png_caption
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text

FORMAT = "vitrail-inspection/1"
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
        fix = "Choose another --out."
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

    def begin(self, record: Mapping[str, Any]) -> None:
        """Write what is known before the first figure, so that the folder is known as ours whatever happens next."""
        for old in (self.numbers, self.captions):
            old.unlink(missing_ok=True)
        self.write_record({"format": FORMAT, **record, "figures": []})

    def write_figure(self, figure: Figure, dpi: int) -> dict[str, Any]:
        """The two pictures of a figure; returns what is recorded of it."""
        png, svg = (self.path / f"{figure.name}.{ending}" for ending in ("png", "svg"))
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
                f"## {one['title']}\n\n![]({one['files'][0]})\n\n{_plain(one['caption'])}\n"
                for one in record["figures"]
            ]
            with atomic_file(self.captions) as temporary:
                temporary.write_text("\n".join(parts), encoding="utf-8")

    def write_numbers(self, numbers: Mapping[str, np.ndarray]) -> None:
        """`numbers.npz`."""
        with atomic_file(self.numbers) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **numbers)  # type: ignore[arg-type]

    def _is_ours(self) -> bool:
        try:
            found = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(found, dict) and found.get("format") == FORMAT


def _plain(text: str) -> str:
    """Text in Markdown, where a class name may hold anything."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*").replace("`", "\\`")
