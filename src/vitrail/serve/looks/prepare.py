"""From the bytes that came to what the network reads, and to what a person sees of it."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from vitrail.config import DecodePolicy
from vitrail.data.decoding.decode import decode
from vitrail.data.transforms.fit_image import fit_image, normalised
from vitrail.serve.looks.loaded import Loaded

_WHERE = "the image"


@dataclass(frozen=True)
class Ready:
    """One image, fitted to the network."""

    pixels: np.ndarray
    """float32 (channels, height, width), normalised: what `Predictor.prepare` gives."""
    seen: np.ndarray
    """The same before normalisation: (height, width, channels), 0 to 255."""
    frames: int


def prepare(loaded: Loaded, body: bytes) -> Ready:
    """Decode and fit as prediction does, within the pixels that are served; a DataError says what is wrong."""
    predictor = loaded.predictor
    preprocessing = predictor.described.preprocessing
    assert preprocessing is not None, "the backend is opened only where it is known"
    policy = dataclasses.replace(DecodePolicy(), max_pixels=loaded.max_pixels)
    mode = "L" if predictor.described.config.channels == 1 else "RGB"
    decoded = decode(body, mode, where=_WHERE, policy=policy)
    seen = fit_image(decoded.image, predictor.size, preprocessing)
    return Ready(normalised(seen, preprocessing), seen, decoded.frames)
