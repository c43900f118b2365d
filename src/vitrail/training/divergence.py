"""Losses that are not finite: one is skipped, three in a row send the run back, and after three returns it ends."""

from pathlib import Path
from typing import Any

from vitrail.data import Source, Stream
from vitrail.errors import VitrailError
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text

MOST_IN_A_ROW = 3
MOST_ROLLBACKS = 3
RATE_FACTOR = 0.5
_BATCHES_NAMED = 8
_FILES_NAMED = 64


class Diverged(VitrailError):
    """A run whose loss is no number any more, whatever is done."""

    exit_code = 4
    is_shared = True


class NotFinite(Exception):
    """Too many updates in a row were skipped: the run has to go back."""

    def __init__(self, step: int) -> None:
        super().__init__(f"the loss of step {step} is not finite")
        self.step = step


def write_diverged(path: Path, record: dict[str, Any], source: Source, stream: Stream, step: int) -> None:
    """`diverged.json`: where it ended, the last losses, and the files of the last batches, the newest first."""
    batches = []
    for number in range(step, max(step - _BATCHES_NAMED, 0), -1):
        indices = stream.step(number - 1).indices[:_FILES_NAMED]
        batches.append({"step": number, "files": [source.where(int(index)) for index in indices]})
    with atomic_file(path) as temporary:
        temporary.write_text(json_text({**record, "batches": batches}, indent=2) + "\n", encoding="utf-8")
