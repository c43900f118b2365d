"""Which files the images of a source are, when they are files of their own."""

import numpy as np

from vitrail.data.sources.files import Files
from vitrail.data.sources.packed import Packed
from vitrail.data.sources.source import Arrays, Part, Source


def files_of(source: Source) -> tuple[Files, np.ndarray] | None:
    """The files behind a source and the place of each image among them; None when the images are no files."""
    whole = _whole(source)
    return (whole, source.ids(np.arange(len(source)))) if isinstance(whole, Files) else None


def is_known_good(source: Source) -> bool:
    """Whether nothing can be unreadable: the pixels are in memory, or were read back when they were packed."""
    return isinstance(_whole(source), Arrays | Packed)


def _whole(source: Source) -> Source:
    while isinstance(source, Part):
        source = source.whole
    return source
