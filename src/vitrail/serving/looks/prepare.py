"""From the bytes that came to what the network reads, and to what a person sees of it."""

import io
from dataclasses import dataclass

from vitrail.config import DecodePolicy
from vitrail.data.decoding.decode import decode, open_image
from vitrail.prediction.handed import Handed
from vitrail.prediction.predictor import Prepared
from vitrail.serving.looks.loaded import Loaded

WHERE = "the image"
# From here on a file may keep a decoder busy for longer than a batch takes.
_MANY_BYTES, _MANY_PIXELS = 2**20, 4_000_000
# How JPEG, PNG and WebP begin, whose headers are read at once however large the file is.
_BRIEF = (b"\xff\xd8", b"\x89PNG", b"RIFF")
# What the header of any other file may take; those that people send take some forty steps and ten kilobytes.
_MOST_STEPS, _MOST_HEADER = 10_000, 2**20


@dataclass(frozen=True)
class Weight:
    """What an image will cost, as far as its header tells."""

    format: str
    pixels: int
    is_heavy: bool


class _LongHeader(BaseException):
    """A header takes more than one of an image does; no Exception, of which Pillow takes some for damage."""


class _HeaderFile(io.BytesIO):
    """Bytes of which a header is read, and not much more."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._steps, self._left = _MOST_STEPS, _MOST_HEADER

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self._steps, self._left = self._steps - 1, self._left - len(found)
        if self._steps < 0 or self._left < 0:
            raise _LongHeader
        return found


def weigh(loaded: Loaded, body: bytes) -> Weight:
    """Look at the header alone; a DataError says what is wrong with it."""
    file = io.BytesIO if body.startswith(_BRIEF) else _HeaderFile
    try:
        image = open_image(body, where=WHERE, policy=DecodePolicy(max_pixels=loaded.max_pixels), file=file)
    except _LongHeader:
        # What it says is not known: the pixels may be as many as allowed.
        return Weight("another", loaded.max_pixels, is_heavy=True)
    pixels = image.width * image.height
    return Weight(str(image.format), pixels, is_heavy=pixels > _MANY_PIXELS or len(body) > _MANY_BYTES)


def prepare(loaded: Loaded, body: bytes) -> Prepared:
    """Decode and fit as prediction does, within the pixels that are served; a DataError says what is wrong."""
    handed = Handed(WHERE, lambda mode, policy: decode(body, mode, where=WHERE, policy=policy))
    return loaded.predictor.prepare(handed, DecodePolicy(max_pixels=loaded.max_pixels))
