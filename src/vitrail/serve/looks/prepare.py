"""From the bytes that came to what the network reads, and to what a person sees of it."""

from vitrail.config import DecodePolicy
from vitrail.data.decoding.decode import decode
from vitrail.predict.handed import Handed
from vitrail.predict.predictor import Prepared
from vitrail.serve.looks.loaded import Loaded

_WHERE = "the image"


def prepare(loaded: Loaded, body: bytes) -> Prepared:
    """Decode and fit as prediction does, within the pixels that are served; a DataError says what is wrong."""
    handed = Handed(_WHERE, lambda mode, policy: decode(body, mode, where=_WHERE, policy=policy))
    return loaded.predictor.prepare(handed, DecodePolicy(max_pixels=loaded.max_pixels))
