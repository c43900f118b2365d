"""Small pictures of a few images, as text that stands in a page."""

import base64
import io

from vitrail.config.decoding import DecodePolicy
from vitrail.data.check.findings import Place
from vitrail.data.decoding.decode import decode
from vitrail.data.sources.source import Source
from vitrail.errors import DataError

_SIDE = 144
_QUALITY = 80


class Thumbnails:
    """Reads an image again when it is to be shown; each is made once."""

    def __init__(self, splits: dict[str, Source], policy: DecodePolicy) -> None:
        self._splits, self._policy = splits, policy
        self._made: dict[tuple[str, int], str | None] = {}

    def of(self, place: Place) -> str | None:
        """A data: address of a small JPEG, or None when the file has gone in the meantime."""
        key = place.split, place.index
        if key not in self._made:
            self._made[key] = self._make(place)
        return self._made[key]

    def _make(self, place: Place) -> str | None:
        source = self._splits[place.split]
        try:
            image = decode(source.read(place.index), where=place.path, policy=self._policy).image
        except DataError:
            return None
        image.thumbnail((_SIDE, _SIDE))
        file = io.BytesIO()
        image.save(file, "JPEG", quality=_QUALITY)
        return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii")
