"""Many strings in two arrays.

Worker processes share the pages of an array until they die; a list of a million strings is copied page by page as its
reference counts are touched.
"""

from collections.abc import Iterable, Iterator

import numpy as np


class Strings:
    """A read-only row of strings; names that are not UTF-8 survive."""

    def __init__(self, items: Iterable[str]) -> None:
        encoded = [item.encode("utf-8", "surrogateescape") for item in items]
        self._ends = np.cumsum([len(item) for item in encoded], dtype=np.int64)
        self._letters = np.frombuffer(b"".join(encoded), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"{index} of {len(self)} strings")
        index %= len(self)
        start = int(self._ends[index - 1]) if index else 0
        return self._letters[start : int(self._ends[index])].tobytes().decode("utf-8", "surrogateescape")


Ids = list[str] | Strings
"""A name for each image; many of them in two arrays."""
