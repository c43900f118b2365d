"""Small pictures of images inside a page, as many as its size allows."""

import base64
import io
from typing import Any

from PIL import Image

from vitrail.data import Source
from vitrail.data.check.words import text
from vitrail.data.decoding.decode import Mode, decode
from vitrail.errors import DataError

MOST_BYTES = 2_500_000
"""Of all pictures of a page together, as they stand in it."""
LARGE, SMALL = 160, 80
"""Pixels of the longer side: of a picture in a gallery, and of one beside many others."""
_QUALITY = 82


class Pictures:
    """Reads images again when they are to be shown, and counts what they take."""

    def __init__(self, source: Source, *, is_grey: bool) -> None:
        self._source = source
        self._mode: Mode = "L" if is_grey else "RGB"
        self.room = MOST_BYTES
        """Bytes that are left."""

    def of(self, index: int, side: int = LARGE) -> str:
        """An image as markup, or a few words where it has gone in the meantime or the page is full."""
        where = self._source.where(index)
        try:
            image = decode(self._source.read(index), self._mode, where=where).image
        except DataError:
            return '<span class="gone">no longer readable</span>'
        return self.drawn(image, side=side)

    def drawn(self, image: Image.Image, *, side: int = LARGE, words: str = "") -> str:
        """A picture as markup; `words` say what it shows where nothing beside it does."""
        # Small ones keep their size, and are enlarged pixel by pixel.
        is_small = max(image.size) <= SMALL
        if not is_small:
            image.thumbnail((side, side))
        found = address(image, is_small=is_small, exactly=is_small and side == LARGE)
        if len(found) > self.room:
            return '<span class="gone">left out: the page is full</span>'
        self.room -= len(found)
        look = ' class="pixels"' if is_small else ""
        return f'<img alt="{text(words)}"{look} src="{found}">'


def address(image: Image.Image, *, is_small: bool, exactly: bool) -> str:
    """The image itself as an address; a few pixels may be kept exactly, and otherwise the shorter file is taken."""
    files = [] if exactly else [("jpeg", _file(image, "JPEG", quality=_QUALITY, optimize=True))]
    if is_small:
        files.append(("png", _file(image, "PNG", optimize=True)))
    kind, content = min(files, key=lambda one: len(one[1]))
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _file(image: Image.Image, kind: str, **how: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()
