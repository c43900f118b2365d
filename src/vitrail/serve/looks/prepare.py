"""From the bytes that came to what the network reads, and to what a person sees of it."""

from dataclasses import dataclass

from vitrail.config import DecodePolicy
from vitrail.data.decoding.decode import decode, open_image
from vitrail.predict.handed import Handed
from vitrail.predict.predictor import Prepared
from vitrail.serve.looks.loaded import Loaded

WHERE = "the image"
# From here on a file may keep a decoder busy for longer than a batch takes.
_MANY_BYTES, _MANY_PIXELS = 2**20, 4_000_000
# How JPEG, PNG and WebP begin, whose headers are read at once however large the file is.
_BRIEF = (b"\xff\xd8", b"\x89PNG", b"RIFF")


@dataclass(frozen=True)
class Weight:
    """What an image will cost, as far as its header tells."""

    format: str
    pixels: int
    is_heavy: bool


def weigh(loaded: Loaded, body: bytes) -> Weight:
    """Look at the header alone; a DataError says what is wrong with it."""
    if len(body) > _MANY_BYTES and not body.startswith(_BRIEF):
        # The header may be as long as the file, and what it says is not known: the pixels may be as many as allowed.
        return Weight("another", loaded.max_pixels, is_heavy=True)
    image = open_image(body, where=WHERE, policy=DecodePolicy(max_pixels=loaded.max_pixels))
    pixels = image.width * image.height
    return Weight(str(image.format), pixels, is_heavy=pixels > _MANY_PIXELS or len(body) > _MANY_BYTES)


def prepare(loaded: Loaded, body: bytes) -> Prepared:
    """Decode and fit as prediction does, within the pixels that are served; a DataError says what is wrong."""
    handed = Handed(WHERE, lambda mode, policy: decode(body, mode, where=WHERE, policy=policy))
    return loaded.predictor.prepare(handed, DecodePolicy(max_pixels=loaded.max_pixels))
