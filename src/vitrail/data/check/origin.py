"""Which files the images of a source are, when they are files of their own."""

import numpy as np

from vitrail.data.sources.files import Files
from vitrail.data.sources.source import Arrays, Part, Source


def files_of(source: Source) -> tuple[Files, np.ndarray] | None:
    """The files behind a source and the place of each image among them; None when the images are no files."""
    whole = _whole(source)
    return (whole, source.ids(np.arange(len(source)))) if isinstance(whole, Files) else None


def is_in_memory(source: Source) -> bool:
    """Whether the pixels are there already, so that nothing can be unreadable."""
    return isinstance(_whole(source), Arrays)


def _whole(source: Source) -> Source:
    while isinstance(source, Part):
        source = source.whole
    return source
