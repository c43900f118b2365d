"""How files become pixels: which formats, how large, and what stands behind transparency."""

from dataclasses import dataclass

from vitrail.config.checks import positive
from vitrail.errors import UsageError

# Pillow's own line between an image and a bomb.
_MAX_PIXELS = 89_478_485
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "MPO")


@dataclass(frozen=True, kw_only=True)
class DecodePolicy:
    """The written policy of decoding; it is recorded with every model, so that serving sees what training saw."""

    background: tuple[int, int, int] = (255, 255, 255)
    """Colour behind transparent pixels."""
    max_pixels: int = _MAX_PIXELS
    """Largest width times height, checked in the header before anything is decoded."""
    max_aspect: int = 100
    """Largest ratio between the long and the short side."""

    def __post_init__(self) -> None:
        if len(self.background) != 3 or not all(
            isinstance(value, int) and 0 <= value <= 255 for value in self.background
        ):
            raise UsageError(f"background is {self.background}", wanted="three numbers from 0 to 255")
        positive("max_pixels", self.max_pixels, at_most=2**40)
        positive("max_aspect", self.max_aspect, at_most=2**20)
