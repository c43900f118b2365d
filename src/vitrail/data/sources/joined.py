"""Several sources of the same classes, one behind the other."""

from collections.abc import Iterable, Sequence

import numpy as np

from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Encoded, Source
from vitrail.errors import DataError


class Joined(Source):
    """The images of all sources, in their order."""

    def __init__(self, sources: Sequence[Source], split: str) -> None:
        first = sources[0]
        for other in sources[1:]:
            if other.classes != first.classes:
                both = f"{first.split} and {other.split}"
                raise DataError(f"the classes differ between {both}", wanted="the same", where=first.name)
        self.sources = tuple(sources)
        self.name, self.split, self.classes = first.name, split, first.classes
        self.labels = Labels.joined([source.labels for source in sources])
        self.notes = tuple(dict.fromkeys(note for source in sources for note in source.notes))
        self._ends = np.cumsum([len(source) for source in sources])

    def place(self, index: int) -> tuple[Source, int]:
        """The source of an image, and its index there."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self.sources[number], index - (int(self._ends[number - 1]) if number else 0)

    def read(self, index: int) -> Encoded:
        source, inside = self.place(index)
        return source.read(inside)

    def where(self, index: int) -> str:
        source, inside = self.place(index)
        return source.where(inside)

    def manifest(self) -> Iterable[bytes]:
        for source in self.sources:
            yield source.digest().encode()
